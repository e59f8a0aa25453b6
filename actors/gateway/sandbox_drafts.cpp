// Proposals of a sandbox: what people decide about them.
#include <absl/strings/ascii.h>
#include <caf/all.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

#include "actors/gateway/create_request.hpp"
#include "actors/gateway/draft_ops.hpp"
#include "observability/text.hpp"
#include "policy/merge.hpp"
#include "policy/static_fields.hpp"

namespace openshell::gateway {

using openshell::sandbox::v1::SandboxPolicy;
using records::DraftChunkRecord;

/// Of many that are approved at once: how many between two looks at the mailbox.
constexpr std::size_t kDraftsPerTurn = 16;

Evaluation evaluated(Entity self, const DraftChunkRecord& draft) {
  return evaluate(config_inputs(self), base_policy(self), *config(self), draft);
}

void close_covered(Entity self, DraftChanges& drafts) {
  const auto current = config(self);
  const auto now = self->state.deps->now();
  for (const auto& [id, draft] : self->state.drafts) {
    if (!is(draft, draft_status::kPending) || !policy::covers(current->policy(), draft.chunk().proposed_rule())) continue;
    reject(drafts.edit(id), cat("covered by active policy revision ", current->version()), now);
  }
}

namespace {

void evaluate_again(Entity self, DraftChanges& drafts) {
  std::size_t left = kMaxRefreshedDrafts;
  for (const auto* draft : newest_first(drafts.rows())) {
    if (left == 0) return;
    if (!is(*draft, draft_status::kPending)) continue;
    --left;
    const auto evaluation = evaluated(self, *draft);
    const bool same = evaluation.token == draft->chunk().review_token() && evaluation.verdict == draft->chunk().validation_result();
    if (!same) record_evaluation(drafts.edit(draft->chunk().id()), evaluation);
  }
}

}  // namespace

void refresh_drafts(Entity self, std::function<void()> then) {
  self->state.draft_refresh_due = false;
  with_providers(self, [=](const absl::Status& known) {
    if (!known.ok()) return then();
    DraftChanges drafts{self};
    close_covered(self, drafts);
    evaluate_again(self, drafts);
    if (drafts.empty()) return then();
    auto change = begin(self);
    drafts.into(change);
    commit(self, std::move(change), [then](const absl::Status&) { then(); });
  });
}

absl::Status check_live(Entity self, const SandboxPolicy& policy) {
  const auto& sandbox = self->state.record.sandbox();
  if (policy.ByteSizeLong() > kMaxPolicyBytes)
    return absl::FailedPreconditionError(cat("the policy would exceed ", kMaxPolicyBytes, " bytes"));
  if (!sandbox.spec().has_policy() || !sandbox.status().configuration_activated()) return absl::OkStatus();
  return policy::check_live_update(sandbox.spec().policy(), policy);
}

std::string applied_name(const SandboxPolicy& before, const policy::Candidate& candidate) {
  return policy::covers(before, candidate.rule) ? std::string{} : candidate.rule_name;
}

namespace {

/// What GetDraftPolicy attaches of whole policies at most, so that the answer stays below what clients take.
constexpr std::size_t kMaxAttachedBytes = 2U << 20;

constexpr const char* kGlobal =
    "cannot approve rules while a global policy is active; delete the global policy to manage per-sandbox rules";
constexpr const char* kStaleToken = "review token does not match the fetched proposal; refetch and review again";
constexpr const char* kInputsChanged = "proposal inputs changed; evaluation refreshed, refetch and review again";

absl::StatusOr<DraftChunkRecord> find_draft(Entity self, const std::string& id) {
  if (id.empty()) return api::invalid_field("chunk_id", "chunk_id is required");
  const auto found = self->state.drafts.find(id);
  if (found == self->state.drafts.end()) return absl::NotFoundError("chunk not found");
  return found->second;
}

absl::Status wrong_status(const DraftChunkRecord& draft, std::string_view expected) {
  return absl::FailedPreconditionError(cat("chunk status is '", draft.chunk().status(), "', expected ", expected));
}

/// Takes an approved proposal out of the policy again. The rule that it was put into stays for other programs.
absl::StatusOr<SandboxPolicy> without(Entity self, const DraftChunkRecord& draft) {
  auto policy = base_policy(self);
  if (draft.applied_rule_name().empty()) return policy;
  for (const auto& binary : draft.chunk().proposed_rule().binaries()) {
    auto removed = policy::remove_binary(policy, draft.applied_rule_name(), binary.path());
    if (!removed.ok()) return removed;
    policy = *std::move(removed);
  }
  return policy;
}

template <class Response>
void answer_with(Answer<Response> answer, const StagedPolicy& staged) {
  Response response;
  response.set_policy_version(staged.version);
  response.set_policy_hash(staged.hash);
  answer(std::move(response));
}

/// Which part of `request` may be approved as it stands. An error goes to the caller; `persist` says that the evaluation is to be kept.
absl::Status check_reviewed(const DraftChunkRecord& draft, const Evaluation& live, const std::string& supplied, bool& persist) {
  const auto& stored = draft.chunk().review_token();
  persist = false;
  if (!stored.empty() && supplied != stored) return absl::FailedPreconditionError(kStaleToken);
  persist = true;
  if (!live.error.empty()) return absl::FailedPreconditionError(cat("proposal is not applicable: ", live.error));
  if (!stored.empty() && live.token != stored) return absl::FailedPreconditionError(kInputsChanged);
  return absl::OkStatus();
}

/// Writes an evaluation that differs from the stored one, then gives the refusal that it caused.
template <class Response>
void refuse_and_keep(Entity self, DraftChunkRecord draft, const Evaluation& live, const absl::Status& why, Answer<Response> answer) {
  if (draft.chunk().review_token() == live.token) return answer(why);
  record_evaluation(draft, live);
  auto change = begin(self);
  change.drafts.push_back(std::move(draft));
  commit(self, std::move(change),
         [=](const absl::Status& status) { answer(status.ok() ? why : api::from_storage("approve draft", status)); });
}

// ---- approving many

/// The pending proposals that are asked for, with the token that was reviewed of each.
absl::StatusOr<std::vector<std::pair<DraftChunkRecord, std::string>>> selected(Entity self,
                                                                               const pb::ApproveAllDraftChunksRequest& request) {
  std::vector<std::pair<DraftChunkRecord, std::string>> out;
  const auto& drafts = self->state.drafts;
  const bool none = std::none_of(drafts.begin(), drafts.end(), [](const auto& row) { return is(row.second, draft_status::kPending); });
  if (none) return absl::FailedPreconditionError("no pending chunks to approve");
  for (const auto& approval : request.approvals()) {
    const auto found = drafts.find(approval.chunk_id());
    if (found == drafts.end() || !is(found->second, draft_status::kPending)) {
      return absl::FailedPreconditionError(cat("chunk '", approval.chunk_id(), "' is not pending; refetch before bulk approval"));
    }
    out.emplace_back(found->second, approval.review_token());
  }
  if (!request.approvals().empty()) return out;
  for (const auto* draft : newest_first(drafts)) {
    if (is(*draft, draft_status::kPending)) out.emplace_back(*draft, "");
  }
  std::reverse(out.begin(), out.end());  // oldest first: what was asked for first wins a conflict
  return out;
}

/// In turns, since each proposal costs a composition of the whole policy: other messages of the sandbox come between. The gate of writes is
/// held meanwhile; what may change all the same, providers and the global policy, begins it anew.
class BulkApproval : public std::enable_shared_from_this<BulkApproval> {
 public:
  BulkApproval(Entity self, std::shared_ptr<const pb::ApproveAllDraftChunksRequest> request,
               Answer<pb::ApproveAllDraftChunksResponse> answer)
      : self_{self}, request_{std::move(request)}, answer_{std::move(answer)} {}

