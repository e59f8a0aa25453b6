// Pages of lists that lie in memory. Pure but for the store's key, which signs the tokens.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "actors/gateway/policy_history.hpp"
#include "storage/store.hpp"

namespace openshell::gateway {

/// 0 -> 100, above 1,000 -> 1,000, negative -> INVALID_ARGUMENT.
absl::StatusOr<std::size_t> page_limit(std::int32_t page_size);

/// Newest first, without policies. `scope` is a sandbox id or the global one and is bound into the token.
absl::StatusOr<pb::ListSandboxPoliciesResponse> page_of(const PolicyHistory& policies, const pb::ListSandboxPoliciesRequest& request,
                                                        const storage::Store& store, const std::string& scope);

}  // namespace openshell::gateway
