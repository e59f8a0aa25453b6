// What changes of providers and profiles would do to the sandboxes that use them. Asked inside the transaction that makes the change. Pure
// but for the transaction.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "storage/store.hpp"

namespace openshell::providers {
struct Profile;
}

namespace openshell::gateway {

/// FAILED_PRECONDITION `sandbox 'S': ...` where one of these sandboxes has an environment key from two of its providers. `now`: Unix
/// seconds.
absl::Status check_attached(storage::Transaction& tx, const std::string& workspace, const std::vector<std::string>& sandboxes,
                            std::int64_t now);

/// Field and message of everything that `candidate`, once stored, would break in a sandbox that has a provider of it attached. `operation`:
/// `import` or `update`.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> profile_impact(storage::Transaction& tx,
                                                                                const providers::Profile& candidate,
                                                                                const std::string& operation);

}  // namespace openshell::gateway
