#include "isolation/boundary/control.hpp"

#include "isolation/boundary/fence.hpp"

#include <gtest/gtest.h>

namespace openshell::boundary {
namespace {

constexpr char kId[] = "7b8c1f0e-6f7c-4c35-9d0a-0d6f3c7a9a11";

Request decoded(const std::string& json) {
  auto result = decode_request(json);
  auto* envelope = std::get_if<RequestEnvelope>(&result);
  EXPECT_NE(envelope, nullptr) << json << (envelope ? "" : std::string(std::get<RefusedRequest>(result).status.message()));
  return envelope ? envelope->request : Request{};
}

absl::Status refusal(const std::string& json) {
  auto result = decode_request(json);
  auto* refused = std::get_if<RefusedRequest>(&result);
  return refused ? refused->status : absl::OkStatus();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

BoundaryPolicy policy() {
  BoundaryPolicy p;
  p.read_only = {"/usr", "/etc"};
  p.read_write = {"/tmp", "/sandbox/\u00e9"};
  p.include_workdir = true;
  p.run_as_user = "sandbox";
  return p;
}

TEST(ControlDigest, PayloadDigestsOfTheContract) {
  EXPECT_EQ(payload_digest(DiscoverPolicy{}), "f316ae675411d6d0fc8d903e8ec9fbd7c4cfcff90ba4b9a0ea42ee12e6ecb393");
  EXPECT_EQ(payload_digest(Confirm{}), "c47c155e09b02a1684c146535ab246541a4775d433a91576130bf1a33462b67e");
  EXPECT_EQ(payload_digest(TerminateBoundary{}), "fcb65e1ddb606a79abbbad448847b833e4135ca9cc2f9f8e455fbfc9c3837cc2");
  UpdateProviderEnvironment update;
  update.generation = 9007199254740993;  // has no double
  update.revision = 2;
  EXPECT_EQ(payload_digest(update), "d927db9193ba4efe4c4b2d19242b1a03d3fea01fce9bbba0e9871cea19f3b647");
}

TEST(ControlDigest, ExpiryOfAnExecIsBound) {
  Exec a{1000, {}}, b{1001, {}};
  a.spec.program = b.spec.program = "true";
  EXPECT_NE(payload_digest(a), payload_digest(b));
  const std::string json = replaced(encode_request(kId, a), "\"exec_expires_at_unix_ms\":1000", "\"exec_expires_at_unix_ms\":9999");
  EXPECT_EQ(refusal(json).code(), absl::StatusCode::kPermissionDenied);
}

TEST(ControlRequest, EveryOperationSurvivesTheWire) {
  Exec exec{1'900'000'000'000, {}};
  exec.spec.shell = ShellSpec{"echo \"hi\"\n\x01 \u00fc", true};
  exec.spec.env = {{"A", "1"}, {"A", "2"}};
  exec.spec.workdir = "/sandbox";
  StartAgent start{"sandbox-1",  {"/bin/sh", {"-c", "id"}, "/sandbox", 5, true},
                   policy(),     "CA",
                   "BUNDLE",     18'446'744'073'709'551'615ull,
                   {{"K", "v"}}, {{"a/b", "text"}}};
  const std::vector<Request> all{DiscoverPolicy{},
                                 Attach{"1b671a64-40d5-491e-99b0-da01ff1f3341", policy(), {{"openshell.gpu", "true"}}},
                                 Confirm{},
                                 ProbeProviderFiles{},
                                 start,
                                 UpdateProviderEnvironment{3, 4, {{"X", ""}}, {}},
                                 AttachProcess{"g:main:0"},
                                 Wait{"g:main:0"},
                                 Signal{"g:main:0", ProcessSignal::hangup},
                                 ExecSignal{"g:exec:1", ProcessSignal::interrupt},
                                 Terminate{"g:exec:1"},
                                 TerminateBoundary{},
                                 exec,
                                 Resize{"g:exec:1", 80, 24},
                                 LoopbackConnect{"127.0.0.1", 8080},
                                 ResolveLinks{{"/usr/bin/python3", "/opt/x"}},
                                 AcceptNetwork{},
                                 OpenMediation{},
                                 Introspect{16, 4096}};
  EXPECT_EQ(all.size(), std::variant_size_v<Request>);
  for (const Request& request : all) EXPECT_EQ(decoded(encode_request(kId, request)), request) << operation_name(request);
}

TEST(ControlRequest, UnknownMissingAndIllTypedFieldsAreRefused) {
  const std::string good = encode_request(kId, Resize{"g:exec:1", 80, 24});
  EXPECT_TRUE(refusal(good).ok());
  EXPECT_FALSE(refusal(replaced(good, "\"request_id\"", "\"extra\":1,\"request_id\"")).ok());
  EXPECT_FALSE(refusal(replaced(good, "\"cols\":80", "\"cols\":80,\"cols\":80")).ok()) << "a key twice";
  EXPECT_EQ(refusal(replaced(good, "\"cols\":80", "\"cols\":81")).message(), "control request payload digest mismatch");
  EXPECT_FALSE(refusal("{}").ok());
  EXPECT_FALSE(refusal("[]").ok());
  EXPECT_FALSE(refusal("{\"request_id\":1}").ok());
  EXPECT_FALSE(refusal(std::string(100, '[')).ok());
}

TEST(ControlRequest, ShapesThatTheTypesDoNotExclude) {
  Exec both{1, {}};
  both.spec.program = "ls";
  both.spec.shell = ShellSpec{};
  EXPECT_EQ(refusal(encode_request(kId, both)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(refusal(encode_request(kId, Exec{1, {}})).ok()) << "no program at all";
  StartAgent start;
  start.spec.args = {"x"};
  EXPECT_FALSE(refusal(encode_request(kId, start)).ok()) << "arguments without a program";
  EXPECT_FALSE(refusal(encode_request(kId, Introspect{0, 4096})).ok());
  EXPECT_FALSE(refusal(encode_request(kId, Introspect{129, 4096})).ok());
  EXPECT_FALSE(refusal(encode_request(kId, Introspect{1, 1023})).ok());
}

TEST(ControlResponse, EveryResultSurvivesTheWire) {
  BackendAudit audit;
  audit.capabilities.bounding = 0xffff'ffff'ffff'ffffull;
  audit.kernel_release = "6.18";
  audit.landlock_abi = 7;
  Confirmation confirmation{
      "g1",
      {1000, 1000, {5, 6}, "driver", ""},
      {{true, "landlock-v7"}, {true, "seccomp-notify"}, {true, "seccomp-notify-procfs"}, {true, "linux-capability-free"}},
      "1b671a64-40d5-491e-99b0-da01ff1f3341",
      "s",
      {"g1", {kFenceGuarantees.begin(), kFenceGuarantees.end()}, std::string(64, 'a')},
      true,
      {},
      audit};
  NetworkConnected open{ResolvedIdentity{{"/usr/bin/curl", std::string(64, 'b')}, {{"/bin/sh", std::nullopt}}, {"/x"}},
                        "203.0.113.10:443",
                        {77, true, 9},
                        3,
                        {1, 2}};
  NetworkConnected failed = open;
  failed.identity = FailedIdentity{"gone"};
  const std::vector<Response> all{Error{ErrorKind::denied, "no"},
                                  ImagePolicy{"version: 1\n", false},
                                  ImagePolicy{std::nullopt, true},
                                  Attached{{"g1", {{"g1:main:0", true, false, ExitStatus{true, 9}, {1, 2, true}}}}},
                                  Confirmed{confirmation},
                                  ProviderFilesSupported{},
                                  Started{"g1:main:0", 1, 2},
                                  ProviderEnvironmentUpdated{1, 2, true},
                                  ProcessAttached{false},
                                  Exited{{false, 7}},
                                  Signaled{},
                                  Terminated{},
                                  BoundaryTerminated{},
                                  ExecStarted{"g1:exec:1", false},
                                  Resized{},
                                  PortConnected{},
                                  LinksResolved{{{"/usr/bin/python3", "/usr/bin/python3.11"}}, {{"/opt/x", "why"}}},
                                  open,
                                  failed,
                                  MediationReady{},
                                  Introspected{"e", 1, 2, {{"a", "", "k", "s", 1, 2, 3, 4, 5, 6, "", {{"m", 0.5}}}}}};
  for (const Response& response : all) {
    auto back = decode_response(encode_response(kId, response));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->request_id, kId);
    EXPECT_EQ(back->response, response) << result_name(response);
  }
}

TEST(ControlResponse, ForeignAuditIsOpaqueAndMixedIdentityRefused) {
  Confirmed confirmed;
  confirmed.confirmation.backend_audit = BackendAudit{};
  auto json = encode_response(kId, confirmed);
  auto back = decode_response(replaced(json, "\"landlock_abi\"", "\"something\""));
  ASSERT_TRUE(back.ok());
  EXPECT_FALSE(std::get<Confirmed>(back->response).confirmation.backend_audit.has_value());
  const auto open = encode_response(kId, NetworkConnected{FailedIdentity{"m"}, "1.2.3.4:5", {}, 0, {}});
  EXPECT_FALSE(decode_response(replaced(open, "\"message\":\"m\"", "\"message\":\"m\",\"ancestors\":[]")).ok());
}

TEST(ControlResponse, ErrorTextIsBoundedAndAlwaysValid) {
  const auto json = encode_response(kId, Error{ErrorKind::process, "\xff" + std::string(5'000, 'x')});
  auto back = decode_response(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_LE(std::get<Error>(back->response).message.size(), kMaxErrorMessageBytes);
}

TEST(Audit, ST_15_EveryMissingFactIsNamed) {
  BackendAudit audit;
  audit.sandbox_dumpable = false;
  audit.no_new_privileges = audit.child_dumpable = audit.core_limit_zero = audit.native_architecture = audit.landlock_allow_deny = true;
  audit.udp_dns_round_trip = audit.tcp_dns_round_trip = audit.tcp_allow_round_trip = audit.tcp_deny_round_trip = true;
  audit.seccomp = {true, true, true, true, true, true, true, true, true, false};
  audit.landlock_abi = 3;
  ASSERT_TRUE(properties_of(audit).ok()) << properties_of(audit).status();
  EXPECT_EQ(properties_of(audit)->filesystem_confinement.mechanism, "landlock-v3");
  auto broken = audit;
  broken.landlock_abi = 2;
  EXPECT_FALSE(properties_of(broken).ok());
  broken = audit;
  broken.capabilities.ambient = 1;
  EXPECT_FALSE(properties_of(broken).ok());
  broken = audit;
  broken.seccomp.cancellation = false;
  EXPECT_FALSE(properties_of(broken).ok());
  broken.seccomp.task_memory_writes_disabled = true;
  EXPECT_TRUE(properties_of(broken).ok()) << "without cancellation, no writes at all is as good";
  broken = audit;
  broken.tcp_deny_round_trip = false;
  EXPECT_EQ(properties_of(broken).status().message(), "native Linux sandbox audit evidence is incomplete: tcp_deny_round_trip");
}

TEST(Fence, DRV_04_DRV_07_DigestOfTheContractAndOrder) {  // DRV-34
  EXPECT_EQ(evidence_digest("g1", "{}"), "d07622f57aba4edee56afae410cae5292e2be5121bd49ac2f30dd65ad4d48b6c");
  OuterFence fence{"g1", {kFenceGuarantees.begin(), kFenceGuarantees.end()}, evidence_digest("g1", "{}")};
  EXPECT_TRUE(check_fence(fence, "g1").ok());
  EXPECT_FALSE(check_fence(fence, "g2").ok());
  auto broken = fence;
  std::swap(broken.established[0], broken.established[1]);
  EXPECT_FALSE(check_fence(broken, "g1").ok());
  broken = fence;
  broken.established.pop_back();
  EXPECT_FALSE(check_fence(broken, "g1").ok());
  broken = fence;
  broken.evidence_digest[0] = 'D';
  EXPECT_FALSE(check_fence(broken, "g1").ok());
}

TEST(StreamJson, DecisionsStatusAndDns) {
  for (int i = 0; i <= static_cast<int>(OpenDecision::relay_handover); ++i) {
    const auto decision = static_cast<OpenDecision>(i);
    auto back = decode_open_decision(encode_open_decision(decision));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, decision);
  }
  EXPECT_EQ(encode_open_decision(OpenDecision::relay_ready), "\"RelayReady\"");
  EXPECT_EQ(encode_open_decision(OpenDecision::policy_denied), "{\"Denied\":\"PolicyDenied\"}");
  EXPECT_FALSE(decode_open_decision("{\"Denied\":\"RelayReady\"}").ok());
  EXPECT_FALSE(decode_open_decision("\"PolicyDenied\"").ok());
  EXPECT_EQ(decode_exit_status(encode_exit_status({true, 15}))->code(), 143);
  const DnsQuestion question{std::string("\x00\xff\x01", 3), true, FailedIdentity{"x"}, {1, 2}};
  EXPECT_EQ(*decode_dns_question(encode_dns_question(question)), question);
  EXPECT_EQ(std::get<std::string>(*decode_dns_answer(encode_dns_answer(std::string("\x80")))), "\x80");
  EXPECT_FALSE(std::get<absl::Status>(*decode_dns_answer(encode_dns_answer(absl::UnavailableError("later")))).ok());
  EXPECT_FALSE(decode_dns_answer("{\"result\":\"response\",\"value\":[256]}").ok());
  EXPECT_FALSE(decode_dns_answer("{\"result\":\"response\",\"value\":[1.0]}").ok());
}

}  // namespace
}  // namespace openshell::boundary
