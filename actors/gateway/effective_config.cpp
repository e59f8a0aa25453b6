#include "actors/gateway/effective_config.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/str_join.h>

#include <algorithm>

#include "actors/gateway/settings.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "policy/glob.hpp"
#include "policy/hash.hpp"
#include "policy/validate.hpp"
#include "providers/profile.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

namespace sb = openshell::sandbox::v1;

std::vector<std::uint32_t> ports_of(const sb::NetworkEndpoint& endpoint) {
  std::vector<std::uint32_t> ports{endpoint.ports().begin(), endpoint.ports().end()};
  if (ports.empty() && endpoint.port() != 0) ports.push_back(endpoint.port());
  return ports;
}

template <class Each>
void for_endpoints(const sb::SandboxPolicy& policy, Each each) {
  for (const auto& [key, rule] : policy.network_policies()) {
    for (const auto& endpoint : rule.endpoints()) each(key, endpoint);
  }
}

void clear_marks(sb::SandboxPolicy& policy) {
  for (auto& [key, rule] : *policy.mutable_network_policies()) {
    for (auto& endpoint : *rule.mutable_endpoints()) {
      endpoint.set_provider_credentialed(false);
      endpoint.clear_token_grant_owner();
    }
  }
}

std::string compared_host(const std::string& host) {
  std::string out = absl::AsciiStrToLower(host);
  absl::StripAsciiWhitespace(&out);
  if (out.ends_with('.')) out.pop_back();
  return out;
}

bool hosts_overlap(const std::string& a, const std::string& b) {
  const auto left = compared_host(a);
  const auto right = compared_host(b);
  if (left == right) return true;
  const auto one = policy::Glob::compile(left, policy::GlobKind::host);
  const auto other = policy::Glob::compile(right, policy::GlobKind::host);
  return one.ok() && other.ok() && !left.empty() && !right.empty() && policy::Glob::overlap(*one, *other);
}

bool reaches(const sb::NetworkEndpoint& endpoint, const providers::BindingEndpoint& scope) {
  const auto ports = ports_of(endpoint);
  const bool port = ports.empty() || scope.port == 0 || std::find(ports.begin(), ports.end(), scope.port) != ports.end();
  return port && hosts_overlap(endpoint.host(), scope.host);
}

/// Host and port of every place where a credential of an attached provider is resolved.
std::vector<providers::BindingEndpoint> credential_scopes(const providers::PolicyBindings& bindings,
                                                          const std::vector<providers::Provider>& attached) {
  std::vector<providers::BindingEndpoint> out;
  for (const auto& provider : attached) {
    if (provider.profile != nullptr && !provider.profile->content.endpoints().empty() && providers::endpoints_active(provider)) {
      if (!providers::is_credentialed(provider.profile->content)) continue;
      const auto own = providers::profile_endpoints(provider);
      out.insert(out.end(), own.begin(), own.end());
      continue;
    }
    const auto bound = bindings.find(provider.name);
    if (bound != bindings.end()) out.insert(out.end(), bound->second.begin(), bound->second.end());
  }
  return out;
}

/// Marks every endpoint that overlaps one at which a credential is resolved.
void mark_credentialed(sb::SandboxPolicy& policy, const std::vector<providers::BindingEndpoint>& scopes) {
  if (scopes.empty()) return;
  for (auto& [key, rule] : *policy.mutable_network_policies()) {
    for (auto& endpoint : *rule.mutable_endpoints()) {
      endpoint.set_provider_credentialed(
          std::any_of(scopes.begin(), scopes.end(), [&](const auto& scope) { return reaches(endpoint, scope); }));
    }
  }
}

/// Whose endpoint it is that makes a rule of the user a credentialed one.
std::string reached_by(const sb::NetworkEndpoint& endpoint, const std::string& rule, const std::vector<providers::Provider>& attached) {
  for (const auto& provider : attached) {
    const auto name = providers::layer_name(provider.name);
    if (rule.starts_with(name)) continue;
    for (const auto& scope : providers::profile_endpoints(provider)) {
      if (reaches(endpoint, scope)) return cat(" (it covers '", scope.host, ":", scope.port, "' of rule '", name, "')");
    }
  }
  return {};
}

/// Each attached provider's profile adds a rule of its own; nothing of the user's is ever replaced.
void add_layers(sb::SandboxPolicy& policy, const std::vector<providers::Provider>& attached) {
  auto& rules = *policy.mutable_network_policies();
  for (const auto& provider : attached) {
    auto rule = providers::layer(provider);
    if (!rule) continue;
    std::string name = rule->name();
    for (int suffix = 2; rules.contains(name); ++suffix) name = cat(rule->name(), "_", suffix);
    rule->set_name(name);
    rules[name] = std::move(*rule);
  }
}

void set_source(const ConfigInputs& in, sb::GetSandboxConfigResponse& out) {
  const auto* newest = in.policies.newest();
  out.set_version(newest == nullptr ? 0 : newest->value.version());
  out.set_policy_source(sb::POLICY_SOURCE_SANDBOX);
  if (in.global.settings && in.global.settings->has_global_policy()) {
    out.set_policy_source(sb::POLICY_SOURCE_GLOBAL);
    out.set_version(std::max(out.version(), 1U));
    out.set_global_policy_version(in.global.policy_version);
    *out.mutable_policy() = in.global.settings->global_policy();
  } else if (newest != nullptr && !newest->value.hash().empty()) {
    *out.mutable_policy() = newest->value.policy();
  } else if (newest == nullptr && in.record.sandbox().spec().has_policy()) {
    out.set_version(1);  // stored with the record; the first poll makes it revision 1
    *out.mutable_policy() = in.record.sandbox().spec().policy();
  }
}

}  // namespace

