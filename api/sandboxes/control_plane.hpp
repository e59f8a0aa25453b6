// The gateway's actors behind the frame's seam: what programs/gateway calls.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "api/control_plane.hpp"

namespace openshell::api {

/// Makes the actors; nothing runs and nothing is known before `start`. INVALID_ARGUMENT where an option that is needed is missing.
absl::StatusOr<std::unique_ptr<ControlPlane>> make_control_plane(ControlPlaneOptions options);

}  // namespace openshell::api
