#include "policy/normalize.hpp"

#include <algorithm>

#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

void normalize_ports(pb::NetworkEndpoint& endpoint, const std::string& path, Diagnostics& warnings) {
  if (endpoint.ports_size() == 0) {
    if (endpoint.port() > 0) endpoint.add_ports(endpoint.port());
    return;
  }
  const std::uint32_t first = endpoint.ports(0);
  if (endpoint.port() != 0 && endpoint.port() != first) {
    const bool listed = std::find(endpoint.ports().begin(), endpoint.ports().end(), endpoint.port()) != endpoint.ports().end();
    if (!listed) warnings.warning(cat(path, ".port"), cat("port ", endpoint.port(), " is ignored: ports is set and counts"));
  }
  endpoint.set_port(first);
}

void normalize_endpoint(pb::NetworkEndpoint& endpoint, const std::string& path, Provenance provenance, Diagnostics& warnings) {
  normalize_ports(endpoint, path, warnings);
  endpoint.set_protocol(text::lower(endpoint.protocol()));
  for (auto& rule : *endpoint.mutable_rules()) rule.mutable_allow();
  if (endpoint.protocol() == "mcp") {
    auto* versions = endpoint.mutable_mcp()->mutable_versions();
    if (versions->empty()) versions->Add(std::string{kDefaultMcpVersion});
    std::sort(versions->begin(), versions->end());
  } else {
    endpoint.clear_mcp();
  }
  if (provenance == Provenance::clear) {
    endpoint.clear_advisor_proposed();
    endpoint.clear_provider_credentialed();
    endpoint.clear_token_grant_owner();
  }
}

}  // namespace

Diagnostics normalize(pb::SandboxPolicy& policy, Provenance provenance) {
  Diagnostics warnings;
  if (policy.version() == 0) policy.set_version(1);
  if (policy.has_landlock() && policy.landlock().compatibility().empty()) policy.mutable_landlock()->set_compatibility("best_effort");
  if (policy.has_process() && policy.process().run_as_user().empty() && policy.process().run_as_group().empty()) policy.clear_process();
  for (auto& [key, rule] : *policy.mutable_network_policies()) {
    if (rule.name().empty()) rule.set_name(key);
    for (int i = 0; i < rule.endpoints_size(); ++i) {
      normalize_endpoint(*rule.mutable_endpoints(i), cat("network_policies.", key, ".endpoints[", i, "]"), provenance, warnings);
    }
  }
  for (auto& [key, config] : *policy.mutable_network_middlewares()) {
    if (config.name().empty()) config.set_name(key);
    if (config.has_config() && config.config().fields().empty()) config.clear_config();
  }
  return warnings;
}

std::string normalize_path(std::string_view path) {
  std::string out;
  const bool absolute = path.starts_with('/');
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const auto part = path.substr(at, end - at);
    if (!part.empty() && part != ".") {
      if (absolute || !out.empty()) out.push_back('/');
      out += part;
    }
    at = end + 1;
  }
  return out.empty() && absolute ? "/" : out;
}

}  // namespace openshell::policy
