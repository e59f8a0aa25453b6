// Recorded decisions under another policy: what would come out otherwise.
//
// Values of a record are hashed. A pattern without wildcards is compared with one by its hash, so it decides exactly. A wildcard can not
// be: where the answer hangs on one, the record is unresolved, which is neither changed nor unchanged. Found by two more matchers of the
// same policy, in one of which every wildcard favours the request and in the other none does: between their answers lies the true one.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policy/decision_record.hpp"

namespace openshell::policy {

/// One policy, ready to be asked. Immutable after prepare; any thread.
class Replay {
 public:
  /// `policy` is canonical and admitted.
  static absl::StatusOr<Replay> prepare(const pb::SandboxPolicy& policy, bool relaxed);

  /// nullopt: unresolved.
  [[nodiscard]] std::optional<Judgement> judge(const DecisionRecord& record) const;

 private:
  struct Loaded {
    std::shared_ptr<const Matcher> exact, favouring, refusing;
  };
  Loaded matchers_;
  bool relaxed_ = false;
  bool has_wildcards_ = false;
  std::map<std::string, std::string> values_;  // hashed form of every pattern without wildcards -> the pattern
};

/// Records that come out otherwise, equal ones folded.
struct ReplayChange {
  Decision from = Decision::deny, to = Decision::deny;
  std::size_t count = 0;
  std::string rule;  ///< that holds the new answer; empty: none
  Question question;
};

struct ReplayReport {
  std::size_t decisions = 0, changed = 0, unresolved = 0;
  std::vector<ReplayChange> changes;           ///< most frequent first, then by what is asked
  std::vector<std::string> unresolved_inputs;  ///< what they ask, each once, kMaxShownUnresolved at most
  std::vector<std::string> recorded_under;     ///< policy hashes, newest first, each once
};

inline constexpr std::size_t kMaxShownUnresolved = 20;

[[nodiscard]] ReplayReport replay(const Replay& candidate, const std::vector<DecisionRecord>& records);

}  // namespace openshell::policy
