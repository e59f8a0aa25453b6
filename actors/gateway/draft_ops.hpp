// What the handlers of proposals share. Not for others.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/drafts.hpp"
#include "actors/gateway/entity_ops.hpp"
#include "api/errors.hpp"

namespace openshell::gateway {

inline bool is(const records::DraftChunkRecord& draft, std::string_view status) { return draft.chunk().status() == status; }

/// What the proposal would make of the policy in force; call after with_providers.
Evaluation evaluated(Entity self, const records::DraftChunkRecord& draft);

/// What several steps of one request change, seen together before anything is written.
class DraftChanges {
 public:
  explicit DraftChanges(Entity self) : self_{self}, rows_{self->state.drafts} {}

  DraftRows& rows() { return rows_; }
  records::DraftChunkRecord& edit(const std::string& id) {
    changed_.insert(id);
    return rows_[id];
  }
  [[nodiscard]] bool empty() const { return changed_.empty(); }
  void into(Change& change) const {
    auto changed = changed_;
    for (auto& id : surplus_rejected(rows_)) {
      changed.erase(id);
      if (self_->state.drafts.contains(id)) change.erased_drafts.push_back(std::move(id));
    }
    for (const auto& id : changed) change.drafts.push_back(rows_.at(id));
  }

 private:
  Entity self_;
  DraftRows rows_;
  std::set<std::string> changed_;
};

/// Pending proposals that the policy in force allows already are closed: nobody needs to look at them.
void close_covered(Entity self, DraftChanges& drafts);
/// Closes and evaluates what waits, then runs `then` whatever came of it: an approval finds what was missed here.
void refresh_drafts(Entity self, std::function<void()> then);
/// Canonical policy against what runs; network rules change only, but the check is cheap and the promise is for ever.
absl::Status check_live(Entity self, const openshell::sandbox::v1::SandboxPolicy& policy);
/// The rule name to remember of an approval: none where nothing changed.
std::string applied_name(const openshell::sandbox::v1::SandboxPolicy& before, const policy::Candidate& candidate);

/// A policy and the decision that made it, in one commit; the proposals that wait are looked at again before the answer.
template <class Response>
void decide(Entity self, const openshell::sandbox::v1::SandboxPolicy& policy, std::vector<records::DraftChunkRecord> decided,
            std::string_view what, std::function<void(const StagedPolicy&)> done, Answer<Response> answer) {
  if (auto status = check_live(self, policy); !status.ok()) return answer(status);
  auto change = begin(self);
  const auto staged = stage_policy(self, change, policy, {});
  change.drafts = std::move(decided);
  commit(self, std::move(change), [=, name = std::string{what}](const absl::Status& status) {
    if (!status.ok()) return answer(api::from_storage(name, status));
    refresh_drafts(self, [=] { done(staged); });
  });
}

}  // namespace openshell::gateway
