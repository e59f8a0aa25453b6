// The canonical form of a policy: policies of equal meaning get equal bytes, whether they came as YAML or protobuf. Runs at every ingress,
// after the checks of validate.hpp; running it twice changes nothing. Pure, any thread.
#pragma once

#include <string>
#include <string_view>

#include "policy/diagnostic.hpp"
#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// The revision of MCP that an endpoint without `versions` speaks.
inline constexpr std::string_view kDefaultMcpVersion = "2025-11-25";
/// Bytes of a GraphQL, JSON-RPC or MCP body that are read where the policy says 0.
inline constexpr std::uint32_t kDefaultBodyLimit = 65'536;

/// What becomes of the three markers that only the gateway sets.
enum class Provenance {
  clear,  ///< Authored or sent by a client: advisor_proposed, provider_credentialed and token_grant_owner are cleared.
  keep    ///< An effective policy that a gateway composed and a supervisor received.
};

/// Brings `policy` to its canonical form. Returns warnings only (a `port` that was not the first of `ports`).
Diagnostics normalize(pb::SandboxPolicy& policy, Provenance provenance);

/// Collapses repeated `/`, drops `.` components and a trailing `/`; keeps `..` so that validation still sees it.
[[nodiscard]] std::string normalize_path(std::string_view path);

}  // namespace openshell::policy
