#include "actors/outbox/status_journal.hpp"

#include <spdlog/spdlog.h>

namespace openshell::supervisor {

std::shared_ptr<StatusJournal> open_journal(JournalFiles& files, OutboxQueue::Limits limits) {
  auto journal = std::make_shared<StatusJournal>(limits, true);
  if (auto status = files.open(); !status.ok()) {
    spdlog::error("the status journal cannot be opened: {}", status.ToString());
    return journal;
  }
  const auto before = files.replayed();
  if (before.count > 0) spdlog::info("{} policy statuses of an earlier process are delivered first", before.count);
  journal->with([&](OutboxQueue& queue) { queue.adopt(before.first, before.last, before.count); });
  return journal;
}

}  // namespace openshell::supervisor
