#include "actors/sandbox/tree_control.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/sandbox/managed_process.hpp"

namespace openshell::sandbox {

TreeControl::behavior_type tree_control(TreeControl::stateful_pointer<TreeControlState> self, std::shared_ptr<isolation::ProcessTree> tree,
                                        Directory directory) {
  self->state.reporter = Reporter{directory, "tree_control", "tree_control", "sandbox"};
  self->state.tree = std::move(tree);
  const auto snapshot = [self] {
    ActorSnapshot s;
    s.summary = self->state.tree->frozen() ? "frozen" : "running";
    return s;
  };
  const auto text = [self, snapshot](const absl::Status& status) {
    self->state.reporter.note_handled();
    if (!status.ok()) self->state.reporter.note_failed(std::string(status.message()));
    self->state.reporter.touch(self, snapshot);
    return std::string(status.message());
  };
  TreeControl::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot()); },
      [=](freeze_atom) { return text(self->state.tree->freeze()); },
      [=](resume_atom) { return text(self->state.tree->resume()); },
      [=](stop_atom, std::uint32_t grace_secs) { return text(self->state.tree->terminate(std::chrono::seconds{grace_secs})); },
      [=](kill_atom, const ProcessRef& ref) { return text(self->state.tree->terminate(ref.process->job(), kExecGrace)); },
  };
  return self->state.reporter.watch(self, snapshot, std::move(handlers));
}

}  // namespace openshell::sandbox
