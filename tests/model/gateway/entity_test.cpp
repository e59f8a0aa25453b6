// Sandboxes, policies, sessions and recovery of the whole tree.
#include "tests/model/gateway/gateway_fixture.hpp"

namespace openshell::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(Gateway, GW_CreateAnswersOnceTheIntentIsStoredAndReadyComesFromTheSupervisor) {
  auto created = create("box", [](auto& r) { (*r.mutable_labels())["team"] = "blue"; });
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_FALSE(created->sandbox().metadata().id().empty());
  EXPECT_EQ(created->sandbox().metadata().workspace(), "default");
  EXPECT_EQ(created->sandbox().status().phase(), pb::SANDBOX_PHASE_PROVISIONING);
  EXPECT_EQ(driver->count("create"), 1);
  make_ready("box", one);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
  EXPECT_EQ(create("box").status().message(), "sandbox 'box' already exists");
}

TEST_F(Gateway, GW_ACreateThatTheDriverRefusesLeavesNothing) {
  driver->create_answer = absl::FailedPreconditionError("no room on this host");
  EXPECT_EQ(create("box").status().message(), "no room on this host");
  driver->create_answer = absl::UnknownError("boom");
  EXPECT_EQ(create("box").status().message(), "create sandbox failed: boom");
  driver->create_answer = absl::OkStatus();
  EXPECT_TRUE(create("box").ok()) << "the name is free again";
  restart();
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_PROVISIONING);
}

TEST_F(Gateway, GW_AStoreThatFailsFailsTheCallAndChangesNothing) {
  ASSERT_TRUE(create("box").ok());
  store->fail_writes = absl::UnavailableError("disk is gone");
  EXPECT_FALSE(set_policy("box", policy(443)).ok());
  store->fail_writes = absl::OkStatus();
  EXPECT_EQ(config("box").version(), 0U) << "nothing is shown that is not stored";
  EXPECT_TRUE(set_policy("box", policy(443)).ok());
}

TEST_F(Gateway, GW_PolicyUpdateIsARevisionANudgeAndAnAcknowledgement) {
  ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = policy(443); }).ok());
  auto link = make_ready("box", one);
  ASSERT_TRUE(loaded("box", 1).ok());
  EXPECT_EQ(get("box").status().current_policy_version(), 1U);
  const auto before = link->nudges().size();
  auto updated = set_policy("box", policy(8443));
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->version(), 2U);
  EXPECT_EQ(link->nudges().size(), before + 1) << "sent when the write was committed";
  EXPECT_EQ(config("box").version(), 2U);
  EXPECT_EQ(config("box").policy_hash(), updated->policy_hash());
  ASSERT_TRUE(set_policy("box", policy(9443)).ok());
  EXPECT_EQ(link->nudges().size(), before + 1) << "one outstanding";
  caf::anon_send(tree->actors().sessions, NudgeAnswer{get("box").metadata().id(), session, link->nudges().back(), false});
  run();
  EXPECT_EQ(link->nudges().size(), before + 2);
  ASSERT_TRUE(loaded("box", 3).ok());
  EXPECT_EQ(get("box").status().current_policy_version(), 3U);
  auto list = call<pb::ListSandboxPoliciesResponse>(entity("box"), pb::ListSandboxPoliciesRequest{});
  ASSERT_EQ(list->revisions_size(), 3);
  EXPECT_EQ(list->revisions(0).version(), 3U);
  EXPECT_EQ(list->revisions(0).status(), pb::POLICY_STATUS_LOADED);
  EXPECT_EQ(list->revisions(2).status(), pb::POLICY_STATUS_SUPERSEDED);
  EXPECT_FALSE(list->revisions(0).has_policy());
  EXPECT_EQ(set_policy("box", policy(9443))->version(), 3U) << "the same policy makes no revision";
}

