#include "actors/outbox/journal_writer.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = JournalWriter::stateful_pointer<JournalWriterState>;

ActorSnapshot snapshot(const JournalWriterState& state) {
  ActorSnapshot out;
  const auto waiting = state.files->waiting();
  out.waiting = waiting.count;
  out.summary = std::to_string(waiting.count) + " statuses on disk, " + std::to_string(state.files->files()) + " files, " +
                std::to_string(state.files->lost()) + " lost";
  return out;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

}  // namespace

JournalWriter::behavior_type journal_writer(Self self, std::shared_ptr<JournalFiles> files, Reporter reporter) {
  self->state.files = std::move(files);
  self->state.reporter = std::move(reporter);
  touch(self);
  JournalWriter::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](append_atom, const StatusBatch& batch) -> caf::result<JournalWritten> {
        auto& state = self->state;
        const auto first = state.files->append(batch.statuses);  // opens the journal where nobody could yet
        if (!first.ok()) state.reporter.note_failed(first.status().ToString());
        touch(self);
        if (!first.ok()) return to_error(first.status());
        const auto before = state.files->replayed();
        return JournalWritten{*first, before.count, before.first, before.last};
      },
      [=](read_atom, std::uint64_t from) -> caf::result<JournalRead> {
        auto statuses = self->state.files->read(from);
        if (!statuses.ok()) {
          self->state.reporter.note_failed(statuses.status().ToString());
          touch(self);
          return to_error(statuses.status());
        }
        return JournalRead{*std::move(statuses)};
      },
      [=](done_atom, std::uint64_t seq, bool delivered) {
        if (auto status = self->state.files->done(seq, delivered); !status.ok()) self->state.reporter.note_failed(status.ToString());
        touch(self);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