  void start() {
    with_providers(self_, [me = shared_from_this()](const absl::Status& known) {
      if (!known.ok()) return me->answer_(api::from_storage("approve drafts", known));
      if (has_global_policy(me->self_)) return me->answer_(absl::FailedPreconditionError(kGlobal));
      me->inputs_ = me->inputs();
      me->chosen_ = selected(me->self_, *me->request_);
      if (!me->chosen_.ok()) return me->answer_(me->chosen_.status());
      me->next_ = 0;
      me->approved_.clear();
      me->policy_ = base_policy(me->self_);
      me->turn();
    });
  }

 private:
  using Inputs = std::tuple<std::uint64_t, std::shared_ptr<const records::SettingsRecord>, std::uint32_t>;
  Inputs inputs() const {
    const auto& s = self_->state;
    return {s.attached_epoch, s.global.settings, s.global.policy_version};
  }

  void turn() {
    if (self_->state.gone) return answer_(not_found());
    if (inputs() != inputs_) return start();
    for (std::size_t left = kDraftsPerTurn; left > 0 && next_ < chosen_->size(); --left) consider((*chosen_)[next_++]);
    if (next_ == chosen_->size()) return finish();
    caf::anon_send(SandboxEntity{self_}, Resume{[me = shared_from_this()] { me->turn(); }});
  }

