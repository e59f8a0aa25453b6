#include "actors/supervisor/poll_schedule.hpp"

#include <algorithm>

namespace openshell::supervisor {

bool PollSchedule::nudged(std::string update_id) {
  waiting_.push_back(std::move(update_id));
  again_ = in_flight_;
  return !in_flight_;
}

bool PollSchedule::session_began() {
  again_ = in_flight_;
  return !in_flight_;
}

void PollSchedule::session_ended() {
  waiting_.clear();
  answering_.clear();
}

PollSchedule::Duration PollSchedule::jittered(double random) const {
  const double factor = 0.8 + 0.4 * std::clamp(random, 0.0, 1.0);
  return Duration{static_cast<Duration::rep>(static_cast<double>(limits_.interval.count()) * factor)};
}

PollSchedule::Next PollSchedule::handled(double random) {
  in_flight_ = false;
  failures_ = 0;
  Next next;
  next.answered = std::exchange(answering_, {});
  next.wait = again_ ? Duration{0} : jittered(random);
  return next;
}

PollSchedule::Duration PollSchedule::failed(double random) {
  in_flight_ = false;
  if (nudges() == 0 && !again_) {
    failures_ = 0;
    return jittered(random);
  }
  // What a failed poll was to answer waits for the next one, ahead of what came later.
  waiting_.insert(waiting_.begin(), answering_.begin(), answering_.end());
  answering_.clear();
  return std::min(limits_.first_retry * (1 << std::min(failures_++, 20U)), limits_.interval);
}

SnapshotTracker::SnapshotTracker(std::string own_instance_id, ConfigSnapshot running, std::uint64_t environment_revision,
                                 std::string environment_epoch)
    : own_instance_id_{std::move(own_instance_id)},
      seen_{running},
      running_hash_{running.policy_hash},
      running_version_{running.version},
      environment_revision_{environment_revision},
      environment_epoch_{std::move(environment_epoch)} {}

SnapshotTracker::Verdict SnapshotTracker::judge(const ConfigSnapshot& polled) const {
  if (!polled.instance_id.empty() && polled.instance_id != own_instance_id_) return {Change::foreign_instance, false, false};
  if (!polled.admitted)
    return {polled.config_revision == seen_.config_revision && !seen_.admitted ? Change::none : Change::not_admitted, false, false};
  const bool environment = polled.provider_env_revision != environment_revision_ || polled.provider_attachment_epoch != environment_epoch_;
  const bool same = polled.config_revision == seen_.config_revision && polled.policy_hash == seen_.policy_hash &&
                    polled.version == seen_.version && polled.source == seen_.source && polled.failure_mode == seen_.failure_mode &&
                    seen_.admitted;
  if (same && !environment) return {};
  const bool rejected_before =
      same && running_hash_ != polled.policy_hash;  // only the environment moved since the rejection: try again with it
  const bool reload = polled.policy_hash.empty() || polled.policy_hash != running_hash_ || rejected_before;
  return {Change::candidate, reload, environment};
}

void SnapshotTracker::handled(const ConfigSnapshot& snapshot, const ProviderEnvironment& environment, bool reloaded,
                              const PublishOutcome& outcome) {
  seen_ = snapshot;
  if (outcome.published) {
    running_hash_ = snapshot.policy_hash;
    running_version_ = snapshot.version;
  } else if (reloaded) {
    running_hash_.clear();  // the content that ran before must be loaded again when it comes back, under its old hash
  }
  if (outcome.environment_installed) {
    environment_revision_ = environment.revision;
    environment_epoch_ = environment.attachment_epoch;
  }
}

}  // namespace openshell::supervisor
