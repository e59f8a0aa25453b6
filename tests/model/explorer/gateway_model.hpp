// The gateway as the supervisor's status path meets it: what it stores, what it refuses, and what each call changed. The revisions are the
// real PolicyHistory.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/gateway/policy_history.hpp"
#include "messages/supervisor.hpp"

namespace openshell::model {

class GatewayModel {
 public:
  /// As a poll would get it.
  supervisor::ConfigSnapshot config;
  std::uint64_t environment_revision = 1;
  std::string epoch = "e1";
  std::string session;  ///< empty: none

  GatewayModel() { write("h1"); }

  // ---- writes of users

  /// A new revision of the sandbox's own policy.
  void write(const std::string& hash) {
    const auto changed = history_.append("row", {}, hash, {}, 0);
    config.version = Revision{changed.back()};
    config.policy_hash = hash;
    config.source = supervisor::PolicySource::sandbox;
    config.admitted = true;
    revised();
  }
  void write_global(const std::string& hash) {
    config.version = Revision{++globals_};
    config.policy_hash = hash;
    config.source = supervisor::PolicySource::global;
    config.admitted = true;
    revised();
  }
  void delete_global() {
    const auto& newest = history_.newest()->value;
    config.version = Revision{newest.version()};
    config.policy_hash = newest.hash();
    config.source = supervisor::PolicySource::sandbox;
    config.admitted = true;
    revised();
  }
  void change_environment(bool new_epoch) {
    ++environment_revision;
    if (new_epoch) epoch = "e" + std::to_string(environment_revision);
    for (auto& [id, result] : results) result = supervisor_no_result;
    revised();
  }
  void revised() {
    ++config.config_revision;
    config.provider_env_revision = environment_revision;
    config.provider_attachment_epoch = epoch;
  }

  // ---- calls of the supervisor

  struct Effect {
    absl::Status answer;
    bool changed = false;
  };

  Effect report(const supervisor::PolicyStatus& status) {
    auto taken = history_.report(static_cast<std::uint32_t>(status.revision.value), status.outcome == supervisor::PolicyOutcome::loaded,
                                 status.error, current_, 0);
    if (!taken.ok()) return {taken.status(), false};
    if (taken->current != current_ && hash_of(taken->current) != hash_of(current_)) {
      for (auto& [id, result] : results) result = supervisor_no_result;
    }
    current_ = taken->current;
    return {absl::OkStatus(), taken->changed};
  }

  /// Only the session of now, only for what is acknowledged, each sequence once.
  absl::Status report(const supervisor::EndpointReport& report) {
    if (report.session_id != session || session.empty())
      return absl::PermissionDeniedError("tool server endpoint status requires the active supervisor session");
    const auto hash = config.source == supervisor::PolicySource::global ? config.policy_hash : hash_of(current_);
    if (report.policy_hash != hash || report.provider_env_revision != environment_revision)
      return absl::FailedPreconditionError("tool server endpoint status revisions do not match the current sandbox configuration");
    if (report.sequence < cursor_)
      return absl::FailedPreconditionError("tool server endpoint report sequence is older than the current session cursor");
    auto digest = digest_of(report);
    if (report.sequence == cursor_) {
      return digest == digest_ ? absl::OkStatus()
                               : absl::InvalidArgumentError("a tool server endpoint report sequence must reuse the identical request");
    }
    for (const auto& seen : report.observations) results[seen.endpoint_id] = seen.result;
    cursor_ = report.sequence;
    digest_ = std::move(digest);
    return absl::OkStatus();
  }

  /// Denials of one key are counted as the drafts count them: a window that begins where the last one began is that one again.
  void analyse(const supervisor::DenialBatch& batch) {
    for (const auto& summary : batch.summaries) {
      auto& count = counts[summary.first.host];
      const auto from = summary.first.at;
      const auto fresh = static_cast<std::int64_t>(summary.count) - (from == count.from ? count.hits : 0);
      if (fresh > 0) {
        count.total += fresh;
        count.hits = summary.count;
      }
      count.from = from;
    }
  }

  void begin_session(std::string id) {
    session = std::move(id);
    cursor_ = 0;
    digest_.clear();
    for (auto& [endpoint, result] : results) result = supervisor_no_result;
  }
  /// What a restart forgets.
  void restart() { session.clear(); }

  static constexpr int supervisor_no_result = 1;
  std::map<std::string, int> results;  ///< by endpoint
  struct Count {
    std::chrono::system_clock::time_point from{};
    std::int64_t hits = 0;
    std::int64_t total = 0;
  };
  std::map<std::string, Count> counts;

  [[nodiscard]] std::uint32_t current() const { return current_; }
  [[nodiscard]] const gateway::PolicyHistory& history() const { return history_; }
  [[nodiscard]] std::string hash_of(std::uint32_t version) const {
    const auto* row = version == 0 ? nullptr : history_.find(version);
    return row == nullptr ? std::string{} : row->value.hash();
  }
  static std::string digest_of(const supervisor::EndpointReport& report) {
    std::string out = report.session_id + "|" + std::to_string(report.sequence) + "|" + report.policy_hash + "|" +
                      std::to_string(report.provider_env_revision);
    for (const auto& seen : report.observations) out += "|" + seen.endpoint_id + "=" + std::to_string(seen.result);
    for (const auto& id : report.observed) out += "|" + id;
    return out;
  }

 private:
  gateway::PolicyHistory history_;
  std::uint32_t current_ = 0;
  std::uint64_t globals_ = 0;
  std::uint64_t cursor_ = 0;
  std::string digest_;
};

}  // namespace openshell::model
