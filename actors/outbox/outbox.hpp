#pragma once

#include <caf/stateful_actor.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "actors/introspection/reporter.hpp"
#include "actors/outbox/status_journal.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// A write that takes longer is not waited for: its statuses are offered from memory.
inline constexpr std::chrono::seconds kLateWrite{5};
/// After a write or a read that failed.
inline constexpr std::chrono::seconds kJournalRetry{10};

struct StatusOutboxState {
  std::shared_ptr<StatusJournal> journal;
  Reporter reporter;
  JournalWriter writer;
  std::uint64_t writes = 0;                                         // the number of the newest write
  bool writing = false;                                             // its answer is awaited
  bool probe = false;                                               // the journal has to be opened, though nothing is to be written
  bool failing = false;                                             // told: the disk can not be written
  std::optional<std::chrono::steady_clock::time_point> head_since;  // the oldest status is the next one since
  std::uint64_t delivered = 0;
  std::uint64_t discarded = 0;
  inline static const char* name = "status_outbox";
};

/// True for what may succeed later: a transient failure, or a token that has to be renewed first. Everything else is the gateway's last
/// word.
[[nodiscard]] bool is_retryable(absl::StatusCode code);

/// The shell: turns messages into calls of the journal's queue and its answers into requests and timers. It decides nothing.
/// It takes the journal over as it is. Until the root gives it a JournalWriter nothing is written.
StatusOutbox::behavior_type status_outbox(StatusOutbox::stateful_pointer<StatusOutboxState> self, std::shared_ptr<StatusJournal> journal,
                                          GatewayClient gateway, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<openshell::supervisor::StatusJournal>)