TEST_F(Gateway, GW_ABadPolicyLeavesTheRunningOneUntouched) {
  ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = policy(443); }).ok());
  auto link = make_ready("box", one);
  const auto before = link->nudges().size();
  auto bad = policy(443);
  (*bad.mutable_network_policies())["web"].mutable_endpoints(0)->set_port(70'000);
  EXPECT_EQ(set_policy("box", bad).status().code(), absl::StatusCode::kInvalidArgument);
  auto frozen = policy(443);
  frozen.mutable_process()->set_run_as_user("1234");
  EXPECT_EQ(set_policy("box", frozen).status().code(), absl::StatusCode::kInvalidArgument) << "static once it was activated";
  EXPECT_EQ(config("box").version(), 1U);
  EXPECT_EQ(link->nudges().size(), before);
}

TEST_F(Gateway, GW_SettingsReachTheConfiguration) {
  ASSERT_TRUE(create("box").ok());
  const auto revision = config("box").config_revision();
  pb::UpdateConfigRequest request;
  request.set_setting_key("network.denied_http");
  request.mutable_setting_value()->set_string_value("explain");
  auto answer = call<pb::UpdateConfigResponse>(entity("box"), request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->settings_revision(), 1U);
  EXPECT_EQ(config("box").settings().at("network.denied_http").value().string_value(), "explain");
  EXPECT_NE(config("box").config_revision(), revision);
  request.set_expected_resource_version(1);
  EXPECT_EQ(call<pb::UpdateConfigResponse>(entity("box"), request).status().code(), absl::StatusCode::kAborted) << "the row has moved on";
  restart();
  EXPECT_EQ(config("box").settings().at("network.denied_http").value().string_value(), "explain");
}

TEST_F(Gateway, GW_AGlobalPolicyReplacesTheSandboxesAndForbidsTheirUpdates) {
  ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = policy(443); }).ok());
  auto link = make_ready("box", one);
  pb::UpdateConfigRequest request;
  request.set_global(true);
  *request.mutable_policy() = policy(1443);
  auto answer = call<pb::UpdateConfigResponse>(tree->actors().global, request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto effective = config("box");
  EXPECT_EQ(effective.policy_source(), sb::POLICY_SOURCE_GLOBAL);
  EXPECT_EQ(effective.global_policy_version(), 1U);
  EXPECT_EQ(effective.policy_hash(), answer->policy_hash());
  EXPECT_FALSE(link->nudges().empty());
  EXPECT_EQ(set_policy("box", policy(2443)).status().message(),
            "policy is managed globally; delete global policy before sandbox policy update");
  pb::UpdateConfigRequest remove;
  remove.set_global(true);
  remove.set_setting_key("policy");
  remove.set_delete_setting(true);
  EXPECT_TRUE(call<pb::UpdateConfigResponse>(tree->actors().global, remove)->deleted());
  EXPECT_EQ(config("box").policy_source(), sb::POLICY_SOURCE_SANDBOX);
}

TEST_F(Gateway, GW_StopEndsTheSessionAndStartIsANewGeneration) {
  ASSERT_TRUE(create("box").ok());
  auto link = make_ready("box", one);
  const auto id = get("box").metadata().id();
  const auto before = tree->actors().identities->find(id);
  auto stopped = call<pb::SandboxResponse>(entity("box"), pb::StopSandboxRequest{});
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_EQ(stopped->sandbox().status().phase(), pb::SANDBOX_PHASE_STOPPED);
  EXPECT_FALSE(link->closed.ok());
  EXPECT_FALSE(tree->actors().identities->find(id)->active) << "its tokens are dead at once";
  auto started = call<pb::SandboxResponse>(entity("box"), pb::StartSandboxRequest{});
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(started->sandbox().status().phase(), pb::SANDBOX_PHASE_STARTING);
  const auto after = tree->actors().identities->find(id);
  EXPECT_NE(after->generation, before->generation);
  EXPECT_EQ(after->auth_epoch, before->auth_epoch + 1);
  make_ready("box", two);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
}

