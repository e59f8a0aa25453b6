// What the history must be, worked out from what was put into force and nothing else.
#pragma once

#include <absl/status/status.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "messages/supervisor.hpp"
#include "tests/model/explorer/stage.hpp"

namespace openshell::model {

using StatusIdentity = std::tuple<std::uint64_t, supervisor::PolicyOutcome, std::string>;

inline StatusIdentity identity_of(const supervisor::PolicyStatus& status) { return {status.revision.value, status.outcome, status.error}; }

inline std::string text_of(const StatusIdentity& status) {
  return std::string{std::get<1>(status) == supervisor::PolicyOutcome::loaded ? "LOADED" : "FAILED"} + "(" +
         std::to_string(std::get<0>(status)) + ")";
}

/// The statuses that have to reach the gateway, in the order of publication, over all processes; and those that did.
class ExpectedStatuses {
 public:
  // ---- of the process that runs now

  void started(const supervisor::ConfigSnapshot& running) {
    ++process_;
    failed_since_ = false;
    last_failure_.clear();
    last_loaded_ = 0;
    if (acknowledges(running)) expect({running.version.value, supervisor::PolicyOutcome::loaded, {}});
  }
  /// The journal could not be opened at the start: what older processes left may come late.
  void journal_closed() { late_ = static_cast<std::ptrdiff_t>(entries_.size()); }

  void loaded(const supervisor::ConfigSnapshot& snapshot, bool reloaded) {
    const bool recovered = std::exchange(failed_since_, false);
    last_failure_.clear();
    if (!acknowledges(snapshot)) return;
    const auto version = snapshot.version.value;
    if (version == last_loaded_ && !recovered) return;
    if (!reloaded && version <= last_loaded_) return;
    expect({version, supervisor::PolicyOutcome::loaded, {}});
  }
  void failed(const supervisor::ConfigSnapshot& snapshot, const std::string& error) {
    failed_since_ = true;
    const auto failure = std::to_string(snapshot.config_revision) + "/" + snapshot.policy_hash + "/" + error;
    if (failure == last_failure_) return;
    last_failure_ = failure;
    if (acknowledges(snapshot)) expect({snapshot.version.value, supervisor::PolicyOutcome::failed, error});
  }
  /// In the journal. Each publication once, unless the disk fails: then a write may be made again.
  std::optional<Violation> synced(const StatusIdentity& status, bool disk_faulty) {
    for (auto& entry : entries_) {
      if (entry.process == process_ && entry.status == status && !entry.synced) {
        entry.synced = true;
        return std::nullopt;
      }
    }
    if (disk_faulty) return std::nullopt;
    return Violation{"invented", text_of(status) + " is in the journal more often than it was published"};
  }
  [[nodiscard]] bool is_synced(const StatusIdentity& status) const {
    for (const auto& entry : entries_) {
      if (entry.status == status && entry.synced) return true;
    }
    return false;
  }
  /// It died: what was in its memory only is gone.
  void crashed() {
    for (auto& entry : entries_) {
      if (entry.process == process_ && !entry.synced && !entry.arrived) entry.lost = true;
    }
  }

  // ---- at the gateway

