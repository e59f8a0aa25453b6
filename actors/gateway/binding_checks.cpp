// Where a policy says which provider's credential goes to an endpoint: what it may name, and whether anybody can sign there.
#include <absl/strings/ascii.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <map>

#include "actors/gateway/effective_config.hpp"
#include "observability/text.hpp"
#include "policy/glob.hpp"
#include "providers/profile.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

namespace sb = openshell::sandbox::v1;
using Attached = std::vector<providers::Provider>;

constexpr const char* kAccessKey = "AWS_ACCESS_KEY_ID";
constexpr const char* kSecretKey = "AWS_SECRET_ACCESS_KEY";
constexpr std::uint32_t kMaxPort = 65'535;

std::vector<std::uint32_t> ports_of(const sb::NetworkEndpoint& endpoint) {
  std::vector<std::uint32_t> ports{endpoint.ports().begin(), endpoint.ports().end()};
  if (ports.empty() && endpoint.port() != 0) ports.push_back(endpoint.port());
  return ports;
}

const providers::Provider* find(const Attached& attached, const std::string& name) {
  const auto found = std::find_if(attached.begin(), attached.end(), [&](const auto& provider) { return provider.name == name; });
  return found == attached.end() ? nullptr : &*found;
}

bool has_endpoints(const providers::Provider& provider) {
  return provider.profile != nullptr && !provider.profile->content.endpoints().empty() && providers::endpoints_active(provider);
}

// What is wrong with the words themselves, whoever is attached.
absl::Status check_words(const sb::NetworkEndpoint& endpoint) {
  const auto& name = endpoint.credential_binding().provider();
  const auto& host = endpoint.host();
  if (name.empty()) return absl::InvalidArgumentError(cat("credential_binding.provider is required for endpoint '", host, "'"));
  if (absl::ascii_isspace(static_cast<unsigned char>(name.front())) || absl::ascii_isspace(static_cast<unsigned char>(name.back()))) {
    return absl::InvalidArgumentError(cat("credential_binding.provider '", name, "' must not contain leading or trailing whitespace"));
  }
  if (host.empty()) return absl::InvalidArgumentError(cat("credential-bound endpoint for provider '", name, "' must define a host"));
  const auto ports = ports_of(endpoint);
  const bool good = !ports.empty() && std::all_of(ports.begin(), ports.end(), [](auto port) { return port >= 1 && port <= kMaxPort; });
  if (!good) {
    return absl::InvalidArgumentError(
        cat("credential-bound endpoint '", host, "' for provider '", name, "' must define ports in range 1..=65535"));
  }
  return absl::OkStatus();
}

absl::Status check_binding(const sb::NetworkEndpoint& endpoint, const Attached& attached, bool global) {
  if (global) return absl::FailedPreconditionError("credential_binding is sandbox-scoped and cannot be used in a global policy");
  if (auto status = check_words(endpoint); !status.ok()) return status;
  const auto& name = endpoint.credential_binding().provider();
  const auto* provider = find(attached, name);
  if (provider == nullptr) {
    return absl::FailedPreconditionError(
        cat("credential_binding references provider '", name, "', but that provider is not attached to the sandbox"));
  }
  if (provider->profile == nullptr && !provider->unbound()) {
    return absl::FailedPreconditionError(cat("credential_binding provider '", name, "' has no provider profile"));
  }
  if (has_endpoints(*provider)) {
    return absl::FailedPreconditionError(cat("credential_binding provider '", name,
                                             "' profile already defines endpoints; profile endpoints remain the credential boundary"));
  }
  return absl::OkStatus();
}

// --- who signs

bool declares_keys(const providers::Provider& provider) {
  if (provider.profile == nullptr) return false;
  const auto keys = providers::accepted_keys(provider.profile->content);
  return keys.contains(kAccessKey) && keys.contains(kSecretKey);
}

bool is_literal(const std::string& text) { return text.find_first_of("*?[]{}\\") == std::string::npos; }

// A pattern is covered by the same pattern only.
bool covers(const std::string& wanted, const std::string& given, policy::GlobKind kind) {
  if (wanted == given) return true;
  if (!is_literal(wanted)) return false;
  const auto glob = policy::Glob::compile(given, kind);
  return glob.ok() && glob->matches(wanted);
}

bool covers(const sb::NetworkEndpoint& signed_endpoint, const sb::NetworkEndpoint& of_profile, std::uint32_t port) {
  const auto ports = ports_of(of_profile);
  if (std::find(ports.begin(), ports.end(), port) == ports.end()) return false;
  if (!covers(absl::AsciiStrToLower(signed_endpoint.host()), absl::AsciiStrToLower(of_profile.host()), policy::GlobKind::host))
    return false;
  const auto& path = of_profile.path();
  return path.empty() || path == "**" || path == "/**" || covers(signed_endpoint.path(), path, policy::GlobKind::path);
}

bool signs(const providers::Provider& provider, const sb::NetworkEndpoint& endpoint) {
  if (!declares_keys(provider) || !has_endpoints(provider)) return false;
  const auto& own = provider.profile->content.endpoints();
  const auto ports = ports_of(endpoint);
  return std::all_of(ports.begin(), ports.end(), [&](auto port) {
    return std::any_of(own.begin(), own.end(), [&](const auto& one) { return covers(endpoint, one, port); });
  });
}

absl::Status check_signing(const sb::NetworkEndpoint& endpoint, const Attached& attached) {
  if (endpoint.credential_signing().empty()) return absl::OkStatus();
  if (endpoint.has_credential_binding()) {
    const auto* bound = find(attached, endpoint.credential_binding().provider());
    if (bound != nullptr && declares_keys(*bound) && !has_endpoints(*bound)) return absl::OkStatus();
  } else if (std::any_of(attached.begin(), attached.end(), [&](const auto& provider) { return signs(provider, endpoint); })) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      cat("credential_signing endpoint '", endpoint.host(), ":", absl::StrJoin(ports_of(endpoint), ","), endpoint.path(),
          "' has no resolvable AWS credential source; attach an endpoint-bearing provider profile that declares ", kAccessKey, " and ",
          kSecretKey, " and covers this endpoint, or set credential_binding.provider to an attached endpointless profile that declares ",
          "those credentials"));
}

}  // namespace

absl::Status check_bindings(const sb::SandboxPolicy& policy, const std::vector<providers::Provider>& attached, bool global) {
  std::map<std::string_view, const sb::NetworkPolicyRule*> ordered;  // so that of several faults it is always the same that is told
  for (const auto& [key, rule] : policy.network_policies()) ordered.emplace(key, &rule);
  for (const auto& [key, rule] : ordered) {
    for (const auto& endpoint : rule->endpoints()) {
      if (endpoint.has_credential_binding()) {
        if (auto status = check_binding(endpoint, attached, global); !status.ok()) return status;
      }
      // A global policy is written without any sandbox's providers; each sandbox's own configuration is checked with them.
      if (global) continue;
      if (auto status = check_signing(endpoint, attached); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace openshell::gateway
