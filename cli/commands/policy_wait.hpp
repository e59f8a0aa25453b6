// Waiting for a supervisor to load a revision: what `policy set`, `policy update` and `rule approve` have in common.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/context.hpp"

namespace openshell::cli {

/// Says on stderr what became of `version`. 0: loaded or superseded; 124: not within `seconds`. ABORTED: it failed to load.
absl::StatusOr<int> await_loaded(Context& context, GatewayClient& client, const std::string& sandbox, std::uint32_t version, int seconds);

/// Sends the change for `sandbox`, says on stderr whether it made a revision, and waits for that one where `wait_seconds` is given.
absl::StatusOr<int> submit_policy(Context& context, GatewayClient& client, const std::string& sandbox, v1::UpdateConfigRequest request,
                                  std::optional<int> wait_seconds);

}  // namespace openshell::cli
