// What the program reads and writes: its options, its log lines, exec messages, relay targets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>

#include "egress/engine.hpp"
#include "egress/loopback_target.hpp"
#include "exec.pb.h"
#include "pki/certificate.hpp"
#include "programs/supervisor/egress_runtime.hpp"
#include "programs/supervisor/exec_relay.hpp"
#include "programs/supervisor/logging.hpp"
#include "programs/supervisor/options.hpp"
#include "programs/supervisor/readiness.hpp"
#include "programs/supervisor/relays.hpp"
#include "programs/supervisor/startup.hpp"
#include "sandbox.pb.h"

namespace openshell::supervisor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace wire = internal::exec::v1;

std::vector<std::string> complete(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{
      "--sandbox-id",       "id", "--sandbox", "box", "--openshell-endpoint", "https://127.0.0.1:1", "--backend-descriptor-file", "/d",
      "--auth-bundle-file", "/a"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Environment environment(std::map<std::string, std::string> values = {}) {
  values.emplace("OPENSHELL_ADMITTED_ISOLATION_BACKEND", "openshell-sandbox");
  return [values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>{found->second};
  };
}

TEST(Options, FlagBeatsVariableAndAWrongVariableCountsAsTheDefault) {
  auto options =
      parse_options(complete({"--denial-flush-interval-secs", "3"}),
                    environment({{"OPENSHELL_DENIAL_FLUSH_INTERVAL_SECS", "7"}, {"OPENSHELL_POLICY_POLL_INTERVAL_SECS", "zero"}}));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->denial_flush_interval.count(), 3);
  EXPECT_EQ(options->poll_interval.count(), 10);
}

TEST(Options, PP_04_TheDenialIntervalIsAFlagOrAVariableAndTenSecondsOtherwise) {
  const auto interval = [](std::vector<std::string> flags, std::optional<std::string> variable) {
    std::map<std::string, std::string> variables;
    if (variable) variables["OPENSHELL_DENIAL_FLUSH_INTERVAL_SECS"] = *variable;
    const auto options = parse_options(complete(std::move(flags)), environment(variables));
    EXPECT_TRUE(options.ok()) << options.status();
    return options.ok() ? options->denial_flush_interval.count() : -1;
  };
  EXPECT_EQ(interval({}, std::nullopt), 10);
  EXPECT_EQ(interval({}, "3"), 3);
  for (const char* none : {"0", "-1", "x", ""}) EXPECT_EQ(interval({}, none), 10) << none;
  EXPECT_EQ(interval({"--denial-flush-interval-secs", "5"}, "3"), 5);
}

TEST(Options, IntervalsAreOneToOneHour) {
  EXPECT_TRUE(parse_options(complete({"--poll-interval-secs", "1"}), environment()).ok());
  EXPECT_TRUE(parse_options(complete({"--poll-interval-secs", "3600"}), environment()).ok());
  for (const char* value : {"0", "3601", "-1", "x", ""}) {
    auto options = parse_options(complete({"--poll-interval-secs", value}), environment());
    ASSERT_FALSE(options.ok()) << value;
    EXPECT_THAT(options.status().ToString(), HasSubstr("--poll-interval-secs"));
  }
}

TEST(Options, ResolversAreAddressAndPortAndEightAtMost) {
  EXPECT_TRUE(check_resolver("127.0.0.1:53").ok());
  EXPECT_TRUE(check_resolver("[2001:db8::1]:5353").ok());
  for (const char* text : {"dns.test:53", "127.0.0.1", "2001:db8::1:53", "127.0.0.1:0", "127.0.0.1:65536"})
    EXPECT_FALSE(check_resolver(text).ok()) << text;
  std::vector<std::string> many;
  for (int i = 0; i < 8; ++i) many.insert(many.end(), {"--resolver", "127.0.0.1:53"});
  EXPECT_TRUE(parse_options(complete(many), environment()).ok());
  many.insert(many.end(), {"--resolver", "127.0.0.1:53"});
  EXPECT_FALSE(parse_options(complete(many), environment()).ok());
}

TEST(Options, AnUnadmittedBackendAndGoneFlagsAreRefused) {
  EXPECT_EQ(parse_options(complete(), [](const char*) { return std::nullopt; }).status().message(),
            "runtime descriptor supplied without an admitted isolation backend");
  EXPECT_FALSE(parse_options(complete(), environment({{"OPENSHELL_ADMITTED_ISOLATION_BACKEND", "other"}})).ok());
  EXPECT_THAT(parse_options(complete({"--policy-rules", "x"}), environment()).status().ToString(),
              HasSubstr("use the network-proxy role for local policy files"));
  EXPECT_THAT(parse_options(complete({"--listen=127.0.0.1:1"}), environment()).status().ToString(),
              HasSubstr("only valid with --role=network-proxy"));
  EXPECT_THAT(parse_options(complete({"--nonsense", "x"}), environment()).status().ToString(), HasSubstr("--nonsense"));
}

TEST(Options, TrailingArgumentsWinOverTheSpec) {
  const Environment with_spec =
      environment({{"OPENSHELL_MAIN_PROCESS_SPEC", R"({"version":1,"command":["/opt/run me","-x","a b"],"tty":false})"}});
  auto options = parse_options(complete(), with_spec);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->command, ElementsAre("/opt/run me", "-x", "a b"));
  options = parse_options(complete({"--", "/bin/true"}), with_spec);
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->command, ElementsAre("/bin/true"));
}

