#include "actors/gateway/lifecycle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/gateway/admission.hpp"
#include "actors/gateway/create_request.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {
namespace {

constexpr Millis kNow = 1'000'000;
const std::string kInstance = "11111111-1111-4111-8111-111111111111";
const std::string kOther = "22222222-2222-4222-8222-222222222222";

records::SandboxRecord fresh() {
  pb::CreateSandboxRequest request;
  request.mutable_spec();
  Creation creation;
  creation.workspace = "default";
  creation.name = "box";
  creation.sandbox_id = "33333333-3333-4333-8333-333333333333";
  creation.now = kNow;
  auto record = new_record(request, creation);
  begin_attempt(record, kNow, "generation-1", "token-1", "attempt-1");
  return record;
}

pb::SandboxPhase phase(const records::SandboxRecord& record) { return record.sandbox().status().phase(); }

std::string reason(const records::SandboxRecord& record, const std::string& type = "Ready") {
  for (const auto& condition : record.sandbox().status().conditions()) {
    if (condition.type() == type) return condition.reason();
  }
  return {};
}

void accept(records::SandboxRecord& record, const std::string& instance) {
  auto& admission = *record.mutable_sandbox()->mutable_status()->mutable_configuration_admission();
  admission.set_instance_id(instance);
  admission.set_state(pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED);
}

records::SandboxRecord ready() {
  auto record = fresh();
  accept(record, kInstance);
  session_connected(record, {kNow, true, kInstance}, "");
  return record;
}

ComputeObservation condition(const std::string& status, const std::string& why, const std::string& type = "Ready") {
  ComputeObservation observed;
  observed.has_status = true;
  observed.generation = "generation-1";
  observed.conditions.push_back({type, status, why, "driver text", ""});
  return observed;
}

TEST(Lifecycle, GW_ReadyNeedsALiveSessionAndAnAcceptedConfigurationOfThatInstance) {  // RT-80, ST-23
  auto record = fresh();
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_PROVISIONING);
  EXPECT_TRUE(session_connected(record, {kNow, true, kInstance}, ""));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_PROVISIONING);
  EXPECT_EQ(reason(record), "ConfigurationPending");
  accept(record, kOther);
  EXPECT_FALSE(settle_readiness(record, {kNow, true, kInstance}));
  accept(record, kInstance);
  EXPECT_FALSE(settle_readiness(record, {kNow, false, ""}));
  EXPECT_TRUE(settle_readiness(record, {kNow, true, kInstance}));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_READY);
  EXPECT_EQ(reason(record), "DependenciesReady");
  EXPECT_FALSE(record.sandbox().status().provisioning().has_deadline()) << "READY disarms the window for good";
}

TEST(Lifecycle, GW_ReadinessAtTheDeadlineIsTooLate) {
  auto record = fresh();
  accept(record, kInstance);
  session_connected(record, {kNow + kRepairWindow, true, kInstance}, "");
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_PROVISIONING);
  EXPECT_EQ(reason(record), "ProvisioningDeadlineElapsed");
  EXPECT_FALSE(expire(record, kNow + kRepairWindow - 1));
  EXPECT_TRUE(expire(record, kNow + kRepairWindow));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_ERROR);
  EXPECT_EQ(reason(record), "ProvisioningTimedOut");
  EXPECT_EQ(record.intent(), records::INTENT_HELD);
  EXPECT_FALSE(recovery_due(record, kNow + 10 * kRepairWindow)) << "only a person starts it again";
}

TEST(Lifecycle, GW_ASessionThatEndsTakesReadyBack) {
  auto record = ready();
  EXPECT_TRUE(session_ended(record, kNow));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_PROVISIONING);
  EXPECT_EQ(reason(record), "DependenciesNotReady");
  EXPECT_TRUE(session_connected(record, {kNow + 1, true, kInstance}, ""));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_READY) << "the same instance was accepted before";
}

