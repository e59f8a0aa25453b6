#include "policy/endpoint_inventory.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <openssl/sha.h>

#include <algorithm>
#include <tuple>

#include "policy/rules.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xff));
}

void put(std::string& out, std::string_view text) {
  put(out, text.size(), 8);
  out += text;
}

std::vector<std::uint32_t> ports_of(const sandbox::v1::NetworkEndpoint& endpoint) {
  std::vector<std::uint32_t> out{endpoint.ports().begin(), endpoint.ports().end()};
  if (out.empty() && endpoint.port() != 0) out.push_back(endpoint.port());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

std::string endpoint_id(std::string_view host, std::string_view path, const std::vector<std::uint32_t>& ports) {
  std::string bytes = "openshell:endpoint:v1";
  put(bytes, host);
  put(bytes, path);
  put(bytes, ports.size(), 8);
  for (const auto port : ports) put(bytes, port, 4);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return "endpoint:v1:" + absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof digest});
}

std::vector<InventoryEndpoint> endpoint_inventory(const sandbox::v1::SandboxPolicy& policy) {
  std::vector<InventoryEndpoint> out;
  for (const auto& [key, rule] : policy.network_policies()) {
    for (int i = 0; i < rule.endpoints_size(); ++i) {
      const auto& endpoint = rule.endpoints(i);
      auto ports = ports_of(endpoint);
      if (endpoint.host().empty() || ports.empty() || parse_protocol(endpoint.protocol()) != Protocol::mcp) continue;
      const bool everywhere = endpoint.path().empty() || endpoint.path() == "**";
      InventoryEndpoint one{key,
                            static_cast<std::uint32_t>(i),
                            {},
                            absl::AsciiStrToLower(endpoint.host()),
                            std::move(ports),
                            everywhere ? "/**" : endpoint.path(),
                            endpoint.provider_credentialed()};
      one.id = endpoint_id(one.host, one.path, one.ports);
      out.push_back(std::move(one));
    }
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return std::tie(a.policy, a.index) < std::tie(b.policy, b.index); });
  return out;
}

}  // namespace openshell::policy
