// Proposals from submission to decision, in the whole tree.
#include "actors/gateway/drafts.hpp"
#include "tests/model/gateway/gateway_fixture.hpp"

namespace openshell::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string text(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

class Drafts : public Gateway {
 protected:
  void SetUp() override {
    Gateway::SetUp();
    ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = policy(443); }).ok());
    link = make_ready("box", one);
    ASSERT_TRUE(loaded("box", 1).ok());
  }

  static pb::PolicyChunk chunk(const std::string& host, std::uint32_t port, const std::string& binary, int hits = 1) {
    pb::PolicyChunk out;
    out.set_rule_name("allow_" + std::to_string(port));
    out.set_binary(binary);
    out.set_stage("transparent_tcp_connect");
    out.set_confidence(0.65F);
    out.set_hit_count(hits);
    auto& endpoint = *out.mutable_proposed_rule()->add_endpoints();
    endpoint.set_host(host);
    endpoint.set_port(port);
    endpoint.add_ports(port);
    out.mutable_proposed_rule()->add_binaries()->set_path(binary);
    return out;
  }
  absl::StatusOr<pb::SubmitPolicyAnalysisResponse> submit(const std::vector<pb::PolicyChunk>& chunks,
                                                          const std::string& mode = "mechanistic") {
    pb::SubmitPolicyAnalysisRequest request;
    request.set_analysis_mode(mode);
    for (const auto& proposed : chunks) *request.add_proposed_chunks() = proposed;
    now += 10;  // proposals of one test are told apart by their time
    return call<pb::SubmitPolicyAnalysisResponse>(entity("box"), request);
  }
  std::string submit_one(const pb::PolicyChunk& proposed, const std::string& mode = "mechanistic") {
    auto answer = submit({proposed}, mode);
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->accepted_chunk_ids_size(), 1) << answer->DebugString();
    return answer->accepted_chunk_ids_size() == 1 ? answer->accepted_chunk_ids(0) : std::string{};
  }
  std::vector<pb::PolicyChunk> drafts(const std::string& status = "") {
    pb::GetDraftPolicyRequest request;
    request.set_status_filter(status);
    auto answer = call<pb::GetDraftPolicyResponse>(entity("box"), request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return {answer->chunks().begin(), answer->chunks().end()};
  }
  pb::PolicyChunk draft(const std::string& id) {
    for (const auto& each : drafts()) {
      if (each.id() == id) return each;
    }
    ADD_FAILURE() << "no chunk " << id;
    return {};
  }
  absl::StatusOr<pb::ApproveDraftChunkResponse> approve(const std::string& id, std::optional<std::string> token = {}) {
    pb::ApproveDraftChunkRequest request;
    request.set_chunk_id(id);
    request.set_review_token(token ? *token : draft(id).review_token());
    return call<pb::ApproveDraftChunkResponse>(entity("box"), request);
  }
  template <class Request, class Response>
  absl::StatusOr<Response> decide(const std::string& id) {
    Request request;
    request.set_chunk_id(id);
    return call<Response>(entity("box"), request);
  }
  auto undo(const std::string& id) { return decide<pb::UndoDraftChunkRequest, pb::UndoDraftChunkResponse>(id); }
  auto reject(const std::string& id) { return decide<pb::RejectDraftChunkRequest, pb::RejectDraftChunkResponse>(id); }
  void approve_by_themselves() {
    pb::UpdateConfigRequest setting;
    setting.set_setting_key("proposal_approval_mode");
    setting.mutable_setting_value()->set_string_value("auto");
    ASSERT_TRUE(call<pb::UpdateConfigResponse>(entity("box"), setting).ok());
  }
  const auto& rules() { return (kept = config("box")).policy().network_policies(); }

  std::shared_ptr<FakeLink> link;
  sb::GetSandboxConfigResponse kept;
};

