// The operator interface's questions, passed to the actors that know.
#pragma once

#include <memory>

#include "api/operator/actor_source.hpp"
#include "api/sandboxes/plane.hpp"

namespace openshell::api {

std::shared_ptr<ActorSource> make_actor_source(PlanePtr plane);

}  // namespace openshell::api
