// What a supervisor is to run: its policy, settings and the fingerprints of both, composed from the records. Pure.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "actors/gateway/policy_history.hpp"
#include "messages/gateway.hpp"
#include "providers/environment.hpp"

namespace openshell::gateway {

/// Why a composition is refused, in the words that may be published; never a supervisor's or parser's own text.
namespace diagnostics {
inline constexpr const char* kPolicy = "Stored policy structure or safety validation failed; submit a complete valid replacement policy";
inline constexpr const char* kProviders =
    "Effective provider configuration is invalid; repair credential bindings, attached providers, or their policy layers";
inline constexpr const char* kActivation =
    "Effective configuration could not be activated; replace the policy or repair attached providers";
}  // namespace diagnostics

struct ConfigInputs {
  const records::SandboxRecord& record;
  const PolicyHistory& policies;
  const records::SettingsRecord* settings = nullptr;  ///< of the sandbox; null: none
  const GlobalView& global;
  const std::vector<providers::Provider>& attached;  ///< in the order of the record; a missing one leaves `provider_missing`
  bool provider_missing = false;
  std::string failure_mode = "fail_closed";
  bool extension_authentication = false;
};

/// The same sandbox with other revisions: what a change would make of it.
inline ConfigInputs with_policies(const ConfigInputs& in, const PolicyHistory& policies) {
  return {in.record, policies, in.settings, in.global, in.attached, in.provider_missing, in.failure_mode, in.extension_authentication};
}

/// The whole answer of GetSandboxConfig. A composition that does not hold is an answer that is not admitted, never an error.
openshell::sandbox::v1::GetSandboxConfigResponse compose_config(const ConfigInputs& in);

/// The endpoints that name a provider by `credential_binding`, by provider.
providers::PolicyBindings policy_bindings(const openshell::sandbox::v1::SandboxPolicy& policy);

/// What must hold between a policy and the attached providers: bindings name attached providers that have a profile, a global policy binds
/// none.
absl::Status check_bindings(const openshell::sandbox::v1::SandboxPolicy& policy, const std::vector<providers::Provider>& attached,
                            bool global);

/// The policy as it is enforced: with the rules that the profiles of attached providers add (a global policy gets none), and with every
/// endpoint marked at which a credential may be resolved.
openshell::sandbox::v1::SandboxPolicy compose_policy(openshell::sandbox::v1::SandboxPolicy policy,
                                                     const std::vector<providers::Provider>& attached, bool global);

/// The composed policy holds no fault and no two rules that disagree. For writes of operators.
absl::Status check_composition(const openshell::sandbox::v1::SandboxPolicy& policy, const std::vector<providers::Provider>& attached);

/// FAILED_PRECONDITION where credentials would pass endpoints whose requests nobody looks at, in the composed policy.
absl::Status check_uninspected(const openshell::sandbox::v1::SandboxPolicy& policy, const std::vector<providers::Provider>& attached);
/// The same for a policy that compose_policy() made already.
absl::Status check_composed_uninspected(const openshell::sandbox::v1::SandboxPolicy& composed,
                                        const std::vector<providers::Provider>& attached);

}  // namespace openshell::gateway
