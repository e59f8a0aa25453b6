#include "api/names.hpp"

#include <google/protobuf/timestamp.pb.h>

#include <algorithm>

#include "api/errors.hpp"
#include "observability/text.hpp"

namespace openshell::api {

absl::Status check_dns_name(std::string_view field, std::string_view what, std::string_view text) {
  if (text.size() > kMaxRoutableBytes)
    return invalid_field(field, cat(what, " exceeds maximum length (", text.size(), " > ", kMaxRoutableBytes, ")"));
  const bool known =
      std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (!known) return invalid_field(field, cat(what, " must contain only lowercase alphanumeric characters or hyphens"));
  if (text.starts_with('-') || text.ends_with('-')) return invalid_field(field, cat(what, " must not start or end with a hyphen"));
  if (text.find("--") != std::string_view::npos) return invalid_field(field, cat(what, " must not contain consecutive hyphens"));
  return absl::OkStatus();
}

absl::Status check_routable(std::string_view field, std::string_view text) {
  if (text.size() > kMaxRoutableBytes)
    return invalid_field(field, cat(field, " must be at most ", kMaxRoutableBytes, " characters for sandbox service routing"));
  if (text.find("--") != std::string_view::npos) return invalid_field(field, cat(field, " must not contain '--'"));
  if (auto status = check_dns_name(field, field, text); !status.ok())
    return invalid_field(field, cat(field, " must be a lowercase DNS label"));
  return absl::OkStatus();
}

void set_time_ms(google::protobuf::Timestamp& out, std::int64_t ms) {
  const std::int64_t rest = ((ms % 1000) + 1000) % 1000;
  out.set_seconds((ms - rest) / 1000);
  out.set_nanos(static_cast<std::int32_t>(rest) * 1'000'000);
}

}  // namespace openshell::api
