#include <caf/all.hpp>

#include <mutex>

#include "api/sandboxes/ask.hpp"

namespace openshell::api {
namespace {

constexpr auto kTimerName = caf::atom("due_work");

caf::actor timer_of(caf::actor_system& system) {
  static std::mutex making;  // two threads must not make two
  const std::lock_guard lock{making};
  if (auto known = caf::actor_cast<caf::actor>(system.registry().get(kTimerName))) return known;
  const UnpinLogger unpin;
  auto made = system.spawn<caf::hidden>([](caf::event_based_actor*) -> caf::behavior { return {[](DueWork& due) { due.run(); }}; });
  system.registry().put(kTimerName, made);
  return made;
}

}  // namespace

void after(caf::actor_system& system, std::chrono::milliseconds delay, std::function<void()> work) {
  caf::delayed_anon_send(timer_of(system), delay, DueWork{std::move(work)});
}

void end_timer(caf::actor_system& system) {
  // It stays in the registry, ended, so that nobody makes another one; what is sent to it from now on is dropped.
  const caf::actor timer = timer_of(system);
  const UnpinLogger unpin;
  caf::scoped_actor waiter{system};
  waiter->send_exit(timer, caf::exit_reason::user_shutdown);
  waiter->wait_for(timer);
}

}  // namespace openshell::api
