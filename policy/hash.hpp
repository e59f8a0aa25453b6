// The canonical hash of a policy and the fingerprint of a whole configuration. Two nodes and two languages must agree on every byte, so the
// form is our own and does not depend on how protobuf orders maps. Pure, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "messages/values.hpp"
#include "policy/proto_fwd.hpp"

namespace openshell::sandbox::v1 {
class SupervisorMiddlewareService;
}

namespace openshell::policy {

/// The bytes that are hashed. `policy` must be in canonical form (normalize.hpp); unknown protobuf fields are left out.
[[nodiscard]] std::string canonical_bytes(const pb::SandboxPolicy& policy);

/// SHA-256 of canonical_bytes, 64 lower-case hex digits. Compared for equality only.
[[nodiscard]] PolicyHash policy_hash(const pb::SandboxPolicy& policy);

/// What a config revision is made of. Pointers are borrowed for the call; null members are left out.
struct ConfigFingerprint {
  std::int32_t policy_source = 1;  ///< 1 sandbox, 2 global.
  std::string_view failure_mode;   ///< `fail_closed` or `retain_last_valid`.
  bool extension_authentication = false;
  PolicyHash hash;  ///< Empty: no policy.
  std::map<std::string, const pb::EffectiveSetting*> settings;
  std::vector<const pb::SupervisorMiddlewareService*> middleware_services;
};

/// `config_revision` of the configuration snapshot: an opaque fingerprint, equality only.
[[nodiscard]] std::uint64_t config_revision(const ConfigFingerprint& config);

}  // namespace openshell::policy