TEST_F(Drafts, PP_07_AProposalIsStoredPendingProvenAndCounted) {
  auto first = chunk("New.Example.com", 443, "/usr/bin/git", 3);
  first.add_denial_summary_ids(one);
  first.add_denial_summary_ids("not-an-id");
  auto answer = submit({first, pb::PolicyChunk{}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->accepted_chunks(), 1U);
  EXPECT_THAT(answer->rejection_reasons(), ElementsAre("chunk missing rule_name"));
  const auto id = answer->accepted_chunk_ids(0);
  EXPECT_EQ(submit_one(chunk("new.example.com", 443, "/usr/bin/git", 2)), id) << "seen again: the same proposal";
  const auto stored = draft(id);
  EXPECT_EQ(stored.status(), "pending");
  EXPECT_EQ(stored.validation_result(), "prover: no new findings");
  EXPECT_EQ(stored.application_error(), "");
  EXPECT_EQ(stored.hit_count(), 5);
  EXPECT_THAT(stored.denial_summary_ids(), ElementsAre(one));
  EXPECT_EQ(stored.review_token().size(), 64U);
  EXPECT_TRUE(stored.candidate_effective_policy().network_policies().contains("allow_443"));
  EXPECT_FALSE(stored.current_effective_policy().network_policies().contains("allow_443"));
  restart();
  EXPECT_EQ(draft(id).review_token(), stored.review_token()) << "durable, and evaluated against the same";
}

TEST_F(Drafts, PP_06_ARepeatedSubmissionIsNotCountedTwice) {
  auto batch = chunk("new.example.com", 443, "/usr/bin/git", 3);
  set_millis(batch.mutable_first_seen_time(), now);
  set_millis(batch.mutable_last_seen_time(), now + 5);
  const auto id = submit_one(batch);
  submit_one(batch);  // its answer was lost
  EXPECT_EQ(draft(id).hit_count(), 3);
  batch.set_hit_count(5);  // once more, with two newer ones folded in
  set_millis(batch.mutable_last_seen_time(), now + 9);
  submit_one(batch);
  EXPECT_EQ(draft(id).hit_count(), 5);
  auto next = chunk("new.example.com", 443, "/usr/bin/git", 1);
  set_millis(next.mutable_first_seen_time(), now + 100);
  submit_one(next);
  EXPECT_EQ(draft(id).hit_count(), 6);
}

TEST_F(Drafts, PP_07_ApprovalIsARevisionANudgeAndMarkedAsProposed) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  const auto nudges = link->nudges().size();
  auto answer = approve(id);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->policy_version(), 2U);
  EXPECT_EQ(link->nudges().size(), nudges + 1);
  const auto& rule = rules().at("allow_9091");
  EXPECT_EQ(rule.binaries(0).path(), "/usr/bin/git");
  EXPECT_TRUE(rule.endpoints(0).advisor_proposed()) << "never trusted as a host that a person wrote down";
  EXPECT_EQ(rules().at("web").binaries_size(), 1) << "B04: nobody else got anything";
  EXPECT_EQ(draft(id).status(), "approved");
  EXPECT_TRUE(draft(id).has_decided_time());
  EXPECT_EQ(text(approve(id).status()), "chunk status is 'approved', expected 'pending' or 'rejected'");
  restart();
  EXPECT_EQ(draft(id).status(), "approved");
  EXPECT_EQ(config("box").version(), 2U);
}

TEST_F(Drafts, UndoAndRejectTakeTheRuleOutAgain) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  EXPECT_EQ(text(undo(id).status()), "chunk status is 'pending', expected 'approved'");
  ASSERT_TRUE(approve(id).ok());
  auto undone = undo(id);
  ASSERT_TRUE(undone.ok()) << undone.status();
  EXPECT_EQ(undone->policy_version(), 3U);
  EXPECT_FALSE(rules().contains("allow_9091"));
  EXPECT_EQ(draft(id).status(), "pending");
  EXPECT_FALSE(draft(id).has_decided_time());
  ASSERT_TRUE(approve(id).ok());
  ASSERT_TRUE(reject(id).ok());
  EXPECT_FALSE(rules().contains("allow_9091"));
  EXPECT_EQ(draft(id).status(), "rejected");
  EXPECT_EQ(text(reject(id).status()), "chunk status is 'rejected', expected 'pending' or 'approved'");
  ASSERT_TRUE(approve(id).ok()) << "a person may change his mind";
  EXPECT_TRUE(rules().contains("allow_9091"));
}

