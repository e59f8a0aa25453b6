// What a sandbox's supervisor proposes: taken, counted, and, where the gateway is set so and the prover finds nothing, approved by itself.
#include <caf/all.hpp>

#include <algorithm>
#include <map>
#include <optional>

#include "actors/gateway/draft_ops.hpp"
#include "actors/gateway/settings.hpp"
#include "observability/log.hpp"
#include "observability/text.hpp"
#include "policy/matcher.hpp"
#include "policy/risk.hpp"

namespace openshell::gateway {
namespace {

using records::DraftChunkRecord;

// ---- submissions

/// One submission, chunk by chunk.
class Submission {
 public:
  Submission(Entity self, const pb::SubmitPolicyAnalysisRequest& request) : self_{self}, request_{request}, drafts_{self} {
    for (const auto& [id, draft] : self->state.drafts) version_ = std::max(version_, draft.draft_version() + 1);
    close_covered(self, drafts_);
    for (const auto& [id, draft] : drafts_.rows()) {
      pending_ += is(draft, draft_status::kPending) ? 1 : 0;
      if (!draft.dedup_key().empty()) by_key_[draft.dedup_key()] = id;
    }
  }

  void take_all() {
    for (const auto& proposed : request_.proposed_chunks()) {
      const auto id = take(proposed);
      if (!id.ok()) {
        response_.set_rejected_chunks(response_.rejected_chunks() + 1);
        response_.add_rejection_reasons(std::string{to_std(id.status().message())});
        continue;
      }
      response_.set_accepted_chunks(response_.accepted_chunks() + 1);
      response_.add_accepted_chunk_ids(*id);
    }
  }

  [[nodiscard]] const pb::SubmitPolicyAnalysisResponse& response() const { return response_; }
  [[nodiscard]] const DraftChanges& drafts() const { return drafts_; }

 private:
  absl::StatusOr<std::string> take(const pb::PolicyChunk& proposed) {
    auto& deps = *self_->state.deps;
    const auto& mode = request_.analysis_mode();
    auto draft = new_draft(proposed, mode, version_, deps.new_id(), deps.now());
    if (!draft.ok()) return draft.status();
    std::string id = draft->chunk().id();
    if (const auto known = by_key_.find(draft->dedup_key()); !draft->dedup_key().empty() && known != by_key_.end()) {
      id = known->second;  // seen again: counted, its rule never replaced
      count_again(drafts_.edit(id), *draft);
      if (is(drafts_.rows().at(id), draft_status::kPending)) look_at(id);
    } else {
      if (pending_ >= kMaxPendingDrafts) {
        return absl::ResourceExhaustedError(
            cat("chunk '", proposed.rule_name(), "': ", kMaxPendingDrafts, " proposals of this sandbox wait for a decision"));
      }
      const auto evaluation = evaluated(self_, *draft);
      if (mode != "mechanistic" && !evaluation.error.empty())
        return absl::InvalidArgumentError(cat("chunk '", proposed.rule_name(), "': ", evaluation.error));
      record_evaluation(*draft, evaluation);
      drafts_.edit(id) = *draft;
      if (!draft->dedup_key().empty()) by_key_[draft->dedup_key()] = id;
      ++pending_;
    }
    settle(id, mode == "mechanistic");
    return id;
  }

  void look_at(const std::string& id) { record_evaluation(drafts_.edit(id), evaluated(self_, drafts_.rows().at(id))); }

  /// Of one host, port and program one proposal waits: the newest.
  void settle(const std::string& id, bool mechanistic) {
    const auto key = draft_key(drafts_.rows().at(id).chunk());
    if (key.empty() || !is(drafts_.rows().at(id), draft_status::kPending)) return;
    const auto now = self_->state.deps->now();
    std::string approved;
    std::vector<std::string> older;
    for (const auto& [other, draft] : drafts_.rows()) {
      if (other == id || draft_key(draft.chunk()) != key) continue;
      if (is(draft, draft_status::kPending)) older.push_back(other);
      if (is(draft, draft_status::kApproved)) approved = other;
    }
    for (const auto& other : older) {
      reject(drafts_.edit(other), cat("superseded by chunk ", id), now);
      --pending_;
    }
    if (!mechanistic || approved.empty()) return;
    reject(drafts_.edit(id), cat("already covered by approved chunk ", approved, " (agent_authored or prior auto-approval)"), now);
    --pending_;
  }