TEST(Lifecycle, GW_TerminalReasonsAreErrorsAndUnknownOnesAreTerminal) {
  for (const char* why : {"ReconcilerError", "dependenciesnotready", "Starting", "HealthCheckStarting", "InspectFailed"}) {
    EXPECT_EQ(derive_phase(condition("False", why)), pb::SANDBOX_PHASE_PROVISIONING) << why;
  }
  for (const char* why : {"ContainerExited", "SupervisorExited", "SomethingNew"}) {
    EXPECT_EQ(derive_phase(condition("false", why)), pb::SANDBOX_PHASE_ERROR) << why;
  }
  EXPECT_EQ(derive_phase(condition("True", "BackendReady")), pb::SANDBOX_PHASE_READY);
  EXPECT_EQ(derive_phase(condition("TRUE", "Stopped", "suspended")), pb::SANDBOX_PHASE_STOPPED);
  EXPECT_EQ(derive_phase({}), pb::SANDBOX_PHASE_UNKNOWN);
}

TEST(Lifecycle, FB_37_AFailedAttemptIsRecoveredWithDoublingWaits) {
  auto record = ready();
  EXPECT_TRUE(apply_observation(record, condition("False", "SupervisorExited"), {kNow, false, ""}));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_ERROR);
  EXPECT_EQ(record.intent(), records::INTENT_RUNNING);
  EXPECT_FALSE(recovery_due(record, kNow + 999));
  EXPECT_TRUE(recovery_due(record, kNow + 1'000));
  Millis now = kNow;
  for (Millis wait : {2'000, 4'000, 8'000}) {
    fail(record, now, "SupervisorExited", "again");
    EXPECT_EQ(*next_due(record), now + wait);
  }
  for (int i = 0; i < 30; ++i) fail(record, now, "SupervisorExited", "again");
  EXPECT_EQ(*next_due(record), now + kLongestRetry);
  set_millis(record.mutable_ready_time(), now);  // it held for 10 s
  fail(record, now + kGoodRun, "ContainerExited", "later");
  EXPECT_EQ(*next_due(record), now + kGoodRun + kFirstRetry);
}

TEST(Lifecycle, FB_34_FB_35_FB_36_AFailureOfTheHostIsNoResultOfTheMainProcess) {
  auto record = ready();
  EXPECT_TRUE(apply_observation(record, condition("False", "ContainerExited"), {kNow, true, kInstance}));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_ERROR);
  EXPECT_EQ(reason(record), "ContainerExited");
  EXPECT_FALSE(record.sandbox().status().has_exit_code());
}

TEST(Lifecycle, FB_31_FB_32_FB_33_TheResultDecidesPhaseAndReason) {
  for (const auto& [code, wanted, why] : {std::tuple{0, pb::SANDBOX_PHASE_COMPLETED, "MainProcessCompleted"},
                                          {7, pb::SANDBOX_PHASE_ERROR, "MainProcessFailed"},
                                          {139, pb::SANDBOX_PHASE_ERROR, "MainProcessFailed"}}) {
    auto record = ready();
    EXPECT_TRUE(main_process_exited(record, kInstance, code, kNow));
    EXPECT_EQ(phase(record), wanted);
    EXPECT_EQ(reason(record), why);
    EXPECT_EQ(record.sandbox().status().exit_code(), code);
  }
}

TEST(Lifecycle, CA_74_AStartNeedsAFreshAcceptedConfiguration) {
  auto record = ready();
  begin_stop(record, kNow);
  finish_stop(record, kNow);
  begin_attempt(record, kNow, "generation-2", "token-2", "attempt-2");
  record.mutable_sandbox()->mutable_status()->set_phase(pb::SANDBOX_PHASE_STARTING);
  EXPECT_EQ(record.sandbox().status().configuration_admission().state(), pb::CONFIGURATION_ADMISSION_STATE_PENDING);
  session_connected(record, {kNow, true, kOther}, "");
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_PROVISIONING) << "a session alone does not make it ready";
}

