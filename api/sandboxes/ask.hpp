// From a gRPC thread to an actor and back, without blocking either.
#pragma once

#include <absl/status/status.h>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/logger.hpp>

#include <chrono>
#include <functional>
#include <utility>

#include "messages/gateway.hpp"

namespace openshell::api {

/// Spawning pins the system's logger to the calling thread, and the system's destructor waits until nobody holds it. Threads of gRPC and of
/// the store outlive the system: they let go at once.
struct UnpinLogger {
  ~UnpinLogger() { caf::logger::set_current_actor_system(nullptr); }
};

/// Sends `args` to `target`; `then` gets the answer on an actor's thread, or the error of an actor that is gone as an `Answer` made from a
/// status.
template <class Answer, class Target, class Then, class... Args>
void ask(caf::actor_system& system, const Target& target, Then then, Args... args) {
  const UnpinLogger unpin;
  system.spawn([target, then, args...](caf::event_based_actor* self) mutable {
    self->request(target, caf::infinite, std::move(args)...)
        .then([then](Answer& answer) mutable { then(std::move(answer)); },
              [then](const caf::error&) mutable { then(Answer{absl::UnavailableError("the gateway is shutting down")}); });
  });
}

/// Work whose time has come, on its way to the timer.
struct DueWork {
  std::function<void()> run;
};

/// Runs `work` after `delay`, by the clock of the actors. One actor of the system, its timer, receives every delayed message and lives as
/// long as the system: a message that held the last reference of an actor of its own would end that actor on the clock's thread at
/// shutdown, which waits for itself once 64 of them are pending.
void after(caf::actor_system& system, std::chrono::milliseconds delay, std::function<void()> work);

/// Ends the timer and waits for it, before the system goes: an actor that still lives in the system's registry can not be destroyed with
/// it. Work that is pending or comes later is dropped. Not from an actor.
void end_timer(caf::actor_system& system);

}  // namespace openshell::api

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::api::DueWork)
