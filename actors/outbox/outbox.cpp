#include "actors/outbox/outbox.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = StatusOutbox::stateful_pointer<StatusOutboxState>;

constexpr std::chrono::seconds kReportTimeout{15};  // above the RPC's own deadline

bool needs_new_token(absl::StatusCode code) { return code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kCancelled; }

ActorSnapshot snapshot(Self self) {
  auto& state = self->state;
  return state.journal->with([&](const OutboxQueue& queue) {
    ActorSnapshot out;
    out.waiting = queue.size();
    if (out.waiting > 0) {
      if (!state.head_since) state.head_since = self->clock().now();
      const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(self->clock().now() - *state.head_since);
      out.oldest_ms = static_cast<std::uint64_t>(age.count());
    }
    const bool memory = !queue.journaled() || queue.disk_fails();
    out.summary = std::to_string(queue.size()) + " statuses waiting, " + std::to_string(state.delivered) + " delivered, " +
                  std::to_string(state.discarded) + " refused, " + std::to_string(queue.dropped()) +
                  " dropped; journal: " + (memory ? "memory, " + std::to_string(queue.unjournaled()) + " unjournaled" : "disk");
    return out;
  });
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return snapshot(self); });
}

/// Success is told only now that the gateway has it. [ACK-27]
void tell(const PolicyStatus& status) {
  if (status.outcome == PolicyOutcome::failed) return;
  switch (status.why) {
    case Acknowledgement::initial:
      spdlog::info("Acknowledged initial policy revision as loaded [version:{}]", status.revision.value);
      break;
    case Acknowledgement::unchanged:
      spdlog::info("Acknowledged unchanged policy revision as loaded [version:{}]", status.revision.value);
      break;
    case Acknowledgement::reloaded:
      spdlog::info("Acknowledged policy revision as loaded [version:{}]", status.revision.value);
      break;
  }
}

template <class Step>
auto ask(Self self, Step step) {
  return self->state.journal->with(step);
}

void mark_done(Self self, std::uint64_t seq, bool delivered) {
  if (self->state.writer) self->send(self->state.writer, done_atom::value, seq, delivered);
}

void read(Self self, const GatewayClient& gateway);

/// The head was delivered or refused.
void settle(Self self, const GatewayClient& gateway, bool delivered) {
  self->state.head_since.reset();
  if (const auto seq = ask(self, [](OutboxQueue& queue) { return queue.settled(); })) mark_done(self, *seq, delivered);
  read(self, gateway);
}

void pump(Self self, const GatewayClient& gateway) {
  auto status = ask(self, [](OutboxQueue& queue) { return queue.offer(); });
  if (!status) return touch(self);
  self->request(gateway, kReportTimeout, reported_atom::value, *status)
      .then(
          [=] {
            ++self->state.delivered;
            self->state.reporter.note_handled();
            tell(*status);
            settle(self, gateway, true);
            pump(self, gateway);
          },
          [=](const caf::error& error) {
            const auto failure = to_status(error);
            self->state.reporter.note_failed(failure.ToString());
            if (is_retryable(failure.code())) {
              if (needs_new_token(failure.code())) {
                self->request(gateway, kReportTimeout, renew_atom::value).then([] {}, [](const caf::error&) {});  // in the same wait
              }
              self->delayed_send(self, ask(self, [](OutboxQueue& queue) { return queue.failed(); }), pump_atom::value);
              return touch(self);
            }
            spdlog::error("policy status of version {} was refused: {}", status->revision.value, failure.ToString());
            ++self->state.discarded;
            settle(self, gateway, false);
            pump(self, gateway);
          });
}

void disk_failed(Self self, const std::string& why) {
  self->state.reporter.note_failed(why);
  if (!std::exchange(self->state.failing, true)) spdlog::error("policy statuses are kept in memory, the journal fails: {}", why);
}