TEST_F(Drafts, ATokenOfSomethingElseApprovesNothing) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  for (const std::string token : {"", "0000"}) {
    EXPECT_EQ(text(approve(id, token).status()), "review token does not match the fetched proposal; refetch and review again");
  }
  const auto before = draft(id).review_token();
  auto other = policy(443);
  (*other.mutable_network_policies())["more"] = other.network_policies().at("web");
  (*other.mutable_network_policies())["more"].mutable_endpoints(0)->set_host("more.example.com");
  (*other.mutable_network_policies())["more"].set_name("more");
  ASSERT_TRUE(set_policy("box", other).ok());
  EXPECT_NE(draft(id).review_token(), before) << "refreshed after the change, before anybody asks";
  EXPECT_EQ(text(approve(id, before).status()), "review token does not match the fetched proposal; refetch and review again");
  EXPECT_FALSE(rules().contains("allow_9091"));
  EXPECT_TRUE(approve(id).ok());
}

TEST_F(Drafts, WhatThePolicyCoversIsClosed) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  auto other = policy(443);
  auto& rule = (*other.mutable_network_policies())["mine"];
  rule.set_name("mine");
  *rule.add_endpoints() = chunk("new.example.com", 9091, "/usr/bin/git").proposed_rule().endpoints(0);
  rule.add_binaries()->set_path("/usr/bin/git");
  ASSERT_TRUE(set_policy("box", other).ok());
  EXPECT_EQ(draft(id).status(), "rejected");
  EXPECT_EQ(draft(id).rejection_reason(), "covered by active policy revision 2");
  // An approval of what is there already changes nothing, and its undo takes nothing away.
  EXPECT_EQ(text(approve(id).status()), "proposal inputs changed; evaluation refreshed, refetch and review again");
  ASSERT_TRUE(approve(id).ok());
  EXPECT_EQ(config("box").version(), 2U);
  ASSERT_TRUE(undo(id).ok());
  EXPECT_TRUE(rules().contains("mine"));
}

TEST_F(Drafts, PP_07_AutomaticApprovalTakesWhatIsProvenAndWithoutNote) {
  const auto by_hand = submit_one(chunk("first.example.com", 9091, "/usr/bin/git"));
  EXPECT_EQ(draft(by_hand).status(), "pending") << "manual, where nobody says otherwise";
  approve_by_themselves();
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  EXPECT_EQ(draft(id).status(), "approved");
  EXPECT_TRUE(rules().contains("allow_9091"));
  EXPECT_EQ(draft(by_hand).status(), "pending") << "it was not submitted again";
  const auto flagged = submit_one(chunk("db.example.com", 5432, "/usr/bin/psql"));
  EXPECT_EQ(draft(flagged).status(), "pending") << "a security note wants a person";
  const auto alias = submit_one(chunk("host.openshell.internal", 9092, "/usr/bin/git"));
  EXPECT_EQ(draft(alias).status(), "pending") << "nor does a name of this host open by itself";
  EXPECT_EQ(draft(alias).application_error(), "");
  const auto faulty = submit_one(chunk("169.254.169.254", 80, "/usr/bin/curl"));
  EXPECT_EQ(draft(faulty).status(), "pending");
  EXPECT_EQ(draft(faulty).validation_result(), "not evaluated");
}

TEST_F(Drafts, PP_07_AutomaticApprovalLooksAtTheProvidersOfNowNotOfTheSubmission) {
  store_provider("first", {"ONE"});
  ASSERT_TRUE(attach("box", "first").ok());
  approve_by_themselves();
  ASSERT_EQ(draft(submit_one(chunk("one.example.com", 9091, "/usr/bin/git"))).status(), "approved") << "the provider alone does not hinder";
  pb::SubmitPolicyAnalysisRequest request;
  request.set_analysis_mode("mechanistic");
  *request.add_proposed_chunks() = chunk("two.example.com", 9092, "/usr/bin/git");
  store->hold_write = true;
  send("box", request);
  store_provider("first", {"ONE", "MORE"});
  caf::anon_send(entity("box"), changed_atom::value, std::string{"first"});
  run();
  release();
  ASSERT_EQ(drafts("pending").size(), 1U) << "another credential may be used through it now: a person looks at it";
  EXPECT_FALSE(rules().contains("allow_9092"));
  EXPECT_EQ(text(approve(drafts("pending").at(0).id()).status()),
            "proposal inputs changed; evaluation refreshed, refetch and review again");
  EXPECT_TRUE(approve(drafts("pending").at(0).id()).ok());
}

