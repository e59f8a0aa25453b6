#include "egress/loopback_target.hpp"

#include <absl/strings/ascii.h>

#include "egress/ip_address.hpp"

namespace openshell::egress {
namespace {

constexpr std::uint32_t kMaxPort = 65'535;

}  // namespace

absl::StatusOr<std::string> loopback_target(std::string_view host, std::uint32_t port) {
  if (port == 0 || port > kMaxPort) return absl::InvalidArgumentError("tcp target port must be between 1 and 65535");
  std::string name{absl::StripAsciiWhitespace(absl::string_view{host.data(), host.size()})};
  if (name.empty()) return absl::InvalidArgumentError("tcp target host is required");
  if (absl::AsciiStrToLower(name) == "localhost") return std::string{"127.0.0.1"};
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  auto address = IpAddress::parse(name);
  if (!address.ok() || !address->is_loopback()) return absl::InvalidArgumentError("tcp target host must be loopback");
  return address->unmapped().str();
}

}  // namespace openshell::egress
