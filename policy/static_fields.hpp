// What an update may not change once a sandbox was activated: the kernel took these sections before the first process started. Pure, any
// thread.
#pragma once

#include <absl/status/status.h>

#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// INVALID_ARGUMENT naming the first section or path of `next` that may not differ from `live`. Paths may be added (they wait for the next
/// start), network sections may change in any way. Both policies in canonical form.
[[nodiscard]] absl::Status check_live_update(const pb::SandboxPolicy& live, const pb::SandboxPolicy& next);

}  // namespace openshell::policy
