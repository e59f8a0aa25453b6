#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// When to poll, and which nudges a poll answers. Pure; the caller has the clock.
///
/// A nudge that comes while a poll is in flight is answered by the poll after it, since the one in flight may have been answered before the
/// write. Any number of nudges makes one further poll.
class PollSchedule {
 public:
  using Duration = std::chrono::milliseconds;

  struct Limits {
    Duration interval{10'000};    ///< times 0.8..1.2
    Duration first_retry{1'000};  ///< of a failed poll that a nudge waits for; doubles up to the interval
  };

  PollSchedule() : PollSchedule{Limits{}} {}
  explicit PollSchedule(Limits limits) : limits_{limits} {}

  /// The gateway says that something changed. True: poll now.
  [[nodiscard]] bool nudged(std::string update_id);
  /// A session began. True: poll now.
  [[nodiscard]] bool session_began();
  /// Nudges of the session are forgotten.
  void session_ended();
  /// A timer ran out. True: poll now.
  [[nodiscard]] bool due() const { return !in_flight_; }

  void began() {
    in_flight_ = true;
    for (auto& id : std::exchange(waiting_, {})) answering_.push_back(std::move(id));
    again_ = false;
  }

  struct Next {
    std::vector<std::string> answered;  ///< nudges to answer APPLIED
    Duration wait{0};                   ///< until the next poll; 0: at once
  };
  /// `random` in 0..1.
  [[nodiscard]] Next handled(double random);
  [[nodiscard]] Duration failed(double random);

  [[nodiscard]] std::size_t nudges() const { return waiting_.size() + answering_.size(); }

 private:
  Duration jittered(double random) const;

  Limits limits_;
  std::vector<std::string> waiting_;    // for the next poll
  std::vector<std::string> answering_;  // by the poll in flight
  bool in_flight_ = false;
  bool again_ = false;
  unsigned failures_ = 0;
};

/// What the running configuration is, and what an answer of the gateway means against it. Pure. Identities are compared, never contents.
/// [ACK-11]
class SnapshotTracker {
 public:
  enum class Change : std::uint8_t {
    none,              ///< nothing new
    foreign_instance,  ///< the gateway knows another supervisor: register again
    not_admitted,      ///< the gateway itself refuses it: keep what runs, say nothing
    candidate,         ///< prepare and publish (or acknowledge only)
  };

  struct Verdict {
    Change change = Change::none;
    bool reload_policy = false;
    bool fetch_environment = false;
  };

  /// Seeds with what the start-up loaded and acknowledged. [ACK-16]
  SnapshotTracker(std::string own_instance_id, ConfigSnapshot running, std::uint64_t environment_revision, std::string environment_epoch);
  SnapshotTracker() = default;

  [[nodiscard]] Verdict judge(const ConfigSnapshot& polled) const;
  /// The candidate was published or rejected.
  void handled(const ConfigSnapshot& snapshot, const ProviderEnvironment& environment, bool reloaded, const PublishOutcome& outcome);
  /// A snapshot that leads to nothing (not admitted, nothing new) is remembered so that it is looked at once.
  void seen(const ConfigSnapshot& snapshot) { seen_ = snapshot; }

  [[nodiscard]] const ConfigSnapshot& last_seen() const { return seen_; }

 private:
  std::string own_instance_id_;
  ConfigSnapshot seen_;
  std::string running_hash_;  // empty: nothing valid runs (quarantine), so everything is loaded
  Revision running_version_;
  std::uint64_t environment_revision_ = 0;
  std::string environment_epoch_;
};

}  // namespace openshell::supervisor