TEST_F(Gateway, GW_DeleteRemovesRowsComputeAndName) {
  ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = policy(443); }).ok());
  auto link = make_ready("box", one);
  const auto id = get("box").metadata().id();
  auto deleted = call<pb::DeleteSandboxResponse>(entity("box"), pb::DeleteSandboxRequest{});
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(deleted->outcome(), pb::DELETION_OUTCOME_COMPLETED);
  EXPECT_EQ(deleted->sandbox_id(), id);
  EXPECT_FALSE(link->closed.ok());
  EXPECT_FALSE(tree->actors().identities->find(id));
  EXPECT_FALSE(entity("box"));
  ASSERT_TRUE(store
                  ->read_and_wait([&](storage::Transaction& tx) {
                    EXPECT_TRUE(load_policies(tx, id)->empty());
                    EXPECT_TRUE(load_all(tx)->sandboxes.empty());
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_TRUE(create("box").ok());
}

TEST_F(Gateway, FB_37_ASupervisorThatDiesBeforeConfirmIsRecoveredAfterASecond) {  // FB-39
  ASSERT_TRUE(create("box").ok());
  const auto id = get("box").metadata().id();
  driver->report(id, "False", "SupervisorExited");
  run();
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR);
  const auto generation = tree->actors().identities->find(id)->generation;
  pass(900ms);
  EXPECT_EQ(driver->count("start"), 0);
  pass(200ms);
  EXPECT_EQ(driver->count("stop"), 1) << "the rest of the attempt is ended first";
  EXPECT_EQ(driver->count("start"), 1);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_STARTING);
  EXPECT_NE(tree->actors().identities->find(id)->generation, generation);
  make_ready("box", two);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
}

