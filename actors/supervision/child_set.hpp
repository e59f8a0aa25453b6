#pragma once

#include <caf/actor_cast.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "actors/supervision/restart_rule.hpp"

namespace openshell {

/// The children of a root actor: who they are, how each is started again, and what its death means. Lives in the root's state and runs on
/// the root only. The root keeps the handles in its own state and has `revive_atom` in its interface:
///
///   children.add(self, "status_outbox", RestartRule{OnDeath::restart}, [self] { return self->state.outbox = self->spawn(status_outbox,
///   ...); }); children.watch(self, [self](const std::string& name, OnDeath action) { ... end the process ... });
///   [=](revive_atom, const std::string& name) { self->state.children.revive(self, name); },
class ChildSet {
 public:
  using Start = std::function<caf::actor_addr()>;  // spawns, stores the handle, returns its address
  using Escalate = std::function<void(const std::string& name, OnDeath action, const caf::error& reason)>;

  template <class Self, class Spawn>
  void add(Self* self, std::string name, RestartRule rule, Spawn spawn) {
    auto start = [spawn]() mutable { return caf::actor_cast<caf::actor_addr>(spawn()); };
    auto [it, fresh] = children_.insert_or_assign(std::move(name), Child{std::move(rule), std::move(start), {}});
    launch(self, it->second);
  }

  /// Installs the down handler of the root. `revive` is the atom under which the root accepts (atom, name) from itself.
  template <class Revive, class Self>
  void watch(Self* self, Escalate escalate) {
    self->set_down_handler([this, self, escalate = std::move(escalate)](caf::down_msg& down) {
      for (auto& [name, child] : children_) {
        if (child.address != down.source) continue;
        child.address = nullptr;
        if (!down.reason || down.reason == caf::exit_reason::user_shutdown) return;  // ordered: not a death
        const auto verdict = child.rule.died(self->clock().now());
        if (verdict.action == OnDeath::restart) {
          self->delayed_send(self, verdict.after, Revive::value, name);
        } else {
          escalate(name, verdict.action, down.reason);
        }
        return;
      }
    });
  }

  template <class Self>
  void revive(Self* self, const std::string& name) {
    const auto it = children_.find(name);
    if (it != children_.end() && !it->second.address) launch(self, it->second);
  }

  [[nodiscard]] std::uint64_t restarts(const std::string& name) const {
    const auto it = children_.find(name);
    return it == children_.end() ? 0 : it->second.rule.restarts();
  }

  /// Orders every child to end; none is restarted by that.
  template <class Self>
  void shut_down(Self* self) {
    for (auto& [name, child] : children_) {
      if (auto alive = caf::actor_cast<caf::actor>(child.address)) self->send_exit(alive, caf::exit_reason::user_shutdown);
    }
  }

 private:
  struct Child {
    RestartRule rule;
    Start start;
    caf::actor_addr address;  // null while it is dead
  };

  template <class Self>
  void launch(Self* self, Child& child) {
    child.address = child.start();
    self->monitor(child.address);
  }

  std::map<std::string, Child> children_;
};

}  // namespace openshell
