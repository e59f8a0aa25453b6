// The first configuration of a start, and what happens when it never comes: the repair window, its end, and what is left of the sandbox.
#include "actors/gateway/lifecycle.hpp"
#include "tests/model/gateway/gateway_fixture.hpp"

namespace openshell::gateway {
namespace {

using ::testing::HasSubstr;

constexpr auto kPending = pb::CONFIGURATION_ADMISSION_STATE_PENDING;
constexpr auto kAccepted = pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED;
constexpr auto kRejected = pb::CONFIGURATION_ADMISSION_STATE_REJECTED;

class Provisioning : public Gateway {
 protected:
  std::string reason(const std::string& name) {
    const auto sandbox = get(name);
    for (const auto& condition : sandbox.status().conditions()) {
      if (condition.type() == "Ready") return condition.reason();
    }
    return {};
  }
  Millis deadline(const std::string& name) { return to_millis(get(name).status().provisioning().deadline()); }
  /// With a section that is static once it was activated.
  static sb::SandboxPolicy confined(std::uint32_t port, const std::string& compatibility) {
    auto out = policy(port);
    out.mutable_landlock()->set_compatibility(compatibility);
    return out;
  }
  /// Created, connected, and its configuration refused by the supervisor.
  void blocked(const std::string& name) {
    ASSERT_TRUE(create(name, [](auto& r) { *r.mutable_spec()->mutable_policy() = confined(443, "best_effort"); }).ok());
    ASSERT_TRUE(report(name, one, kPending).ok());
    connect(name, one);
    ASSERT_TRUE(report(name, one, kRejected).ok());
  }
  void expired(const std::string& name) {
    ASSERT_TRUE(create(name).ok());
    pass(301'000ms);
    ASSERT_EQ(phase(name), pb::SANDBOX_PHASE_ERROR);
  }
  absl::StatusOr<pb::SandboxResponse> start(const std::string& name) {
    return call<pb::SandboxResponse>(entity(name), pb::StartSandboxRequest{});
  }
};

// CA-10, CA-11, CA-12, CA-13
TEST_F(Provisioning, CA_11_CA_12_CA_13_ABlockedStartIsProvisioningHoweverReadyItsComputeIs) {
  blocked("box");
  driver->report(get("box").metadata().id(), "True", "BackendReady");
  run();
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_PROVISIONING);
  EXPECT_EQ(reason("box"), "ConfigurationInvalid");
  // The other way round: accepted, but its compute is gone.
  ASSERT_TRUE(report("box", one, kAccepted).ok());
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
  driver->report(get("box").metadata().id(), "False", "ContainerExited");
  run();
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR);
  EXPECT_EQ(get("box").status().configuration_admission().state(), kAccepted);
}

// CA-14, CA-18, CA-20, CA-21, CA-59
TEST_F(Provisioning, CA_14_CA_21_ABlockedStartIsManagedAndRepairedWhereItIs) {
  blocked("box");
  EXPECT_FALSE(get("box").status().configuration_admission().error().empty()) << "who inspects it is told why";
  const auto updated = set_policy("box", confined(8443, "hard_requirement"));  // a static field: nothing was activated yet
  ASSERT_TRUE(updated.ok()) << updated.status();
  ASSERT_TRUE(report("box", one, kAccepted).ok());
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
  EXPECT_EQ(driver->count("create"), 1);
  EXPECT_EQ(driver->count("start"), 0) << "the same supervisor, the same compute";
  ASSERT_TRUE(create("other").ok());
  EXPECT_TRUE(call<pb::DeleteSandboxResponse>(entity("other"), pb::DeleteSandboxRequest{}).ok());
}

// CA-27, CA-34, CA-35
TEST_F(Provisioning, CA_35_NeitherReportsNorNewConnectionsMoveTheWindow) {
  blocked("box");
  const auto until = deadline("box");
  std::uint64_t connection = 2;
  for (int i = 0; i < 10; ++i) {
    pass(10'000ms);
    connect("box", one, connection++);
    ASSERT_TRUE(report("box", one, kRejected).ok());
    EXPECT_EQ(deadline("box"), until);
  }
  pass(199'800ms);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_PROVISIONING);
  pass(1'200ms);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR);
}

// CA-29, CA-30, CA-32
TEST_F(Provisioning, CA_29_CA_30_CA_32_OnlyAStoredChangeThatCountsMovesTheWindowAlsoOverARestart) {
  ASSERT_TRUE(create("box").ok());
  const auto begun = now;
  pass(100'000ms);
  pb::UpdateConfigRequest setting;
  setting.set_setting_key("network.denied_http");
  setting.mutable_setting_value()->set_string_value("explain");
  ASSERT_TRUE(call<pb::UpdateConfigResponse>(entity("box"), setting).ok());
  EXPECT_EQ(deadline("box"), begun + 400'000);
  pass(50'000ms);
  ASSERT_TRUE(call<pb::UpdateConfigResponse>(entity("box"), setting).ok());
  EXPECT_EQ(deadline("box"), begun + 400'000) << "the same value again is no change";
  restart();
  EXPECT_EQ(deadline("box"), begun + 400'000) << "a restart grants nothing";
  pass(50'000ms);
  setting.clear_setting_value();
  setting.set_delete_setting(true);
  ASSERT_TRUE(call<pb::UpdateConfigResponse>(entity("box"), setting).ok());
  EXPECT_EQ(deadline("box"), begun + 500'000) << "a deletion is a change";
}

// CA-36, CA-37
TEST_F(Provisioning, CA_36_CA_37_OnceReadyNothingExpiresWhateverIsRejected) {
  ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = policy(443); }).ok());
  make_ready("box", one);
  ASSERT_TRUE(set_policy("box", policy(8443)).ok());
  ASSERT_TRUE(report("box", one, kRejected).ok());
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
  EXPECT_EQ(get("box").status().configuration_admission().state(), kRejected);
  for (int i = 0; i < 30; ++i) {  // its session is heard of
    pass(30'000ms);
    caf::anon_send(tree->actors().sessions, heard_atom::value, get("box").metadata().id(), session);
    run();
  }
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
  EXPECT_FALSE(get("box").status().provisioning().has_timeout_time());
}

// CA-40, CA-41, CA-42, CA-43, CA-44, CA-47
TEST_F(Provisioning, CA_40_CA_41_CA_42_TheResultIsStoredFirstAndItsCleanupGoesOnOverARestart) {  // CA-45
  driver->stop_answer = absl::UnavailableError("the engine does not answer");
  expired("box");
  EXPECT_EQ(reason("box"), "ProvisioningTimedOut");
  EXPECT_EQ(driver->count("stop"), 1);
  EXPECT_FALSE(get("box").status().provisioning().has_cleanup_completed_time());
  EXPECT_EQ(start("box").status().message(), "cleanup of the expired sandbox is still in progress; retry later");
  driver->report(get("box").metadata().id(), "True", "BackendReady");
  run();
  EXPECT_EQ(report("box", one, kPending).code(), absl::StatusCode::kFailedPrecondition) << "too late";
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR);
  const auto due = to_millis(get("box").status().provisioning().cleanup_retry_time());
  EXPECT_GT(due, now);
  restart();
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR) << "the record survives";
  EXPECT_EQ(to_millis(get("box").status().provisioning().cleanup_retry_time()), due);
  const auto asked = driver->count("stop");
  driver->stop_answer = absl::OkStatus();
  pass(std::chrono::milliseconds{due - now + 200});
  EXPECT_EQ(driver->count("stop"), asked + 1);
  EXPECT_TRUE(get("box").status().provisioning().has_cleanup_completed_time());
  EXPECT_EQ(driver->count("remove"), 0) << "its files stay";
  EXPECT_TRUE(start("box").ok());
}

// CA-39: what the driver lists has no say in it.
TEST_F(Provisioning, CA_39_TheWindowEndsThoughTheDriverKnowsNothingOfTheSandbox) {
  ASSERT_TRUE(create("box").ok());
  {
    const std::lock_guard lock{driver->mutex};
    driver->sandboxes.clear();
  }
  pass(301'000ms);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR);
  EXPECT_EQ(reason("box"), "ProvisioningTimedOut");
}

// CA-46: what is thrown away after its run is not thrown away because it never ran.
TEST_F(Provisioning, CA_46_AnEphemeralSandboxIsKeptWhenItsStartExpires) {
  ASSERT_TRUE(create("box", [](auto& r) { (*r.mutable_annotations())["openshell.nvidia.com/retention"] = "ephemeral"; }).ok());
  pass(310'000ms);
  ASSERT_TRUE(entity("box"));
  EXPECT_EQ(reason("box"), "ProvisioningTimedOut");
  EXPECT_EQ(driver->count("remove"), 0);
}

// CA-28, CA-48, CA-49, CA-50
TEST_F(Provisioning, CA_48_CA_49_CA_50_OnlyAPersonStartsItAgainAndThenWithWhatIsStoredNow) {
  expired("box");
  pass(2'000ms);
  ASSERT_TRUE(get("box").status().provisioning().has_cleanup_completed_time());
  const auto id = get("box").metadata().id();
  const auto before = tree->actors().identities->find(id)->generation;
  const auto edited = set_policy("box", policy(9443));
  ASSERT_TRUE(edited.ok()) << edited.status();
  pass(60'000ms);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_ERROR) << "an edit starts nothing";
  ASSERT_TRUE(start("box").ok());
  EXPECT_NE(tree->actors().identities->find(id)->generation, before);
  EXPECT_EQ(deadline("box"), now + kRepairWindow) << "a window of its own";
  EXPECT_EQ(config("box").policy_hash(), edited->policy_hash());
  make_ready("box", two);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
}

// CA-60, CA-61, CA-62
TEST_F(Provisioning, CA_60_CA_61_CA_62_WhatWasActivatedOnceIsStaticForEver) {
  ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = confined(443, "best_effort"); }).ok());
  make_ready("box", one);
  const auto changed = confined(443, "hard_requirement");
  const auto refused = [&] { return set_policy("box", changed).status().code() == absl::StatusCode::kInvalidArgument; };
  EXPECT_TRUE(refused());
  ASSERT_TRUE(set_policy("box", confined(8443, "best_effort")).ok());
  ASSERT_TRUE(report("box", one, kRejected).ok());
  EXPECT_TRUE(refused()) << "a rejection later opens nothing";
  ASSERT_TRUE(call<pb::SandboxResponse>(entity("box"), pb::StopSandboxRequest{}).ok());
  EXPECT_TRUE(refused());
  ASSERT_TRUE(start("box").ok());
  EXPECT_TRUE(refused()) << "nor does a new start";
  restart();
  EXPECT_TRUE(refused());
}

// CA-66, CA-67, CA-68, CA-69
TEST_F(Provisioning, CA_66_CA_67_CA_68_AnAcceptanceNamesExactlyWhatWasDelivered) {
  ASSERT_TRUE(create("box", [](auto& r) { *r.mutable_spec()->mutable_policy() = policy(443); }).ok());
  ASSERT_TRUE(report("box", one, kPending).ok());
  connect("box", one);
  const auto current = config("box");
  const auto accept = [&](auto change) {
    pb::ReportSandboxConfigurationRequest request;
    request.set_expected_instance_id(one);
    auto& admission = *request.mutable_admission();
    admission.set_instance_id(one);
    admission.set_state(kAccepted);
    admission.set_policy_version(current.version());
    admission.set_policy_hash(current.policy_hash());
    admission.set_config_revision(current.config_revision());
    admission.set_provider_env_revision(current.provider_env_revision());
    change(admission);
    return call<pb::ReportSandboxConfigurationResponse>(entity("box"), request).status().code();
  };
  EXPECT_EQ(accept([](auto& a) { a.set_policy_version(a.policy_version() + 1); }), absl::StatusCode::kAborted);
  EXPECT_EQ(accept([](auto& a) { a.set_policy_hash("another"); }), absl::StatusCode::kAborted);
  EXPECT_EQ(accept([](auto& a) { a.set_config_revision(a.config_revision() + 1); }), absl::StatusCode::kAborted);
  EXPECT_EQ(accept([](auto& a) { a.set_provider_env_revision(a.provider_env_revision() + 1); }), absl::StatusCode::kAborted);
  EXPECT_EQ(accept([&](auto& a) { a.set_instance_id(two); }), absl::StatusCode::kAborted);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_PROVISIONING);
  EXPECT_EQ(accept([](auto&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(phase("box"), pb::SANDBOX_PHASE_READY);
}

}  // namespace
}  // namespace openshell::gateway