TEST_F(Gateway, GW_TheRepairWindowExpiresAndComputeIsReclaimed) {  // FB-38
  ASSERT_TRUE(create("box").ok());
  pass(299'900ms);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_PROVISIONING);
  pass(1'200ms);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR);
  pass(1'000ms);
  EXPECT_EQ(driver->count("stop"), 1);
  EXPECT_TRUE(get("box").status().provisioning().has_cleanup_completed_time());
  EXPECT_TRUE(call<pb::SandboxResponse>(entity("box"), pb::StartSandboxRequest{}).ok());
}

/// What a full disk does to every write until something is given back.
TEST_F(Gateway, ADeleteThatCanNotBeWrittenDownGivesBackTheComputeFirst) {
  ASSERT_TRUE(create("box").ok());
  make_ready("box", one);
  store->fail_writes = absl::UnavailableError("database: COMMIT: database or disk is full");
  driver->on_remove = [this] { store->fail_writes = absl::OkStatus(); };
  const auto answer = call<pb::DeleteSandboxResponse>(entity("box"), pb::DeleteSandboxRequest{});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->outcome(), pb::DELETION_OUTCOME_COMPLETED);
  EXPECT_EQ(driver->count("remove"), 1);
  EXPECT_FALSE(entity("box"));
}

TEST_F(Gateway, GW_ARestartWaitsForTheOutputOfTheLastRun) {
  ASSERT_TRUE(create("box", [](auto& r) { r.mutable_spec()->set_restart_policy(pb::SANDBOX_RESTART_POLICY_ALWAYS); }).ok());
  make_ready("box", one);
  pb::ReportMainProcessExitRequest exit;
  exit.set_instance_id(one);
  ASSERT_TRUE(call<pb::ReportMainProcessExitResponse>(entity("box"), exit).ok());
  pass(2'000ms);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_COMPLETED);
  EXPECT_EQ(driver->count("start"), 0) << "somebody may still read what it said";
  pb::FinalizeMainProcessExitRequest finalize;
  finalize.set_instance_id(one);
  ASSERT_TRUE(call<pb::FinalizeMainProcessExitResponse>(entity("box"), finalize).ok());
  pass(200ms);
  EXPECT_EQ(driver->count("start"), 1);
  EXPECT_EQ(get("box").status().restart_count(), 1U);
}

TEST_F(Gateway, GW_ARestartedGatewayFindsItsRunningSandboxAndLeavesItAlone) {
  ASSERT_TRUE(create("box").ok());
  make_ready("box", one);
  const auto id = get("box").metadata().id();
  const auto generation = tree->actors().identities->find(id)->generation;
  restart();
  EXPECT_EQ(driver->count("start"), 0);
  EXPECT_EQ(driver->count("create"), 1);
  EXPECT_EQ(tree->actors().identities->find(id)->generation, generation) << "the supervisor's token goes on";
  connect("box", one, 2);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
  EXPECT_TRUE(ask<Outcome>(entity("box"), usable_atom::value).status.ok());
}

TEST_F(Gateway, GW_ARestartedGatewayPutsBackWhatWasRunningAndIsNot) {  // FB-37
  ASSERT_TRUE(create("box").ok());
  make_ready("box", one);
  ASSERT_TRUE(create("halted").ok());
  make_ready("halted", two);
  ASSERT_TRUE(call<pb::SandboxResponse>(entity("halted"), pb::StopSandboxRequest{}).ok());
  driver->sandboxes.clear();  // the host was restarted
  driver->calls.clear();
  restart();
  EXPECT_EQ(driver->count("start"), 1);
  EXPECT_EQ(driver->count("create"), 1) << "the driver has lost it: made again from the stored spec";
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_STARTING);
  EXPECT_EQ(phase("halted"), pb::SANDBOX_PHASE_STOPPED) << "what a person stopped stays stopped";
}

TEST_F(Gateway, GW_AReplacedSessionIsClosedAndItsEndChangesNothing) {
  ASSERT_TRUE(create("box").ok());
  auto first = make_ready("box", one);
  const auto old = session;
  connect("box", one, 2);
  EXPECT_FALSE(first->closed.ok());
  caf::anon_send(tree->actors().sessions, ended_atom::value, get("box").metadata().id(), old, std::string{"late"});
  run();
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
}

TEST_F(Gateway, GW_AnEphemeralSandboxGoesOnceFinishedFinalisedAndDisconnected) {  // FB-30
  ASSERT_TRUE(create("box", [](auto& r) { (*r.mutable_annotations())["openshell.nvidia.com/retention"] = "ephemeral"; }).ok());
  make_ready("box", one);
  const auto id = get("box").metadata().id();
  pb::ReportMainProcessExitRequest exit;
  exit.set_instance_id(one);
  exit.set_exit_code(0);
  ASSERT_TRUE(call<pb::ReportMainProcessExitResponse>(entity("box"), exit).ok());
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_COMPLETED);
  pb::FinalizeMainProcessExitRequest finalize;
  finalize.set_instance_id(one);
  ASSERT_TRUE(call<pb::FinalizeMainProcessExitResponse>(entity("box"), finalize).ok());
  EXPECT_TRUE(entity("box")) << "its session still delivers output";
  caf::anon_send(tree->actors().sessions, ended_atom::value, id, session, std::string{"done"});
  run();
  EXPECT_FALSE(entity("box"));
  EXPECT_EQ(driver->count("remove"), 1);
}

TEST_F(Gateway, GW_RelaysAreClaimedOnceByTheirOwnSandbox) {  // GW-07, RT-06
  ASSERT_TRUE(create("box").ok());
  auto link = make_ready("box", one);
  const auto id = get("box").metadata().id();
  Handed<RelayEnd> opened;
  int answers = 0;
  sys.spawn([&](caf::event_based_actor* self) {
    self->request(tree->actors().relays, caf::infinite, open_atom::value, RelayRequest{id, "openshell.exec/1", "", 0})
        .then([&](Handed<RelayEnd>& end) {
          opened = std::move(end);
          ++answers;
        });
  });
  run();
  ASSERT_TRUE(link->messages.back().has_relay_open());
  const auto channel = link->messages.back().relay_open().channel_id();
  EXPECT_EQ(link->messages.back().relay_open().service_id(), "openshell.exec/1");
  auto foreign = ask<Handed<RelayEnd>>(tree->actors().relays, RelayClaim{channel, {Caller::Kind::supervisor, "", "other", false}});
  EXPECT_EQ(foreign.value.status().code(), absl::StatusCode::kPermissionDenied);
  auto claimed = ask<Handed<RelayEnd>>(tree->actors().relays, RelayClaim{channel, {Caller::Kind::supervisor, "", id, false}});
  EXPECT_TRUE(claimed.value.ok()) << "a foreign claim leaves the channel usable";
  EXPECT_EQ(answers, 1);
  auto again = ask<Handed<RelayEnd>>(tree->actors().relays, RelayClaim{channel, {Caller::Kind::supervisor, "", id, false}});
  EXPECT_EQ(again.value.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Gateway, GW_ARelayThatNobodyClaimsTimesOutAndOneWithoutSessionToo) {
  ASSERT_TRUE(create("box").ok());
  absl::Status why;
  const auto open = [&] {
    sys.spawn([&](caf::event_based_actor* self) {
      self->request(tree->actors().relays, caf::infinite, open_atom::value, RelayRequest{get_id, "", "", 0})
          .then([&](Handed<RelayEnd>& end) { why = end.value.status(); });
    });
    run();
  };
  get_id = get("box").metadata().id();
  open();
  pass(14'000ms);
  EXPECT_TRUE(why.ok());
  pass(2'100ms);
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  make_ready("box", one);
  why = absl::OkStatus();
  open();
  pass(11'100ms);
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
}

// What is composed has to be what a gateway composes that begins with what is stored.
TEST_F(Gateway, GW_ASetOfProvidersThatWasReadBeforeAnAttachOrDetachDoesNotComeBack) {
  store_provider("first", {"ONE"});
  store_provider("second", {"TWO"});
  ASSERT_TRUE(create("box", [](auto& r) { r.mutable_spec()->add_providers("first"); }).ok());
  store->hold_read = true;
  send("box", sb::GetSandboxConfigRequest{});
  ASSERT_TRUE(attach("box", "second").ok());
  release();
  pb::GetSandboxProviderStatusRequest asked;
  asked.set_provider("second");
  EXPECT_TRUE(call<pb::GetSandboxProviderStatusResponse>(entity("box"), asked).ok());
  const auto both = config("box").provider_env_revision();
  restart();
  store->hold_read = true;
  send("box", sb::GetSandboxConfigRequest{});
  pb::DetachSandboxProviderRequest detach;
  detach.set_provider("first");
  ASSERT_TRUE(call<pb::DetachSandboxProviderResponse>(entity("box"), detach).ok());
  release();
  const auto one_less = config("box").provider_env_revision();
  EXPECT_NE(one_less, both) << "credentials of a provider that was taken away";
  restart();
  EXPECT_EQ(config("box").provider_env_revision(), one_less);
}

TEST_F(Gateway, GW_AProviderThatChangesWhileItsAttachmentIsWrittenIsReadAgain) {
  store_provider("first", {"ONE"});
  ASSERT_TRUE(create("box").ok());
  pb::AttachSandboxProviderRequest request;
  request.set_provider("first");
  store->hold_write = true;
  send("box", request);
  store_provider("first", {"ONE", "MORE"});
  caf::anon_send(entity("box"), changed_atom::value, std::string{"first"});
  run();
  release();
  const auto revision = config("box").provider_env_revision();
  restart();
  EXPECT_EQ(config("box").provider_env_revision(), revision);
}

TEST_F(Gateway, GW_AReceiptOfAnUpdateIsNotFollowedByWhatWasReadBefore) {
  store_provider("first", {"ONE"});
  ASSERT_TRUE(create("box", [](auto& r) { r.mutable_spec()->add_providers("first"); }).ok());
  store->hold_read = true;
  send("box", sb::GetSandboxConfigRequest{});
  store_provider("first", {"ONE", "MORE"});
  ASSERT_TRUE(ask<Reply<pb::ProviderMutationReceipt>>(entity("box"), ProviderUpdated{"first", "mutation"}).value.ok());
  release();
  const auto revision = config("box").provider_env_revision();
  restart();
  EXPECT_EQ(config("box").provider_env_revision(), revision);
}

TEST_F(Gateway, GW_WatchersSeeASnapshotFirstThenEachChangeAndTheEnd) {
  ASSERT_TRUE(create("box").ok());
  auto sink = std::make_shared<FakeSink>();
  auto request = std::make_shared<pb::WatchSandboxRequest>();
  request->set_follow_status(true);
  request->set_follow_logs(true);
  const auto id = get("box").metadata().id();
  auto outcome = ask<Outcome>(tree->actors().bus, Ask<pb::WatchSandboxRequest>{request, {}}, id, std::shared_ptr<WatchSink>{sink});
  ASSERT_TRUE(outcome.status.ok());
  ASSERT_EQ(sink->events.size(), 1U);
  EXPECT_EQ(sink->events[0].sandbox().status().phase(), pb::SANDBOX_PHASE_PROVISIONING);
  auto batch = std::make_shared<pb::PushSandboxLogsRequest>();
  batch->set_sandbox_id(id);
  batch->add_logs()->set_message("denied api.example.com:443");
  caf::anon_send(tree->actors().bus, Ask<pb::PushSandboxLogsRequest>{batch, {}});
  run();
  EXPECT_EQ(sink->events.back().log().message(), "denied api.example.com:443");
  EXPECT_FALSE(sink->events.back().cursor().empty());
  make_ready("box", one);
  EXPECT_EQ(sink->events.back().sandbox().status().phase(), pb::SANDBOX_PHASE_READY);
  ASSERT_TRUE(call<pb::DeleteSandboxResponse>(entity("box"), pb::DeleteSandboxRequest{}).ok());
  EXPECT_TRUE(sink->over);
}

TEST_F(Gateway, GW_ListsArePagedInOrderAndFilteredBeforeThePageIsCut) {
  for (int i = 0; i < 5; ++i) {
    now += 1'000;
    ASSERT_TRUE(create("box-" + std::to_string(i), [&](auto& r) { (*r.mutable_labels())["odd"] = i % 2 == 1 ? "yes" : "no"; }).ok());
  }
  pb::ListSandboxesRequest request;
  request.set_page_size(2);
  request.set_label_selector("odd=no");
  std::vector<std::string> names;
  std::string token;
  do {
    request.set_page_token(token);
    auto reply = ask<Reply<pb::ListSandboxesResponse>>(
        tree->actors().index, Ask<pb::ListSandboxesRequest>{std::make_shared<const pb::ListSandboxesRequest>(request), {}},
        std::string{"default"});
    ASSERT_TRUE(reply.value.ok()) << reply.value.status();
    for (const auto& sandbox : (*reply.value)->sandboxes()) names.push_back(sandbox.metadata().name());
    token = (*reply.value)->next_page_token();
  } while (!token.empty());
  EXPECT_THAT(names, ElementsAre("box-0", "box-2", "box-4"));
  request.set_page_token("damaged");
  auto reply = ask<Reply<pb::ListSandboxesResponse>>(
      tree->actors().index, Ask<pb::ListSandboxesRequest>{std::make_shared<const pb::ListSandboxesRequest>(request), {}},
      std::string{"default"});
  EXPECT_EQ(reply.value.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace openshell::gateway
