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

}  // namespace openshell::api