  std::optional<Violation> arrived(const StatusIdentity& status, bool changed) {
    const auto known = static_cast<std::size_t>(
        std::count_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.status == status; }));
    if (known == 0) return Violation{"invented", text_of(status) + " was acknowledged and never published"};
    if (changed && ++effects_[status] > known)
      return Violation{"twice", text_of(status) + " had its effect more often than it was published"};
    // The one that is still due; else one that was refused or lost, and was not after all.
    auto found = entries_.end();
    for (const auto& [lost, refused] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
      if (found != entries_.end()) break;
      found = std::find_if(entries_.begin(), entries_.end(), [&, lost = lost, refused = refused](const Entry& entry) {
        return entry.status == status && !entry.arrived && entry.lost == lost && entry.refused == refused;
      });
    }
    if (found == entries_.end()) return std::nullopt;
    if (std::get<0>(status) < highest_) {  // once more, from a slow network; or late, from a journal that could not be opened before
      found->arrived = true;
      return std::nullopt;
    }
    const auto older = std::find_if(entries_.begin(), found, [&](const Entry& entry) {
      return !entry.arrived && !entry.lost && !entry.refused && &entry - entries_.data() >= late_;
    });
    if (older != found) {
      if (std::get<0>(status) == highest_) return std::nullopt;  // the earlier one of the same version, once more
      return Violation{"overtaken", text_of(status) + " reached the gateway before " + text_of(older->status)};
    }
    found->arrived = true;
    highest_ = std::get<0>(status);
    return std::nullopt;
  }
  /// Told the supervisor for good. What died with an older process is not what was refused, unless nothing else is.
  void refused(const StatusIdentity& status) {
    for (const bool lost : {false, true}) {
      for (auto& entry : entries_) {
        if (entry.status != status || entry.arrived || entry.refused || entry.lost != lost) continue;
        entry.refused = true;
        return;
      }
    }
  }

  [[nodiscard]] std::optional<Violation> complete() const {
    for (const auto& entry : entries_) {
      if (!entry.arrived && !entry.lost && !entry.refused) return Violation{"lost", text_of(entry.status) + " never reached the gateway"};
    }
    return std::nullopt;
  }

 private:
  struct Entry {
    StatusIdentity status;
    int process = 0;
    bool synced = false, arrived = false, lost = false, refused = false;
  };

  static bool acknowledges(const supervisor::ConfigSnapshot& snapshot) {
    return snapshot.source == supervisor::PolicySource::sandbox && snapshot.version.value > 0;
  }
  void expect(StatusIdentity status) {
    if (std::get<1>(status) == supervisor::PolicyOutcome::loaded) last_loaded_ = std::get<0>(status);
    entries_.push_back({std::move(status), process_});
  }

  std::vector<Entry> entries_;
  std::map<StatusIdentity, std::size_t> effects_;
  std::ptrdiff_t late_ = 0;    // entries before this one may come late
  std::uint64_t highest_ = 0;  // version that arrived
  int process_ = 0;
  bool failed_since_ = false;
  std::string last_failure_;
  std::uint64_t last_loaded_ = 0;
};

/// One status is offered at a time, by each outbox; after a failure the same one, and no earlier than the back-off says. [ACT-31]
class ExpectedPace {
 public:
  std::optional<Violation> offered(caf::actor_id outbox, const StatusIdentity& status, Stage::Duration now, bool token_renewed) {
    if (outbox != outbox_) *this = ExpectedPace{};
    outbox_ = outbox;
    if (in_flight_) return Violation{"two in flight", text_of(status) + " was offered beside " + text_of(head_)};
    if (failures_ > 0 && status != head_)
      return Violation{"head left", text_of(status) + " was offered while " + text_of(head_) + " waits"};
    if (failures_ > 0 && now - failed_at_ < std::chrono::seconds{1 << std::min(failures_ - 1, 5)})
      return Violation{"hurried", text_of(status) + " was offered again before its back-off was over"};
    if (needs_token_ && !token_renewed) return Violation{"stale token", text_of(status) + " was offered again with the token of before"};
    head_ = status;
    in_flight_ = true;
    return std::nullopt;
  }
  void answered(caf::actor_id outbox, absl::StatusCode code, Stage::Duration now, bool retryable) {
    if (outbox != outbox_) return;
    in_flight_ = false;
    needs_token_ = code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kCancelled;
    failures_ = retryable ? failures_ + 1 : 0;
    failed_at_ = now;
  }

 private:
  caf::actor_id outbox_ = 0;
  StatusIdentity head_;
  bool in_flight_ = false;
  bool needs_token_ = false;
  int failures_ = 0;
  Stage::Duration failed_at_{0};
};

}  // namespace openshell::model
