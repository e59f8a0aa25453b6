// The two files with which a driver starts a supervisor.
#pragma once

#include <absl/status/statusor.h>

#include "api/gateway_client/token_slots.hpp"
#include "isolation/boundary/launch_material.hpp"
#include "programs/supervisor/options.hpp"

namespace openshell::supervisor {

struct Launch {
  boundary::Descriptor descriptor;
  boundary::AuthBundle auth;
};

/// Read, checked against each other and against the sandbox that was asked for. INVALID_ARGUMENT and the errors of the files.
[[nodiscard]] absl::StatusOr<Launch> load_launch(const Options& options);
[[nodiscard]] api::TokenPair to_tokens(const boundary::AuthBundle& auth);

}  // namespace openshell::supervisor