  void consider(std::pair<DraftChunkRecord, std::string>& each) {
    auto& [draft, token] = each;
    bool persist = false;
    if (!request_->include_security_flagged() && !to_public(draft).security_notes().empty()) return;
    if (!check_reviewed(draft, evaluated(self_, draft), token, persist).ok()) return;
    // Once more on top of those before it: what does not fit beside them waits for a decision of its own.
    const auto together = evaluate(config_inputs(self_), policy_, *config(self_), draft);
    if (!together.error.empty()) return;
    approve(draft, applied_name(policy_, together.candidate), self_->state.deps->now());
    policy_ = together.candidate.base;
    approved_.push_back(draft);
  }

  void finish() {
    pb::ApproveAllDraftChunksResponse response;
    response.set_chunks_approved(static_cast<std::uint32_t>(approved_.size()));
    response.set_chunks_skipped(static_cast<std::uint32_t>(chosen_->size() - approved_.size()));
    decide<pb::ApproveAllDraftChunksResponse>(
        self_, policy_, std::move(approved_), "approve drafts",
        [answer = answer_, response](const StagedPolicy& staged) mutable {
          response.set_policy_version(staged.version);
          response.set_policy_hash(staged.hash);
          answer(std::move(response));
        },
        answer_);
  }

  Entity self_;
  std::shared_ptr<const pb::ApproveAllDraftChunksRequest> request_;
  Answer<pb::ApproveAllDraftChunksResponse> answer_;
  Inputs inputs_;  // when it began
  absl::StatusOr<std::vector<std::pair<DraftChunkRecord, std::string>>> chosen_;
  std::size_t next_ = 0;
  std::vector<DraftChunkRecord> approved_;
  SandboxPolicy policy_;  // with those that were approved so far
};

}  // namespace

void refresh_drafts_later(Entity self) {
  auto& s = self->state;
  const bool waiting =
      std::any_of(s.drafts.begin(), s.drafts.end(), [](const auto& row) { return is(row.second, draft_status::kPending); });
  if (s.draft_refresh_due || !waiting) return;
  s.draft_refresh_due = true;
  quietly(self, [self](auto leave) { self->state.draft_refresh_due ? refresh_drafts(self, leave) : leave(); });
}

void get_drafts(Entity self, const Ask<pb::GetDraftPolicyRequest>& ask, Answer<pb::GetDraftPolicyResponse> answer) {
  with_providers(self, [=, request = ask.request](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("get draft policy", known));
    pb::GetDraftPolicyResponse response;
    std::size_t attached = 0;
    std::size_t composed = 0;
    for (const auto* draft : newest_first(self->state.drafts)) {
      response.set_draft_version(std::max(response.draft_version(), draft->draft_version()));
      if (!response.has_last_analyzed_time()) *response.mutable_last_analyzed_time() = draft->chunk().created_time();
      if (!request->status_filter().empty() && !is(*draft, request->status_filter())) continue;
      auto& chunk = *response.add_chunks();
      chunk = to_public(*draft);
      if (!is(*draft, draft_status::kPending) || !draft->chunk().application_error().empty() || ++composed > kMaxRefreshedDrafts) continue;
      auto live = evaluated(self, *draft);
      attached += live.current.ByteSizeLong() + live.effective.ByteSizeLong();
      if (live.token != draft->chunk().review_token() || attached > kMaxAttachedBytes) continue;
      *chunk.mutable_current_effective_policy() = std::move(live.current);
      *chunk.mutable_candidate_effective_policy() = std::move(live.effective);
    }
    answer(std::move(response));
  });
}

void draft_history(Entity self, const Ask<pb::GetDraftHistoryRequest>&, Answer<pb::GetDraftHistoryResponse> answer) {
  answer(history_of(self->state.drafts));
}

void approve_draft(Entity self, const Ask<pb::ApproveDraftChunkRequest>& ask, Answer<pb::ApproveDraftChunkResponse> answer) {
  with_providers(self, [=, request = ask.request](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("approve draft", known));
    auto draft = find_draft(self, request->chunk_id());
    if (!draft.ok()) return answer(draft.status());
    if (has_global_policy(self)) return answer(absl::FailedPreconditionError(kGlobal));
    if (is(*draft, draft_status::kApproved)) return answer(wrong_status(*draft, "'pending' or 'rejected'"));
    const auto live = evaluated(self, *draft);
    bool persist = false;
    if (auto status = check_reviewed(*draft, live, request->review_token(), persist); !status.ok()) {
      return persist ? refuse_and_keep(self, *std::move(draft), live, status, answer) : answer(status);
    }
    record_evaluation(*draft, live);
    approve(*draft, applied_name(base_policy(self), live.candidate), self->state.deps->now());
    decide<pb::ApproveDraftChunkResponse>(
        self, live.candidate.base, {*draft}, "approve draft", [=](const StagedPolicy& staged) { answer_with(answer, staged); }, answer);
  });
}