TEST(Lifecycle, GW_AnObservationOfAnEarlierGenerationChangesNothing) {
  auto record = ready();
  auto stale = condition("False", "ContainerExited");
  stale.generation = "generation-0";
  EXPECT_FALSE(apply_observation(record, stale, {kNow, true, kInstance}));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_READY);
}

TEST(Lifecycle, GW_SnapshotsNeverReviveWhatEnded) {
  auto record = ready();
  begin_stop(record, kNow);
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_STOPPING);
  apply_observation(record, condition("True", "BackendReady"), {kNow, true, kInstance});
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_STOPPING);
  apply_observation(record, condition("False", "ContainerStopped"), {kNow, false, ""});
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_STOPPED);
  apply_observation(record, condition("True", "BackendReady"), {kNow, true, kInstance});
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_STOPPED) << "a stale READY after STOPPED";
  fail(record, kNow, "X", "y");
  EXPECT_FALSE(apply_observation(record, condition("True", "BackendReady"), {kNow, true, kInstance}));
  begin_delete(record, kNow);
  EXPECT_FALSE(apply_observation(record, condition("False", "ContainerExited"), {kNow, false, ""}));
}

TEST(Lifecycle, GW_MainProcessResultIsRecordedOnceAndKept) {
  auto record = ready();
  EXPECT_FALSE(main_process_exited(record, kOther, 3, kNow)) << "another instance's report is stale";
  EXPECT_TRUE(main_process_exited(record, kInstance, 0, kNow));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_COMPLETED);
  EXPECT_EQ(record.intent(), records::INTENT_FINISHED);
  EXPECT_FALSE(main_process_exited(record, kInstance, 7, kNow));
  EXPECT_EQ(record.sandbox().status().exit_code(), 0);
  EXPECT_TRUE(check_usable(record, true).ok()) << "a kept sandbox goes on serving exec";
  EXPECT_EQ(check_usable(record, false).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Lifecycle, GW_RestartPolicyStartsAnewAtOnceThenWithWaits) {
  auto record = ready();
  record.mutable_sandbox()->mutable_spec()->set_restart_policy(pb::SANDBOX_RESTART_POLICY_ON_FAILURE);
  EXPECT_TRUE(main_process_exited(record, kInstance, 5, kNow));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_ERROR);
  EXPECT_EQ(reason(record), "MainProcessFailed");
  EXPECT_FALSE(restart_due(record, kNow)) << "its output is still being delivered";
  EXPECT_TRUE(restart_due(record, kNow + 60'000)) << "but not for ever";
  EXPECT_TRUE(session_ended(record, kNow));
  EXPECT_TRUE(restart_due(record, kNow));
  EXPECT_EQ(*next_due(record), kNow);
  begin_attempt(record, kNow, "generation-2", "token-2", "attempt-2");
  record.mutable_sandbox()->mutable_status()->set_phase(pb::SANDBOX_PHASE_STARTING);
  accept(record, kOther);
  session_connected(record, {kNow, true, kOther}, "");
  EXPECT_TRUE(main_process_exited(record, kOther, 5, kNow + 10));
  record.set_finalized_instance(kOther);
  EXPECT_FALSE(restart_due(record, kNow + 10 + 999));
  EXPECT_TRUE(restart_due(record, kNow + 10 + 1'000));
}

TEST(Lifecycle, GW_StopAndStartSayWhatTheyNeed) {  // GW-08
  auto record = fresh();
  LifecycleStep step{};
  EXPECT_EQ(check_stop(record, &step).message(), "sandbox must be Ready to stop (current phase: Provisioning)");
  EXPECT_EQ(check_start(record, &step).message(), "sandbox must be Stopped to start (current phase: Provisioning)");
  record = ready();
  EXPECT_TRUE(check_start(record, &step).ok());
  EXPECT_EQ(step, LifecycleStep::done);
}

class Admission : public ::testing::Test {
 protected:
  absl::StatusOr<bool> report(pb::ConfigurationAdmissionState state, const std::string& instance, const std::string& expected = {},
                              Millis now = kNow) {
    pb::ReportSandboxConfigurationRequest request;
    request.set_expected_instance_id(expected);
    auto& admission = *request.mutable_admission();
    admission.set_instance_id(instance);
    admission.set_state(state);
    if (state != pb::CONFIGURATION_ADMISSION_STATE_PENDING) {
      admission.set_policy_version(current.version());
      admission.set_policy_hash(current.policy_hash());
      admission.set_config_revision(current.config_revision());
      admission.set_provider_env_revision(current.provider_env_revision());
      admission.set_error("parser text that must not be published");
    }
    return report_configuration(record, request, current, {now, session, session ? kInstance : ""});
  }
  void SetUp() override {
    current.set_version(1);
    current.set_policy_hash("abc");
    current.set_config_revision(7);
    current.set_provider_env_revision(9);
    current.set_configuration_admitted(true);
  }
  records::SandboxRecord record = fresh();
  openshell::sandbox::v1::GetSandboxConfigResponse current;
  bool session = true;
};

constexpr auto kPending = pb::CONFIGURATION_ADMISSION_STATE_PENDING;
constexpr auto kAccepted = pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED;
constexpr auto kRejected = pb::CONFIGURATION_ADMISSION_STATE_REJECTED;

TEST_F(Admission, GW_AcceptanceByTheRegisteredInstanceMakesItReady) {
  EXPECT_TRUE(*report(kPending, kInstance));
  EXPECT_FALSE(*report(kPending, kInstance)) << "a repeated registration changes nothing";
  EXPECT_EQ(report(kAccepted, kOther).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(*report(kAccepted, kInstance));
  EXPECT_EQ(phase(record), pb::SANDBOX_PHASE_READY);
  EXPECT_TRUE(record.sandbox().status().configuration_activated());
  EXPECT_FALSE(*report(kAccepted, kInstance));
}

TEST_F(Admission, GW_ARetiredInstanceNeverRegistersAgain) {
  ASSERT_TRUE(*report(kPending, kInstance));
  EXPECT_EQ(report(kPending, kOther, "").status().code(), absl::StatusCode::kAborted) << "it did not know whom it replaces";
  ASSERT_TRUE(*report(kPending, kOther, kInstance));
  EXPECT_EQ(report(kPending, kInstance, kOther).status().code(), absl::StatusCode::kAborted);
}

TEST_F(Admission, GW_AcceptingWhatIsNotDeliveredNowIsAborted) {
  ASSERT_TRUE(*report(kPending, kInstance));
  auto moved = current;
  moved.set_config_revision(8);
  std::swap(moved, current);
  pb::ReportSandboxConfigurationRequest request;
  request.mutable_admission()->set_instance_id(kInstance);
  request.mutable_admission()->set_state(kAccepted);
  request.mutable_admission()->set_policy_version(1);
  request.mutable_admission()->set_policy_hash("abc");
  request.mutable_admission()->set_config_revision(7);
  request.mutable_admission()->set_provider_env_revision(9);
  EXPECT_EQ(report_configuration(record, request, current, {kNow, true, kInstance}).status().code(), absl::StatusCode::kAborted);
  current.set_configuration_admitted(false);
  EXPECT_EQ(report(kAccepted, kInstance).status().code(), absl::StatusCode::kAborted) << "fail closed: not admitted is never accepted";
  EXPECT_NE(phase(record), pb::SANDBOX_PHASE_READY);
}

TEST_F(Admission, GW_TheFirstRejectionOfAChangeMovesTheWindowAndNoOther) {  // CA-33
  ASSERT_TRUE(*report(kPending, kInstance));
  ASSERT_TRUE(*report(kRejected, kInstance, {}, kNow + 20'000));
  EXPECT_EQ(to_millis(record.sandbox().status().provisioning().deadline()), kNow + 320'000);
  EXPECT_FALSE(*report(kRejected, kInstance, {}, kNow + 100'000));
  EXPECT_EQ(to_millis(record.sandbox().status().provisioning().deadline()), kNow + 320'000);
  EXPECT_EQ(record.sandbox().status().configuration_admission().error().find("parser text"), std::string::npos)
      << "only fixed diagnostics are published";
  note_configuration_change(record, "change-2", kNow + 200'000);
  EXPECT_EQ(to_millis(record.sandbox().status().provisioning().deadline()), kNow + 500'000);
  current.set_config_revision(8);
  ASSERT_TRUE(*report(kRejected, kInstance, {}, kNow + 205'000));
  EXPECT_EQ(to_millis(record.sandbox().status().provisioning().deadline()), kNow + 505'000);
  EXPECT_EQ(report(kAccepted, kInstance, {}, kNow + 505'000).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CreateRequest, GW_NamesAndBoundsAreChecked) {  // CR-16, CR-17, CR-19, CR-22
  const auto message = [](auto change) {
    pb::CreateSandboxRequest request;
    request.mutable_spec();
    change(request);
    return std::string{check_create(request).message()};
  };
  EXPECT_EQ(message([](auto& r) { r.set_name("Build_1"); }), "name must contain only lowercase alphanumeric characters or hyphens");
  EXPECT_EQ(message([](auto& r) { r.set_name("a--b"); }), "name must not contain consecutive hyphens");
  EXPECT_EQ(message([](auto& r) { r.set_name("a-"); }), "name must not start or end with a hyphen");
  EXPECT_EQ(message([](auto& r) { r.set_name(std::string(20, 'a')); }), "name exceeds maximum length (20 > 19)");
  EXPECT_EQ(message([](auto& r) { r.set_name(std::string(19, 'a')); }), "");
  EXPECT_EQ(message([](auto& r) { r.clear_spec(); }), "spec is required");
  EXPECT_EQ(message([](auto& r) {
              for (int i = 0; i < 33; ++i) r.mutable_spec()->add_providers("p");
            }),
            "providers list exceeds maximum (33 > 32)");
  EXPECT_EQ(message([](auto& r) { (*r.mutable_spec()->mutable_environment())["OPENSHELL_X"] = "1"; }),
            "spec.environment keys starting with OPENSHELL_ are reserved; got 'OPENSHELL_X'");
  EXPECT_EQ(message([](auto& r) { r.mutable_spec()->add_command(""); }), "spec.command[0] must not be empty");
  EXPECT_EQ(message([](auto& r) { r.mutable_spec()->add_command(std::string(kMaxCommandEntry + 1, 'x')); }),
            "spec.command[0] exceeds 32768 byte limit");
}

TEST(CreateRequest, GW_AnEmptySpecIsALoginShell) {
  const auto record = fresh();
  EXPECT_TRUE(record.sandbox().spec().command().empty());
  EXPECT_TRUE(record.sandbox().spec().tty());
  EXPECT_EQ(record.sandbox().spec().restart_policy(), pb::SANDBOX_RESTART_POLICY_NEVER);
}

TEST(CreateRequest, GW_ReservedRuleKeysAreRefusedForPeopleAndStrippedForASync) {
  openshell::sandbox::v1::SandboxPolicy policy;
  policy.set_version(1);
  auto& rule = (*policy.mutable_network_policies())["_provider_x"];
  rule.set_name("x");
  rule.add_endpoints()->set_host("api.example.com");
  rule.mutable_endpoints(0)->set_port(443);
  rule.add_binaries()->set_path("/usr/bin/curl");
  auto copy = policy;
  EXPECT_EQ(admit_policy(copy, false).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(admit_policy(policy, true).ok());
  EXPECT_TRUE(policy.network_policies().empty());
}

}  // namespace
}  // namespace openshell::gateway
