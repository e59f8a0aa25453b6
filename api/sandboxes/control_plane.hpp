// The gateway's actors behind the frame's seam: what programs/gateway calls.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "api/control_plane.hpp"

namespace openshell::api {

/// Makes the actors; nothing runs and nothing is known before `start`. INVALID_ARGUMENT where an option that is needed is missing.
absl::StatusOr<std::unique_ptr<ControlPlane>> make_control_plane(ControlPlaneOptions options);

class ActorSource;  // api/operator/actor_source.hpp
/// What the operator interface may ask of a control plane that was made here. Answers stop with its end.
std::shared_ptr<ActorSource> actor_source_of(ControlPlane& made);

}  // namespace openshell::api
