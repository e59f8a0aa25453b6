#pragma once

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/error.hpp>
#include <caf/exit_reason.hpp>

#include <functional>

namespace openshell::sandbox {

/// The restart rule of openshell-sandbox, one for all its actors: none is started again. Each holds what can not be learnt anew (the pinned
/// supervisor, the exec ids) or what the others wait for, so the death of any ends the process, and the kernel ends the workload with it.
/// `died` runs on the thread of the one that died; an ordered shutdown is no death.
template <class Actor>
Actor watched(Actor actor, std::function<void(const caf::error& reason)> died) {
  caf::actor_cast<caf::actor>(actor)->attach_functor([died = std::move(died)](const caf::error& reason) {
    if (reason && reason != caf::exit_reason::user_shutdown) died(reason);
  });
  return actor;
}

}  // namespace openshell::sandbox
