#include "actors/outbox/outbox.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = StatusOutbox::stateful_pointer<StatusOutboxState>;

constexpr std::chrono::seconds kReportTimeout{15};  // above the RPC's own deadline

bool needs_new_token(absl::StatusCode code) { return code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kCancelled; }

ActorSnapshot snapshot(const StatusOutboxState& state) {
  ActorSnapshot out;
  out.waiting = state.journal->size();
  out.summary = std::to_string(state.journal->size()) + " statuses waiting, " + std::to_string(state.delivered) + " delivered, " +
                std::to_string(state.discarded) + " refused, " + std::to_string(state.journal->dropped()) + " dropped; journal: memory";
  return out;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
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

void pump(Self self, const GatewayClient& gateway) {
  auto status = self->state.journal->offer();
  if (!status) return touch(self);
  self->request(gateway, kReportTimeout, reported_atom::value, *status)
      .then(
          [=] {
            self->state.journal->settled();
            ++self->state.delivered;
            self->state.reporter.note_handled();
            tell(*status);
            pump(self, gateway);
          },
          [=](const caf::error& error) {
            const auto failure = to_status(error);
            self->state.reporter.note_failed(failure.ToString());
            if (is_retryable(failure.code())) {
              if (needs_new_token(failure.code())) {
                self->request(gateway, kReportTimeout, renew_atom::value).then([] {}, [](const caf::error&) {});  // in the same wait
              }
              self->delayed_send(self, self->state.journal->failed(), pump_atom::value);
              return touch(self);
            }
            spdlog::error("policy status of version {} was refused: {}", status->revision.value, failure.ToString());
            self->state.journal->settled();
            ++self->state.discarded;
            pump(self, gateway);
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
  self->state.journal->take_over();
  self->state.journal->on_push([actor = caf::actor_cast<StatusOutbox>(self)] { caf::anon_send(actor, wake_atom::value); });
  self->send(self, wake_atom::value);  // what it held before this actor was there
  touch(self);
  return {
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](wake_atom) { pump(self, gateway); },
      [=](pump_atom) {
        self->state.journal->resume();
        pump(self, gateway);
      },
  };
}

}  // namespace openshell::supervisor