TEST(MainProcessSpec, EmptyCommandIsTheLoginShellAndBase64urlIsRead) {
  auto spec = parse_main_process_spec(R"({"version":1,"command":[],"tty":true})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->command.empty());
  EXPECT_TRUE(spec->tty);
  spec = parse_main_process_spec("base64url:eyJ2ZXJzaW9uIjoxLCJjb21tYW5kIjpbImEiXSwidHR5IjpmYWxzZX0");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->command, ElementsAre("a"));
}

TEST(MainProcessSpec, WrongOnesAreRefusedByName) {
  EXPECT_EQ(parse_main_process_spec(R"({"version":7,"command":[],"tty":true})").status().message(),
            "unsupported OPENSHELL_MAIN_PROCESS_SPEC version 7");
  EXPECT_EQ(parse_main_process_spec(R"({"version":1,"command":[""],"tty":true})").status().message(),
            "OPENSHELL_MAIN_PROCESS_SPEC command must not be empty");
  EXPECT_THAT(parse_main_process_spec("base64url:!!").status().ToString(), HasSubstr("base64url"));
  EXPECT_THAT(parse_main_process_spec("{").status().ToString(), HasSubstr("invalid OPENSHELL_MAIN_PROCESS_SPEC"));
}

// ---- the end of all traffic

/// Read after a decision only, which comes after its event.
struct LastMessage final : egress::EventSink {
  std::string text;
  void emit(egress::Event event) noexcept override {
    if (auto* activity = std::get_if<egress::ActivityEvent>(&event)) text = activity->message;
  }
};

struct NoStream final : egress::ByteStream {
  void read(ReadDone) override {}
  void write(std::string, WriteDone) override {}
  void shutdown_write() override {}
  void reset() override {}
};

egress::DenialKind denial_of_literal(egress::Engine& engine) {
  egress::OpenIntent intent;
  intent.address = *egress::IpAddress::parse("203.0.113.10");
  intent.port = Port{443};
  intent.identity = egress::ResolvedIdentity{{"/usr/bin/curl", std::string(64, 'a')}, {}, {}};
  std::promise<egress::OpenDecision> decision;
  engine.open(std::move(intent), std::make_shared<NoStream>(), [&](egress::OpenDecision made) { decision.set_value(std::move(made)); });
  const auto made = decision.get_future().get();
  const auto* denied = std::get_if<egress::OpenDenied>(&made);
  EXPECT_TRUE(denied);
  return denied ? denied->kind : egress::DenialKind::kMediationUnavailable;
}