/// Appends what is not on disk yet. What is offered waits for this; whoever publishes does not.
void write(Self self, const GatewayClient& gateway) {
  auto& state = self->state;
  if (!state.writer || state.writing) return;
  auto batch = ask(self, [](OutboxQueue& queue) { return queue.take_unwritten(); });
  if (batch.empty() && !std::exchange(state.probe, false)) return;  // an empty one opens the journal and what it holds from before
  state.writing = true;
  const auto number = ++state.writes;
  self->delayed_send(self, kLateWrite, tick_atom::value, number);
  self->request(state.writer, caf::infinite, append_atom::value, StatusBatch{std::move(batch)})
      .then(
          [=](const JournalWritten& answer) {
            if (number != self->state.writes) return;  // of a writer that was given up
            self->state.writing = false;
            const auto early = ask(self, [&](OutboxQueue& queue) {
              queue.adopt(answer.replayed_first, answer.replayed_last, answer.replayed);
              return queue.written(answer.first);
            });
            for (const auto seq : early) mark_done(self, seq, true);
            if (std::exchange(self->state.failing, false)) spdlog::info("policy statuses are written to the journal again");
            write(self, gateway);
            read(self, gateway);
            pump(self, gateway);
          },
          [=](const caf::error& error) {
            if (number != self->state.writes) return;
            self->state.writing = false;
            ask(self, [](OutboxQueue& queue) { queue.not_written(); });
            disk_failed(self, to_status(error).ToString());
            self->delayed_send(self, kJournalRetry, tick_atom::value, std::uint64_t{0});
            pump(self, gateway);
          });
}

/// Fetches what is on disk only, ahead of its turn.
void read(Self self, const GatewayClient& gateway) {
  if (!self->state.writer) return;
  const auto from = ask(self, [](OutboxQueue& queue) { return queue.take_missing(); });
  if (!from) return;
  self->request(self->state.writer, caf::infinite, read_atom::value, *from)
      .then(
          [=](JournalRead& found) {
            ask(self, [&](OutboxQueue& queue) { queue.read_back(std::move(found.statuses)); });
            read(self, gateway);
            pump(self, gateway);
          },
          [=](const caf::error& error) {
            ask(self, [](OutboxQueue& queue) { queue.not_read(); });
            disk_failed(self, to_status(error).ToString());
            self->delayed_send(self, kJournalRetry, tick_atom::value, std::uint64_t{0});
          });
}

}  // namespace

bool is_retryable(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

StatusOutbox::behavior_type status_outbox(Self self, std::shared_ptr<StatusJournal> journal, GatewayClient gateway, Reporter reporter) {
  self->state.reporter = std::move(reporter);
  self->state.journal = std::move(journal);
  ask(self, [](OutboxQueue& queue) { queue.take_over(); });
  self->state.journal->on_push([actor = caf::actor_cast<StatusOutbox>(self)] { caf::anon_send(actor, wake_atom::value); });
  self->send(self, wake_atom::value);  // what it held before this actor was there
  touch(self);
  StatusOutbox::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self)); },
      [=](wake_atom) {
        write(self, gateway);
        pump(self, gateway);
      },
      [=](pump_atom) {
        ask(self, [](OutboxQueue& queue) { queue.resume(); });
        pump(self, gateway);
      },
      [=](install_atom, const JournalWriter& writer) {
        self->state.writer = writer;
        self->state.probe = true;
        self->state.writing = false;
        ++self->state.writes;
        ask(self, [](OutboxQueue& queue) { queue.disk_restarted(); });
        write(self, gateway);
        read(self, gateway);
      },
      [=](tick_atom, std::uint64_t number) {
        if (number == 0) {
          self->state.probe = self->state.failing;
          ask(self, [](OutboxQueue& queue) { queue.retry(); });
          write(self, gateway);
          read(self, gateway);
        } else if (number == self->state.writes && self->state.writing) {
          ask(self, [](OutboxQueue& queue) { queue.late(); });
          disk_failed(self, "a write takes longer than " + std::to_string(kLateWrite.count()) + " s");
        }
        pump(self, gateway);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self); }, std::move(handlers));
}

}  // namespace openshell::supervisor