TEST_F(Drafts, AutomaticApprovalOfManyMakesOneRevisionEach) {
  approve_by_themselves();
  auto second = chunk("two.example.com", 9092, "/usr/bin/git");
  const auto answer = submit({chunk("one.example.com", 9091, "/usr/bin/git"), second});
  ASSERT_TRUE(answer.ok()) << answer.status();
  for (const auto& id : answer->accepted_chunk_ids()) EXPECT_EQ(draft(id).status(), "approved");
  EXPECT_EQ(config("box").version(), 3U);
}

TEST_F(Drafts, AGlobalValueOfTheApprovalModeWins) {
  approve_by_themselves();
  pb::UpdateConfigRequest setting;
  setting.set_global(true);
  setting.set_setting_key("proposal_approval_mode");
  setting.mutable_setting_value()->set_string_value("manual");
  ASSERT_TRUE(call<pb::UpdateConfigResponse>(tree->actors().global, setting).ok());
  EXPECT_EQ(draft(submit_one(chunk("new.example.com", 9091, "/usr/bin/git"))).status(), "pending");
}

TEST_F(Drafts, AgentsMayNotAskForWhatNobodyCanInspect) {
  for (const char* protocol : {"tcp", "sql"}) {
    auto asked = chunk("db.example.com", 5432, "/usr/bin/psql");
    asked.mutable_proposed_rule()->mutable_endpoints(0)->set_protocol(protocol);
    EXPECT_THAT(submit({asked}, "agent_authored")->rejection_reasons(),
                ElementsAre(HasSubstr(std::string{"agent-authored proposals cannot request protocol "} + protocol)));
  }
  auto asked = chunk("db.example.com", 5432, "/usr/bin/psql");
  asked.mutable_proposed_rule()->mutable_endpoints(0)->set_tls(sb::NETWORK_TLS_MODE_SKIP);
  EXPECT_THAT(submit({asked}, "agent_authored")->rejection_reasons(), ElementsAre(HasSubstr("tls: skip")));
  asked.set_rule_name("_provider_x");
  EXPECT_THAT(submit({asked}, "agent_authored")->rejection_reasons(), ElementsAre(HasSubstr("reserved '_provider_' rule-name prefix")));
  auto blocked = chunk("169.254.169.254", 80, "/usr/bin/curl");
  EXPECT_THAT(submit({blocked}, "agent_authored")->rejection_reasons(), ElementsAre(HasSubstr("merge failed: ")));
  EXPECT_THAT(drafts(), IsEmpty());
}

TEST_F(Drafts, OfOneKeyTheNewestWaits) {
  const auto mechanical = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  const auto authored = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"), "agent_authored");
  EXPECT_EQ(draft(mechanical).rejection_reason(), "superseded by chunk " + authored);
  ASSERT_TRUE(approve(authored).ok());
  const auto covered = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  EXPECT_EQ(covered, mechanical) << "counted on the row that has the key";
  EXPECT_EQ(draft(covered).status(), "rejected");
}