// A generation that was built before the end is not published after it.
TEST(EgressRuntime, OnceClosedNothingIsPublishedAnyMore) {
  egress::EngineOptions options;
  options.sandbox_id = "s";
  options.use_system_roots = false;
  options.additional_ca_bundle_pem = pki::CertificateAuthority::create({"Outside", "Test", pki::KeyKind::kP256})->certificate().to_pem();
  options.resolvers = {"127.0.0.1:9"};
  auto events = std::make_shared<LastMessage>();
  auto engine = egress::Engine::create(std::move(options), events);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EgressRuntime runtime{**engine, std::nullopt, std::make_shared<EndpointBox>()};
  Candidate candidate;
  auto policy = std::make_shared<sandbox::v1::SandboxPolicy>();
  policy->set_version(1);
  candidate.snapshot.policy = policy;
  auto prepared = runtime.prepare(candidate);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(denial_of_literal(**engine), egress::DenialKind::kMediationUnavailable) << "nothing was published yet";
  runtime.close("an actor died");
  bool done = false;
  runtime.publish(*std::move(prepared), [&] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_EQ(denial_of_literal(**engine), egress::DenialKind::kPolicyDenied);
  EXPECT_THAT(events->text, HasSubstr("an actor died"));
  EXPECT_EQ(runtime.prepare(candidate).status().code(), absl::StatusCode::kFailedPrecondition);
}

// ---- log lines

egress::ActivityEvent denied_open() {
  egress::ActivityEvent event;
  event.event_class = egress::EventClass::kNetwork;
  event.disposition = egress::Disposition::kDenied;
  event.severity = egress::Severity::kMedium;
  event.host = "mirror.test";
  event.port = Port{443};
  event.binary = "/usr/bin/wget";
  event.pid = 71;
  event.policy = "-";
  event.rule_type = "opa";
  event.message = "no matching policy";
  return event;
}

// LOG: a program's path and a reason that quotes it are the workload's text; they make no line, no bracket field and no terminal escape.
TEST(Shorthand, WhatAWorkloadChoseForgesNothing) {
  auto event = denied_open();
  event.binary = "/tmp/e\n2026-11-30T00:00:00Z OCSF NET:OPEN ALLOWED \x1b[31m] [policy:mine]";
  event.message = "/tmp/x\n] [denial_id=0";
  const auto line = shorthand(event);
  for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << line;
  EXPECT_EQ(line.find("[policy:mine]"), std::string::npos) << line;
  EXPECT_EQ(line.find(" ALLOWED "), std::string::npos) << line;
  EXPECT_EQ(line.find("[denial_id"), line.find("\\[denial_id") + 1) << line;
}

TEST(Shorthand, DeniedOpenAndAllowedRequest) {
  EXPECT_EQ(shorthand(denied_open()),
            "NET:OPEN [MED] DENIED /usr/bin/wget(71) -> mirror.test:443 [policy:- engine:opa] [reason:no matching policy]");
  egress::ActivityEvent request;
  request.event_class = egress::EventClass::kHttp;
  request.disposition = egress::Disposition::kAllowed;
  request.method = "GET";
  request.host = "api.test";
  request.port = Port{8080};
  request.path = "/v1";
  request.policy = "api";
  request.rule_type = "opa";
  EXPECT_EQ(shorthand(request), "HTTP:GET [INFO] ALLOWED GET http://api.test:8080/v1 [policy:api engine:opa]");
}

TEST(Shorthand, TheSchemeIsTheOneThatWasSpokenWhateverThePort) {
  egress::ActivityEvent request;
  request.event_class = egress::EventClass::kHttp;
  request.method = "GET";
  request.host = "api.test";
  request.path = "/v1";
  const auto line = [&](std::uint16_t port, bool tls) {
    request.port = Port{port};
    request.tls = tls;
    return shorthand(request);
  };
  EXPECT_THAT(line(9443, true), HasSubstr("GET https://api.test:9443/v1"));
  EXPECT_THAT(line(443, true), HasSubstr("GET https://api.test/v1"));
  EXPECT_THAT(line(80, true), HasSubstr("GET https://api.test:80/v1"));
  EXPECT_THAT(line(80, false), HasSubstr("GET http://api.test/v1"));
  EXPECT_THAT(line(443, false), HasSubstr("GET http://api.test:443/v1"));
}

TEST(Shorthand, AReasonIsOneLineAndCutAtACharacterBorder) {
  auto event = denied_open();
  event.message = std::string(255, 'r') + "\xc3\xa9\nmore";
  const auto line = shorthand(event);
  EXPECT_THAT(line, HasSubstr("[reason:" + std::string(255, 'r') + "...]"));
  event.message = "two\nlines";
  EXPECT_THAT(shorthand(event), HasSubstr("[reason:two lines]"));
}

TEST(Shorthand, AValueCannotCloseItsBracket) {
  auto event = denied_open();
  event.policy = "a] b";
  EXPECT_THAT(shorthand(event), HasSubstr("[policy:a\\]\\u{20}b engine:opa]"));
}

// ---- exec messages

TEST(ExecFrames, TheExampleBytes) {
  wire::ToGateway message;
  message.set_stdout("hi");
  EXPECT_EQ(encode_exec_frame(message), std::string("\0\0\0\x04\x12\x02hi", 8));
  wire::ToGateway exit;
  exit.mutable_exit()->set_code(0);
  EXPECT_EQ(encode_exec_frame(exit), std::string("\0\0\0\x02\x2a\0", 6));
}

TEST(ExecFrames, AnyPiecesAndRefusalByLengthAlone) {
  ExecFrameDecoder decoder;
  const std::string frame("\0\0\0\x02\x1a\0", 6);
  for (std::size_t i = 0; i + 1 < frame.size(); ++i) {
    ASSERT_TRUE(decoder.append(frame.substr(i, 1)).ok());
    EXPECT_FALSE(decoder.next());
  }
  ASSERT_TRUE(decoder.append(frame.substr(5)).ok());
  EXPECT_EQ(decoder.next(), std::string("\x1a\0", 2));
  EXPECT_FALSE(decoder.append(std::string("\0\0\0\0", 4)).ok()) << "length 0";
  ExecFrameDecoder large;
  EXPECT_TRUE(large.append(std::string("\0\x08\0\0", 4)).ok()) << "524,288: the first message may be so long";
  ExecFrameDecoder larger;
  EXPECT_FALSE(larger.append(std::string("\0\x08\0\x01", 4)).ok());
  ExecFrameDecoder second;
  ASSERT_TRUE(second.append(frame).ok());
  ASSERT_TRUE(second.next());
  EXPECT_TRUE(second.append(std::string("\0\x01\0\0", 4)).ok()) << "65,536";
  ExecFrameDecoder third;
  ASSERT_TRUE(third.append(frame).ok());
  ASSERT_TRUE(third.next());
  EXPECT_FALSE(third.append(std::string("\0\x01\0\x01", 4)).ok());
}

TEST(ExecStart, EveryFieldIsChecked) {
  wire::Start start;
  start.set_exec_id("0d9f2c1e-1111-4222-8333-444455556666");
  start.set_command("true");
  EXPECT_TRUE(check_start(start).ok());
  auto bad = start;
  bad.set_exec_id("0D9F2C1E-1111-4222-8333-444455556666");
  EXPECT_FALSE(check_start(bad).ok());
  bad.set_exec_id("00000000-0000-0000-0000-000000000000");
  EXPECT_FALSE(check_start(bad).ok());
  bad = start;
  bad.set_command(std::string(262'145, 'x'));
  EXPECT_FALSE(check_start(bad).ok());
  bad = start;
  bad.set_command(std::string("a\0b", 3));
  EXPECT_FALSE(check_start(bad).ok());
  bad = start;
  bad.set_tty(true);
  EXPECT_FALSE(check_start(bad).ok());
  bad.set_cols(80);
  bad.set_rows(24);
  bad.set_term("xterm");
  EXPECT_TRUE(check_start(bad).ok());
  bad.set_tty(false);
  EXPECT_FALSE(check_start(bad).ok());
}

// ---- relays, readiness, files

TEST(TcpTarget, OnlyLoopbackAndNeverAName) {
  EXPECT_EQ(*egress::loopback_target(" LocalHost ", 80), "127.0.0.1");
  EXPECT_EQ(*egress::loopback_target("::1", 80), "::1");
  EXPECT_EQ(egress::loopback_target("127.0.0.1", 0).status().message(), "tcp target port must be between 1 and 65535");
  EXPECT_EQ(egress::loopback_target(" ", 80).status().message(), "tcp target host is required");
  for (const char* host : {"10.1.2.3", "example.test", "0.0.0.0", "::2"})
    EXPECT_EQ(egress::loopback_target(host, 80).status().message(), "tcp target host must be loopback") << host;
}

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "supervisor-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Readiness, R_109_TheSocketExistsExactlyWhileReady) {
  const ScratchDirectory scratch;
  const auto path = scratch / "health.sock";
  EXPECT_FALSE(is_ready(path));
  auto socket = ReadinessSocket::open(path);
  ASSERT_TRUE(socket);
  EXPECT_TRUE(is_ready(path));
  EXPECT_TRUE(is_ready(path));
  socket.reset();
  EXPECT_FALSE(is_ready(path));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Confirmed, HoldsTheGenerationAndLeavesNothingElse) {
  const ScratchDirectory scratch;
  ASSERT_TRUE(write_confirmed(scratch.path(), "g-1").ok());
  ASSERT_TRUE(write_confirmed(scratch.path(), "g-2").ok());
  std::ifstream file{scratch / "confirmed"};
  std::string content;
  file >> content;
  EXPECT_EQ(content, "g-2");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{scratch.path()}, {}), 1);
  EXPECT_FALSE(write_confirmed(scratch / "absent", "g").ok());
}

}  // namespace
}  // namespace openshell::supervisor