providers::PolicyBindings policy_bindings(const sb::SandboxPolicy& policy) {
  providers::PolicyBindings bindings;
  for_endpoints(policy, [&](const std::string&, const sb::NetworkEndpoint& endpoint) {
    if (!endpoint.has_credential_binding()) return;
    auto& scopes = bindings[endpoint.credential_binding().provider()];
    auto ports = ports_of(endpoint);
    if (ports.empty()) ports.push_back(0);
    for (auto port : ports) scopes.push_back({endpoint.host(), port, endpoint.path()});
  });
  for (auto& [provider, scopes] : bindings) {
    std::sort(scopes.begin(), scopes.end());
    scopes.erase(std::unique(scopes.begin(), scopes.end()), scopes.end());
  }
  return bindings;
}

sb::SandboxPolicy compose_policy(sb::SandboxPolicy policy, const std::vector<providers::Provider>& attached, bool global) {
  clear_marks(policy);
  const auto scopes = credential_scopes(policy_bindings(policy), attached);
  if (!global) add_layers(policy, attached);
  mark_credentialed(policy, scopes);
  return policy;
}

absl::Status check_composition(const sb::SandboxPolicy& policy, const std::vector<providers::Provider>& attached) {
  const bool layered = std::any_of(attached.begin(), attached.end(), [](const auto& provider) { return provider.profile != nullptr; });
  if (!layered) return absl::OkStatus();  // the policy alone was checked when it came in
  const auto composed = compose_policy(policy, attached, false);
  auto faults = policy::validate(composed);
  if (faults.has_errors())
    return faults.status(absl::StatusCode::kFailedPrecondition, "policy with provider rules contains unsafe content: ");
  return policy::find_ambiguities(composed).status(absl::StatusCode::kFailedPrecondition, "network endpoint ambiguity validation failed:\n",
                                                   "\n");
}

absl::Status check_uninspected(const sb::SandboxPolicy& policy, const std::vector<providers::Provider>& attached) {
  return check_composed_uninspected(compose_policy(policy, attached, false), attached);
}

absl::Status check_composed_uninspected(const sb::SandboxPolicy& composed, const std::vector<providers::Provider>& attached) {
  absl::Status status;
  for_endpoints(composed, [&](const std::string& rule, const sb::NetworkEndpoint& endpoint) {
    if (!endpoint.provider_credentialed() || endpoint.allow_uninspected_credentials() || !status.ok()) return;
    std::string protocol = endpoint.protocol();
    absl::StripAsciiWhitespace(&protocol);
    const bool raw = protocol.empty() || protocol == "tcp" || protocol == "sql";
    if (!raw && endpoint.tls() != sb::NETWORK_TLS_MODE_SKIP) return;
    status = absl::FailedPreconditionError(cat("credentialed endpoint '", endpoint.host(), ":", absl::StrJoin(ports_of(endpoint), ","),
                                               "' in rule '", rule, "' uses ", raw ? "L4-only" : "tls: skip",
                                               "; configure L7 inspection or explicitly set allow_uninspected_credentials: true",
                                               reached_by(endpoint, rule, attached)));
  });
  return status;
}

sb::GetSandboxConfigResponse compose_config(const ConfigInputs& in) {
  sb::GetSandboxConfigResponse out;
  set_source(in, out);
  const bool global = out.policy_source() == sb::POLICY_SOURCE_GLOBAL;
  providers::PolicyBindings bindings;
  std::string error;
  if (out.has_policy()) {
    bindings = policy_bindings(out.policy());
    *out.mutable_policy() = compose_policy(std::move(*out.mutable_policy()), in.attached, global);
    out.set_policy_hash(policy::policy_hash(out.policy()).str());
    if (policy::validate(out.policy()).has_errors() || policy::find_ambiguities(out.policy()).has_errors()) error = diagnostics::kPolicy;
    const bool held =
        check_bindings(out.policy(), in.attached, global).ok() && (global || check_composed_uninspected(out.policy(), in.attached).ok());
    if (error.empty() && !held) error = diagnostics::kProviders;
  } else if (const auto* newest = in.policies.newest(); newest != nullptr && newest->value.hash().empty()) {
    error = diagnostics::kPolicy;  // a stored revision that does not decode: nothing is run in its place
  }
  if (error.empty() && in.provider_missing) error = diagnostics::kProviders;

  auto settings = effective_settings(in.global.settings.get(), in.settings);
  policy::ConfigFingerprint fingerprint;
  fingerprint.policy_source = out.policy_source();
  fingerprint.failure_mode = in.failure_mode;
  fingerprint.extension_authentication = in.extension_authentication;
  fingerprint.hash = PolicyHash{out.policy_hash()};
  for (auto& [key, value] : settings) {
    (*out.mutable_settings())[key] = value;
    fingerprint.settings[key] = &value;
  }
  out.set_config_revision(policy::config_revision(fingerprint));
  out.set_settings_revision(in.settings == nullptr ? 0 : in.settings->revision());
  out.set_provider_env_revision(providers::environment_revision(in.attached, bindings));
  out.set_workspace(in.record.sandbox().metadata().workspace());
  out.set_policy_validation_failure_mode(in.failure_mode);
  out.set_extension_authentication_enabled(in.extension_authentication);
  out.set_provider_attachment_epoch(in.record.sandbox().spec().provider_attachment_epoch());
  out.set_configuration_instance_id(in.record.sandbox().status().configuration_admission().instance_id());
  out.set_configuration_admitted(error.empty());
  out.set_configuration_error(error);
  return out;
}

}  // namespace openshell::gateway