TEST_F(Drafts, ApproveAllSkipsWhatIsFlaggedStaleOrNotReviewed) {
  const auto plain = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  const auto flagged = submit_one(chunk("db.example.com", 5432, "/usr/bin/psql"));
  const auto stale = submit_one(chunk("old.example.com", 9092, "/usr/bin/git"));
  EXPECT_THAT(draft(flagged).security_notes(), HasSubstr("well-known database"));
  pb::ApproveAllDraftChunksRequest request;
  for (const auto& id : {plain, flagged, stale}) {
    auto& approval = *request.add_approvals();
    approval.set_chunk_id(id);
    approval.set_review_token(id == stale ? "seen long ago" : draft(id).review_token());
  }
  auto answer = call<pb::ApproveAllDraftChunksResponse>(entity("box"), request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->chunks_approved(), 1U);
  EXPECT_EQ(answer->chunks_skipped(), 2U);
  EXPECT_EQ(answer->policy_version(), 2U);
  EXPECT_EQ(text(call<pb::ApproveAllDraftChunksResponse>(entity("box"), request).status()),
            "chunk '" + plain + "' is not pending; refetch before bulk approval");
  pb::ApproveAllDraftChunksRequest unseen;
  unseen.set_include_security_flagged(true);
  EXPECT_EQ(call<pb::ApproveAllDraftChunksResponse>(entity("box"), unseen)->chunks_approved(), 0U) << "nobody said what he had read";
  for (const auto& id : {flagged, stale}) {
    auto& approval = *unseen.add_approvals();
    approval.set_chunk_id(id);
    approval.set_review_token(draft(id).review_token());
  }
  answer = call<pb::ApproveAllDraftChunksResponse>(entity("box"), unseen);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->chunks_approved(), 2U);
  EXPECT_EQ(answer->policy_version(), 3U) << "one revision for both";
  EXPECT_TRUE(rules().contains("allow_5432"));
  EXPECT_TRUE(rules().contains("allow_9092"));
  EXPECT_EQ(text(call<pb::ApproveAllDraftChunksResponse>(entity("box"), unseen).status()), "no pending chunks to approve");
}

TEST_F(Drafts, AnEditedRuleIsReviewedAnewAndTakenAsItIs) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  const auto before = draft(id).review_token();
  pb::EditDraftChunkRequest request;
  request.set_chunk_id(id);
  EXPECT_EQ(text(call<pb::EditDraftChunkResponse>(entity("box"), request).status()), "proposed_rule is required");
  *request.mutable_proposed_rule() = chunk("new.example.com", 9091, "/usr/bin/git").proposed_rule();
  request.mutable_proposed_rule()->mutable_endpoints(0)->set_protocol("rest");
  request.mutable_proposed_rule()->mutable_endpoints(0)->set_access(sb::NETWORK_ACCESS_PRESET_READ_ONLY);
  ASSERT_TRUE(call<pb::EditDraftChunkResponse>(entity("box"), request).ok());
  EXPECT_FALSE(approve(id, before).ok());
  ASSERT_TRUE(approve(id).ok());
  EXPECT_EQ(rules().at("allow_9091").endpoints(0).protocol(), "rest");
  EXPECT_EQ(text(call<pb::EditDraftChunkResponse>(entity("box"), request).status()), "chunk status is 'approved', expected 'pending'");
}

TEST_F(Drafts, AProposalThatCannotBeAppliedSaysWhyAndIsNotApproved) {
  auto asked = chunk("new.example.com", 9091, "/usr/bin/git");
  asked.mutable_proposed_rule()->clear_binaries();
  asked.set_binary("-");
  const auto id = submit_one(asked);
  EXPECT_EQ(draft(id).application_error(), "candidate canonicalization failed: the proposal names no program");
  EXPECT_THAT(text(approve(id).status()), HasSubstr("proposal is not applicable: candidate canonicalization failed"));
  EXPECT_EQ(draft(id).status(), "pending");
}

TEST_F(Drafts, AGlobalPolicyStopsApprovals) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  pb::UpdateConfigRequest global;
  global.set_global(true);
  *global.mutable_policy() = policy(443);
  ASSERT_TRUE(call<pb::UpdateConfigResponse>(tree->actors().global, global).ok());
  EXPECT_EQ(text(approve(id).status()),
            "cannot approve rules while a global policy is active; delete the global policy to manage per-sandbox rules");
  EXPECT_EQ(draft(id).status(), "pending");
}

