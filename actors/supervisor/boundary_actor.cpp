#include "actors/supervisor/boundary_actor.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = Boundary::stateful_pointer<BoundaryState>;

const char* word(LinkState state) {
  switch (state) {
    case LinkState::connected:
      return "connected";
    case LinkState::recovering:
      return "recovering";
    case LinkState::lost:
      return "lost";
  }
  return "";
}

ActorSnapshot snapshot(const BoundaryState& state) {
  ActorSnapshot out;
  out.summary = std::string{word(state.link)} + ", environment revision " + std::to_string(state.installed_revision) + ", " +
                std::to_string(state.installs) + " installs";
  return out;
}

void run_on(const Boundary& actor, std::function<void()> work) {
  caf::anon_send(actor, run_atom::value, Completion{std::make_shared<std::function<void()>>(std::move(work))});
}

}  // namespace

Boundary::behavior_type boundary_actor(Self self, BoundaryOptions options, Reporter reporter) {
  self->state.reporter = std::move(reporter);
  const auto actor = [self] { return caf::actor_cast<Boundary>(self); };
  const auto touch = [self] { self->state.reporter.touch(self, [self] { return snapshot(self->state); }); };
  touch();
  Boundary::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](install_atom, const ProviderEnvironment& environment) {
        auto promise = self->make_response_promise<bool>();
        options.port->install(environment.revision, options.host->child_environment(),
                              [=, to = actor(), revision = environment.revision](absl::StatusOr<bool> applied) {
                                run_on(to, [=] {
                                  if (applied.ok() && *applied) {
                                    self->state.installed_revision = revision;
                                    ++self->state.installs;
                                  }
                                  deliver(promise, applied);
                                  touch();
                                });
                              });
        return promise;
      },
      [=](stop_atom) {
        auto promise = self->make_response_promise<void>();
        options.port->terminate([=, to = actor()](absl::Status status) { run_on(to, [=] { deliver(promise, status); }); });
        return promise;
      },
      [=](link_atom, LinkState state) {
        if (self->state.link == state) return;
        self->state.link = state;
        if (state == LinkState::connected) {
          spdlog::info("the sandbox connection is {}", word(state));
        } else {
          spdlog::warn("the sandbox connection is {}", word(state));
        }
        options.changed(state);
        touch();
      },
      [=](run_atom, const Completion& completion) { (*completion.run)(); },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