void approve_drafts(Entity self, const Ask<pb::ApproveAllDraftChunksRequest>& ask, Answer<pb::ApproveAllDraftChunksResponse> answer) {
  std::make_shared<BulkApproval>(self, ask.request, std::move(answer))->start();
}

void reject_draft(Entity self, const Ask<pb::RejectDraftChunkRequest>& ask, Answer<pb::RejectDraftChunkResponse> answer) {
  with_providers(self, [=, request = ask.request](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("reject draft", known));
    auto draft = find_draft(self, request->chunk_id());
    if (!draft.ok()) return answer(draft.status());
    const bool approved = is(*draft, draft_status::kApproved);
    if (!approved && !is(*draft, draft_status::kPending)) return answer(wrong_status(*draft, "'pending' or 'approved'"));
    const auto reason = std::string{absl::StripAsciiWhitespace(request->reason())};
    if (reason.size() > kMaxMapValue) return answer(api::invalid_field("reason", cat("reason exceeds ", kMaxMapValue, " bytes")));
    const auto now = self->state.deps->now();
    if (!approved) {
      reject(*draft, reason, now);
      auto change = begin(self);
      change.drafts.push_back(*std::move(draft));
      return commit(self, std::move(change), [=](const absl::Status& status) {
        status.ok() ? answer(pb::RejectDraftChunkResponse{}) : answer(api::from_storage("reject draft", status));
      });
    }
    if (has_global_policy(self)) return answer(absl::FailedPreconditionError(kGlobal));
    auto policy = without(self, *draft);
    if (!policy.ok()) return answer(policy.status());
    reject(*draft, reason, now);
    decide<pb::RejectDraftChunkResponse>(
        self, *policy, {*draft}, "reject draft", [=](const StagedPolicy&) { answer(pb::RejectDraftChunkResponse{}); }, answer);
  });
}

void edit_draft(Entity self, const Ask<pb::EditDraftChunkRequest>& ask, Answer<pb::EditDraftChunkResponse> answer) {
  with_providers(self, [=, request = ask.request](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("edit draft", known));
    auto draft = find_draft(self, request->chunk_id());
    if (!draft.ok()) return answer(draft.status());
    if (!request->has_proposed_rule()) return answer(api::invalid_field("proposed_rule", "proposed_rule is required"));
    if (!is(*draft, draft_status::kPending)) return answer(wrong_status(*draft, "'pending'"));
    auto& rule = *draft->mutable_chunk()->mutable_proposed_rule();
    rule = request->proposed_rule();
    own_proposal(rule);
    draft->set_edited(true);
    record_evaluation(*draft, evaluated(self, *draft));
    auto change = begin(self);
    change.drafts.push_back(*std::move(draft));
    commit(self, std::move(change), [=](const absl::Status& status) {
      status.ok() ? answer(pb::EditDraftChunkResponse{}) : answer(api::from_storage("edit draft", status));
    });
  });
}

void undo_draft(Entity self, const Ask<pb::UndoDraftChunkRequest>& ask, Answer<pb::UndoDraftChunkResponse> answer) {
  with_providers(self, [=, request = ask.request](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("undo draft", known));
    auto draft = find_draft(self, request->chunk_id());
    if (!draft.ok()) return answer(draft.status());
    if (!is(*draft, draft_status::kApproved)) return answer(wrong_status(*draft, "'approved'"));
    if (has_global_policy(self)) return answer(absl::FailedPreconditionError(kGlobal));
    auto policy = without(self, *draft);
    if (!policy.ok()) return answer(policy.status());
    reopen(*draft);
    decide<pb::UndoDraftChunkResponse>(
        self, *policy, {*draft}, "undo draft", [=](const StagedPolicy& staged) { answer_with(answer, staged); }, answer);
  });
}

void clear_drafts(Entity self, const Ask<pb::ClearDraftChunksRequest>&, Answer<pb::ClearDraftChunksResponse> answer) {
  auto change = begin(self);
  for (const auto& [id, draft] : self->state.drafts) {
    if (is(draft, draft_status::kPending)) change.erased_drafts.push_back(id);
  }
  pb::ClearDraftChunksResponse response;
  response.set_chunks_cleared(static_cast<std::uint32_t>(change.erased_drafts.size()));
  if (change.erased_drafts.empty()) return answer(std::move(response));
  commit(self, std::move(change),
         [=](const absl::Status& status) { status.ok() ? answer(response) : answer(api::from_storage("clear drafts", status)); });
}

}  // namespace openshell::gateway
