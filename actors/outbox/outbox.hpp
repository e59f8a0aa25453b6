#pragma once

#include <caf/stateful_actor.hpp>

#include <memory>
#include <string>

#include "actors/introspection/reporter.hpp"
#include "actors/outbox/status_journal.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

struct StatusOutboxState {
  std::shared_ptr<StatusJournal> journal;
  Reporter reporter;
  std::uint64_t delivered = 0;
  std::uint64_t discarded = 0;
  inline static const char* name = "status_outbox";
};

/// True for what may succeed later: a transient failure, or a token that has to be renewed first. Everything else is the gateway's last
/// word.
[[nodiscard]] bool is_retryable(absl::StatusCode code);

/// The shell: turns messages into calls of the journal's queue and its answers into requests and timers. It decides nothing.
/// It takes the journal over as it is. Statuses are kept in memory only: a crash of this process loses what is undelivered, and the next
/// process acknowledges what it loads itself.
StatusOutbox::behavior_type status_outbox(StatusOutbox::stateful_pointer<StatusOutboxState> self, std::shared_ptr<StatusJournal> journal,
                                          GatewayClient gateway, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<openshell::supervisor::StatusJournal>)