TEST_F(Drafts, AStoreThatFailsDecidesNothing) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  store->fail_writes = absl::UnavailableError("disk is gone");
  EXPECT_FALSE(approve(id).ok());
  store->fail_writes = absl::OkStatus();
  EXPECT_EQ(draft(id).status(), "pending");
  EXPECT_FALSE(rules().contains("allow_9091"));
  EXPECT_TRUE(approve(id).ok());
}

TEST_F(Drafts, ClearForgetsPendingOnesAndHistoryTellsTheRest) {
  const auto kept_id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  ASSERT_TRUE(approve(kept_id).ok());
  submit_one(chunk("other.example.com", 9092, "/usr/bin/git"));
  EXPECT_EQ(call<pb::ClearDraftChunksResponse>(entity("box"), pb::ClearDraftChunksRequest{})->chunks_cleared(), 1U);
  EXPECT_THAT(drafts("pending"), IsEmpty());
  auto history = call<pb::GetDraftHistoryResponse>(entity("box"), pb::GetDraftHistoryRequest{});
  ASSERT_EQ(history->entries_size(), 2);
  EXPECT_EQ(history->entries(0).description(), "Rule 'allow_9091' proposed (confidence: 65%)");
  EXPECT_EQ(history->entries(1).event_type(), "approved");
  restart();
  EXPECT_EQ(drafts().size(), 1U) << "erased in the store too";
}

TEST_F(Drafts, NoMoreThanTheLimitWait) {
  std::vector<pb::PolicyChunk> many;
  for (std::size_t i = 0; i <= kMaxPendingDrafts; ++i)
    many.push_back(chunk("h" + std::to_string(i) + ".example.com", 9091, "/usr/bin/git"));
  auto answer = submit(many);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->accepted_chunks(), kMaxPendingDrafts);
  EXPECT_THAT(answer->rejection_reasons(), ElementsAre(HasSubstr("1000 proposals of this sandbox wait for a decision")));
}

TEST_F(Drafts, AnAgentThatProposesTheSameThingForEverFillsNothing) {
  const std::vector<pb::PolicyChunk> half((kMaxRejectedDrafts + 4) / 2, chunk("new.example.com", 9091, "/usr/bin/git"));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(submit(half, "agent_authored").ok());
  EXPECT_EQ(drafts("pending").size(), 1U) << "each takes the place of the one before";
  EXPECT_EQ(drafts("rejected").size(), kMaxRejectedDrafts);
  const auto pending = drafts("pending").at(0).id();
  restart();
  EXPECT_EQ(drafts("rejected").size(), kMaxRejectedDrafts) << "erased in the store too";
  EXPECT_EQ(drafts("pending").at(0).id(), pending);
}

TEST_F(Drafts, ASyncByTheSupervisorKeepsWhatIsMarkedAsProposed) {
  ASSERT_TRUE(approve(submit_one(chunk("new.example.com", 9091, "/usr/bin/git"))).ok());
  Caller supervisor;
  supervisor.kind = Caller::Kind::supervisor;
  supervisor.sandbox_id = get("box").metadata().id();
  pb::UpdateConfigRequest sync;
  *sync.mutable_policy() = config("box").policy();
  sync.mutable_policy()->mutable_filesystem()->add_read_only("/usr");
  auto answer = call<pb::UpdateConfigResponse>(entity("box"), sync, supervisor);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(rules().at("allow_9091").endpoints(0).advisor_proposed());
  EXPECT_FALSE(rules().at("web").endpoints(0).advisor_proposed());
}

TEST_F(Drafts, ChunksOfAnotherSandboxAreNotFound) {
  const auto id = submit_one(chunk("new.example.com", 9091, "/usr/bin/git"));
  ASSERT_TRUE(create("other").ok());
  pb::ApproveDraftChunkRequest request;
  request.set_chunk_id(id);
  EXPECT_EQ(text(call<pb::ApproveDraftChunkResponse>(entity("other"), request).status()), "chunk not found");
  request.clear_chunk_id();
  EXPECT_EQ(text(call<pb::ApproveDraftChunkResponse>(entity("other"), request).status()), "chunk_id is required");
}

}  // namespace
}  // namespace openshell::gateway