  Entity self_;
  const pb::SubmitPolicyAnalysisRequest& request_;
  DraftChanges drafts_;
  pb::SubmitPolicyAnalysisResponse response_;
  std::map<std::string, std::string> by_key_;
  std::uint64_t version_ = 1;
  std::size_t pending_ = 0;
};

// ---- approving by itself

/// Where `proposal_approval_mode` says `auto`, and who says so. The gateway's value counts before the sandbox's.
std::optional<std::string_view> automatic_by(Entity self) {
  const auto settings = config_inputs(self);
  const auto all = effective_settings(settings.global.settings.get(), settings.settings);
  const auto found = all.find("proposal_approval_mode");
  if (found == all.end() || found->second.value().string_value() != "auto") return std::nullopt;
  return found->second.scope() == openshell::sandbox::v1::SETTING_SCOPE_GLOBAL ? "gateway" : "sandbox";
}

/// Nothing about it wants a person: proven, unchanged, without a note, and for no name of this host.
bool needs_nobody(const DraftChunkRecord& draft, const Evaluation& live) {
  const auto& rule = draft.chunk().proposed_rule();
  const bool alias = std::any_of(rule.endpoints().begin(), rule.endpoints().end(),
                                 [](const auto& endpoint) { return policy::is_host_alias(endpoint.host()); });
  return is(draft, draft_status::kPending) && live.error.empty() && live.token == draft.chunk().review_token() &&
         live.verdict == policy::kNoNewFindings && !alias && to_public(draft).security_notes().empty();
}

void approve_by_itself(Entity self, std::vector<std::string> ids, std::function<void()> then) {
  // Whoever wrote before this waited: the providers may have changed meanwhile.
  with_providers(self, [=, ids = std::move(ids)](const absl::Status& known) mutable {
    const auto by = automatic_by(self);
    if (!known.ok() || !by || has_global_policy(self)) return then();
    while (!ids.empty()) {
      const auto found = self->state.drafts.find(ids.back());
      ids.pop_back();
      if (found == self->state.drafts.end()) continue;
      auto draft = found->second;
      const auto live = evaluated(self, draft);
      if (!needs_nobody(draft, live)) continue;
      approve(draft, applied_name(base_policy(self), live.candidate), self->state.deps->now());
      const auto next = [=] { approve_by_itself(self, ids, then); };
      const auto id = draft.chunk().id();
      return decide<pb::ApproveDraftChunkResponse>(
          self, live.candidate.base, {std::move(draft)}, "approve draft by itself",
          [=, source = *by](const StagedPolicy& staged) {
            log::info("auto-approved: no new prover findings", {{"chunk", id},
                                                                {"sandbox", self->state.record.sandbox().metadata().id()},
                                                                {"resolved_from", std::string{source}},
                                                                {"prover_delta", "empty"},
                                                                {"policy_version", std::to_string(staged.version)},
                                                                {"policy_hash", staged.hash}});
            next();
          },
          [=](const absl::StatusOr<pb::ApproveDraftChunkResponse>& failed) {
            log::warning("a proposal could not be approved by itself",
                         {{"chunk", id}, {"why", std::string{to_std(failed.status().message())}}});
            next();
          });
    }
    then();
  });
}

}  // namespace

void submit_analysis(Entity self, const Ask<pb::SubmitPolicyAnalysisRequest>& ask, Answer<pb::SubmitPolicyAnalysisResponse> answer) {
  if (ask.request->proposed_chunks().empty()) return answer(pb::SubmitPolicyAnalysisResponse{});
  with_providers(self, [=, request = ask.request](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("submit policy analysis", known));
    Submission submission{self, *request};
    submission.take_all();
    if (submission.drafts().empty()) return answer(submission.response());
    auto change = begin(self);
    submission.drafts().into(change);
    commit(self, std::move(change), [=, response = submission.response()](const absl::Status& status) {
      if (!status.ok()) return answer(api::from_storage("submit policy analysis", status));
      const auto& ids = response.accepted_chunk_ids();
      approve_by_itself(self, {ids.rbegin(), ids.rend()}, [=] { answer(response); });
    });
  });
}

}  // namespace openshell::gateway
