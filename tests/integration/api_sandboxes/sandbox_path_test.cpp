// The whole path over real gRPC: real store, real shell with authentication, scripted driver, and a supervisor that this test plays.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <thread>

#include "api/sandboxes/control_plane.hpp"
#include "api/shell.hpp"
#include "api/workspace_scope.hpp"
#include "exec.pb.h"
#include "openshell.grpc.pb.h"
#include "rpc_status.pb.h"
#include "tests/model/gateway/scripted_driver.hpp"
#include "tests/unit/api/key_files.hpp"

namespace openshell {
namespace {

using namespace std::chrono_literals;
namespace pb = openshell::v1;
namespace sb = openshell::sandbox::v1;
namespace wire = openshell::internal::exec::v1;

constexpr auto kLong = 20s;

/// Waits for a condition that other threads bring about.
bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + kLong;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string framed(const wire::ToGateway& message) {
  const auto body = message.SerializeAsString();
  const auto n = static_cast<std::uint32_t>(body.size());
  return std::string{static_cast<char>(n >> 24U), static_cast<char>(n >> 16U), static_cast<char>(n >> 8U), static_cast<char>(n)} + body;
}

/// A supervisor: session on one thread, each relay on one of its own. `run` is what an exec does.
class Supervisor {
 public:
  Supervisor(std::shared_ptr<grpc::Channel> channel, std::string sandbox, std::string token, std::string instance)
      : stub_{pb::OpenShell::NewStub(std::move(channel))},
        sandbox_{std::move(sandbox)},
        token_{std::move(token)},
        instance_{std::move(instance)} {}
  ~Supervisor() { disconnect(); }

  std::unique_ptr<grpc::ClientContext> context() const {
    auto out = std::make_unique<grpc::ClientContext>();
    out->AddMetadata("authorization", "Bearer " + token_);
    return out;
  }
  sb::GetSandboxConfigResponse config() {
    sb::GetSandboxConfigResponse out;
    const auto status = stub_->GetSandboxConfig(context().get(), sb::GetSandboxConfigRequest{}, &out);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return out;
  }
  grpc::Status report(pb::ConfigurationAdmissionState state) {
    const auto current = config();
    pb::ReportSandboxConfigurationRequest request;
    request.set_sandbox_id(sandbox_);
    request.set_expected_instance_id(current.configuration_instance_id());
    auto& admission = *request.mutable_admission();
    admission.set_instance_id(instance_);
    admission.set_state(state);
    if (state != pb::CONFIGURATION_ADMISSION_STATE_PENDING) {
      admission.set_policy_version(current.version());
      admission.set_policy_hash(current.policy_hash());
      admission.set_config_revision(current.config_revision());
      admission.set_provider_env_revision(current.provider_env_revision());
    }
    pb::ReportSandboxConfigurationResponse response;
    return stub_->ReportSandboxConfiguration(context().get(), request, &response);
  }
  grpc::Status loaded(std::uint32_t version) {
    pb::ReportPolicyStatusRequest request;
    request.set_sandbox_id(sandbox_);
    request.set_version(version);
    request.set_status(pb::POLICY_STATUS_LOADED);
    pb::ReportPolicyStatusResponse response;
    return stub_->ReportPolicyStatus(context().get(), request, &response);
  }
  void connect(std::uint64_t epoch = 1) {
    session_context_ = context();
    session_ = stub_->ConnectSupervisor(session_context_.get());
    pb::SupervisorMessage hello;
    hello.mutable_hello()->set_sandbox_id(sandbox_);
    hello.mutable_hello()->set_instance_id(instance_);
    hello.mutable_hello()->set_connection_epoch(epoch);
    hello.mutable_hello()->set_supports_config_push(true);
    ASSERT_TRUE(session_->Write(hello));
    pb::GatewayMessage accepted;
    ASSERT_TRUE(session_->Read(&accepted));
    ASSERT_TRUE(accepted.has_session_accepted());
    reader_ = std::thread{[this] { read(); }};
  }
  void become_ready() {
    ASSERT_TRUE(report(pb::CONFIGURATION_ADMISSION_STATE_PENDING).ok());
    connect();
    ASSERT_TRUE(report(pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED).ok());
  }
  void disconnect() {
    if (session_context_) session_context_->TryCancel();
    if (reader_.joinable()) reader_.join();
    for (auto& relay : relays_) relay.join();
    relays_.clear();
  }
  void answer_nudge(const std::string& id) {
    pb::SupervisorMessage message;
    message.mutable_config_update_result()->set_update_id(id);
    message.mutable_config_update_result()->set_outcome(pb::CONFIG_APPLY_OUTCOME_APPLIED);
    session_->Write(message);
  }

  using Relay = grpc::ClientReaderWriter<pb::RelayFrame, pb::RelayFrame>;
  std::function<void(Supervisor&, Relay&)> run;
  std::atomic<int> nudges{0};
  std::atomic<int> cancelled{0};

  static void say(Relay& relay, const wire::ToGateway& message) {
    pb::RelayFrame frame;
    frame.set_data(framed(message));
    relay.Write(frame);
  }

 private:
  void read() {
    pb::GatewayMessage message;
    while (session_->Read(&message)) {
      if (message.has_config_update()) {
        ++nudges;
        answer_nudge(message.config_update().update_id());
      }
      if (message.has_relay_open()) relays_.emplace_back([this, channel = message.relay_open().channel_id()] { serve(channel); });
    }
    session_->Finish();
  }
  void serve(const std::string& channel) {
    auto ctx = context();
    auto relay = stub_->RelayStream(ctx.get());
    pb::RelayFrame init;
    init.mutable_init()->set_channel_id(channel);
    relay->Write(init);
    run(*this, *relay);
    relay->WritesDone();
    pb::RelayFrame rest;
    while (relay->Read(&rest)) {
    }
    if (!relay->Finish().ok()) ++cancelled;
  }

  std::unique_ptr<pb::OpenShell::Stub> stub_;
  std::string sandbox_, token_, instance_;
  std::unique_ptr<grpc::ClientContext> session_context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::SupervisorMessage, pb::GatewayMessage>> session_;
  std::thread reader_;
  std::vector<std::thread> relays_;
};

/// Reads exec messages of a relay until `done` says so; false when the relay ended first.
bool read_exec(Supervisor::Relay& relay, const std::function<bool(const wire::ToSupervisor&)>& done) {
  std::string bytes;
  pb::RelayFrame frame;
  for (;;) {
    while (bytes.size() >= 4) {
      std::uint32_t n = 0;
      for (std::size_t i = 0; i < 4; ++i) n = n << 8U | static_cast<unsigned char>(bytes[i]);
      if (bytes.size() < 4 + n) break;
      wire::ToSupervisor message;
      message.ParseFromString(bytes.substr(4, n));
      bytes.erase(0, 4 + n);
      if (done(message)) return true;
    }
    if (!relay.Read(&frame)) return false;
    bytes += frame.data();
  }
}

/// Echoes stdin to stdout, returning its credit, then exits with the length of the command.
void echo(Supervisor&, Supervisor::Relay& relay) {
  wire::ToGateway message;
  std::int64_t code = 0;
  read_exec(relay, [&](const wire::ToSupervisor& got) {
    if (got.has_start()) {
      code = static_cast<std::int64_t>(got.start().command().size());
      message.mutable_started()->set_process_id("p");
      Supervisor::say(relay, message);
    }
    if (!got.stdin().empty()) {
      message.set_stdout(got.stdin());
      Supervisor::say(relay, message);
      message.mutable_stdin_credit()->set_bytes(static_cast<std::uint32_t>(got.stdin().size()));
      Supervisor::say(relay, message);
    }
    return got.has_stdin_end();
  });
  message.mutable_exit()->set_code(code);
  Supervisor::say(relay, message);
}

class SandboxPath : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    begin();
  }
  void TearDown() override {
    finish();
    std::filesystem::remove_all(directory);
  }
  void begin() {
    store = *storage::open_store("sqlite:" + directory + "/state.db");
    ASSERT_TRUE(api::ensure_default_workspace(*store).ok());
    tokens = *api::TokenAuthority::load(keys.config());
    api::ControlPlaneOptions options;
    options.store = store.get();
    options.tokens = tokens.get();
    options.driver = &driver;
    options.keep_on_shutdown = keep;
    options.gateway_outage_limit_secs = 77;
    plane = *api::make_control_plane(options);
    router = std::make_unique<api::Router>();
    plane->add_handlers(*router);
    api::AuthenticationConfig users;
    users.allow_unauthenticated_users = true;
    authenticator = std::make_unique<api::Authenticator>(users, tokens.get(), plane.get());
    table = std::make_unique<api::AuthorizationTable>(*api::AuthorizationTable::build());
    api::ShellOptions serve;
    serve.router = router.get();
    serve.authenticator = authenticator.get();
    serve.table = table.get();
    api::AdmissionOptions admissions;
    admissions.store = store.get();
    admissions.key.emplace(Secret{"a signing key"});
    serve.admissions = std::make_shared<api::Admissions>(std::move(admissions));
    serve.unix_socket = directory + "/api.sock";
    shell = *api::Shell::start(std::move(serve));
    plane->start();
    channel = grpc::CreateCustomChannel("unix:" + directory + "/api.sock", grpc::InsecureChannelCredentials(), fresh());
    stub = pb::OpenShell::NewStub(channel);
  }
  void finish() {
    if (!shell) return;
    shell->stop(0);
    shell.reset();
    EXPECT_TRUE(plane->shutdown(kLong).ok());
    plane.reset();
    store.reset();
  }
  static grpc::ChannelArguments fresh() {
    grpc::ChannelArguments out;
    out.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a restarted server is not waited for with another test's backoff
    return out;
  }
  template <class Request>
  static Request in_default(Request request) {
    request.mutable_workspace_scope()->set_workspace("default");
    return request;
  }
  grpc::Status create(const std::string& name, pb::Sandbox* out = nullptr) {
    auto request = in_default(pb::CreateSandboxRequest{});
    request.set_name(name);
    *request.mutable_spec()->mutable_policy() = policy(443);
    grpc::ClientContext ctx;
    pb::SandboxResponse response;
    auto status = stub->CreateSandbox(&ctx, request, &response);
    if (out != nullptr) *out = response.sandbox();
    return status;
  }
  static sb::SandboxPolicy policy(std::uint32_t port) {
    sb::SandboxPolicy out;
    out.set_version(1);
    auto& rule = (*out.mutable_network_policies())["web"];
    rule.set_name("web");
    rule.add_endpoints()->set_host("api.example.com");
    rule.mutable_endpoints(0)->set_port(port);
    rule.add_binaries()->set_path("/usr/bin/curl");
    return out;
  }
  pb::Sandbox get(const std::string& name) {
    auto request = in_default(pb::GetSandboxRequest{});
    request.set_name(name);
    grpc::ClientContext ctx;
    pb::SandboxResponse response;
    stub->GetSandbox(&ctx, request, &response);
    return response.sandbox();
  }
  std::unique_ptr<Supervisor> supervisor(const pb::Sandbox& sandbox) {
    const auto& id = sandbox.metadata().id();
    std::string token;
    EXPECT_TRUE(eventually([&] {
      std::lock_guard lock{driver.mutex};
      const auto it = driver.launches.find(id);
      if (it == driver.launches.end()) return false;
      token = std::string{it->second.gateway_token.reveal()};
      return true;
    }));
    auto out = std::make_unique<Supervisor>(channel, id, token, "aaaaaaaa-0000-4000-8000-000000000001");
    out->run = echo;
    return out;
  }
  struct Ran {
    std::string out, err;
    std::optional<int> code;
    int exits = 0;
    grpc::Status status;
  };
  Ran exec(pb::ExecSandboxRequest request, grpc::ClientContext* ctx = nullptr) {
    grpc::ClientContext own;
    request = in_default(std::move(request));
    Ran ran;
    auto reader = stub->ExecSandbox(ctx != nullptr ? ctx : &own, request);
    pb::ExecSandboxEvent event;
    while (reader->Read(&event)) {
      ran.out += event.stdout().data();
      ran.err += event.stderr().data();
      if (event.has_exit()) {
        ran.code = event.exit().exit_code();
        ++ran.exits;
      }
    }
    ran.status = reader->Finish();
    return ran;
  }
  static pb::ExecSandboxRequest command(const std::string& name, const std::string& word) {
    pb::ExecSandboxRequest out;
    out.set_sandbox(name);
    out.add_command(word);
    return out;
  }

  std::string directory = "/tmp/openshell-path-XXXXXX";
  bool keep = false;
  api::KeyFiles keys;
  test::ScriptedDriver driver;
  std::unique_ptr<storage::Store> store;
  std::unique_ptr<api::TokenAuthority> tokens;
  std::unique_ptr<api::ControlPlane> plane;
  std::unique_ptr<api::Router> router;
  std::unique_ptr<api::Authenticator> authenticator;
  std::unique_ptr<api::AuthorizationTable> table;
  std::unique_ptr<api::Shell> shell;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pb::OpenShell::Stub> stub;
};

TEST_F(SandboxPath, GW_FromCreateToDelete) {  // GW-04, GW-14
  pb::Sandbox sandbox;
  const auto created = create("box", &sandbox);
  ASSERT_TRUE(created.ok()) << created.error_message();
  auto one = supervisor(sandbox);
  one->become_ready();
  EXPECT_TRUE(eventually([&] { return get("box").status().phase() == pb::SANDBOX_PHASE_READY; }));
  ASSERT_TRUE(one->loaded(1).ok());

  auto request = command("box", "cat");
  request.set_stdin("hello");
  const auto ran = exec(request);
  ASSERT_TRUE(ran.status.ok()) << ran.status.error_message();
  EXPECT_EQ(ran.out, "hello");
  EXPECT_EQ(ran.code, 3);
  EXPECT_EQ(ran.exits, 1);

  auto update = in_default(pb::UpdateConfigRequest{});
  update.set_sandbox("box");
  *update.mutable_policy() = policy(8443);
  grpc::ClientContext update_ctx;
  pb::UpdateConfigResponse updated;
  const auto before = one->nudges.load();
  const auto sent = std::chrono::steady_clock::now();
  ASSERT_TRUE(stub->UpdateConfig(&update_ctx, update, &updated).ok());
  EXPECT_EQ(updated.version(), 2U);
  ASSERT_TRUE(eventually([&] { return one->nudges > before; }));
  RecordProperty("nudge_us",
                 static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - sent).count()));
  EXPECT_EQ(one->config().version(), 2U);
  ASSERT_TRUE(one->loaded(2).ok());
  EXPECT_EQ(get("box").status().current_policy_version(), 2U);

  auto list = in_default(pb::ListSandboxesRequest{});
  list.set_page_size(100);
  grpc::ClientContext list_ctx;
  pb::ListSandboxesResponse listed;
  ASSERT_TRUE(stub->ListSandboxes(&list_ctx, list, &listed).ok());
  ASSERT_EQ(listed.sandboxes_size(), 1);
  EXPECT_TRUE(listed.next_page_token().empty());

  auto remove = in_default(pb::DeleteSandboxRequest{});
  remove.set_name("box");
  grpc::ClientContext remove_ctx;
  pb::DeleteSandboxResponse removed;
  ASSERT_TRUE(stub->DeleteSandbox(&remove_ctx, remove, &removed).ok());
  EXPECT_EQ(removed.outcome(), pb::DELETION_OUTCOME_COMPLETED);
  EXPECT_EQ(removed.sandbox_id(), sandbox.metadata().id());
  grpc::ClientContext again_ctx;
  EXPECT_EQ(stub->DeleteSandbox(&again_ctx, remove, &removed).error_code(), grpc::StatusCode::NOT_FOUND);
  remove.set_allow_missing(true);
  grpc::ClientContext missing_ctx;
  ASSERT_TRUE(stub->DeleteSandbox(&missing_ctx, remove, &removed).ok());
  EXPECT_EQ(removed.outcome(), pb::DELETION_OUTCOME_ALREADY_ABSENT);
}

TEST_F(SandboxPath, GW_ALaunchCarriesTheOperatorsOutageLimit) {
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  std::lock_guard lock{driver.mutex};
  EXPECT_EQ(driver.launches.at(sandbox.metadata().id()).gateway_outage_limit_secs, 77U);
}

TEST_F(SandboxPath, GW_TenMegabytesThroughAnExecWithBackpressure) {
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  auto one = supervisor(sandbox);
  constexpr std::size_t kBytes = 10U << 20U;
  one->run = [](Supervisor&, Supervisor::Relay& relay) {
    read_exec(relay, [](const wire::ToSupervisor& got) { return got.has_stdin_end(); });
    wire::ToGateway message;
    message.mutable_started();
    Supervisor::say(relay, message);
    message.set_stdout(std::string(32'768, 'x'));
    for (std::size_t i = 0; i < kBytes / 32'768; ++i) Supervisor::say(relay, message);
    message.mutable_exit()->set_code(0);
    Supervisor::say(relay, message);
  };
  one->become_ready();
  const auto begin = std::chrono::steady_clock::now();
  const auto ran = exec(command("box", "yes"));
  RecordProperty("ten_mebibytes_ms",
                 static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count()));
  EXPECT_EQ(ran.out.size(), kBytes);
  EXPECT_EQ(ran.code, 0);
  EXPECT_TRUE(ran.status.ok()) << ran.status.error_message();
}

TEST_F(SandboxPath, FB_ATimeoutIs124AndACancelEndsTheRelay) {
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  auto one = supervisor(sandbox);
  std::atomic<int> killed{0};
  one->run = [&](Supervisor&, Supervisor::Relay& relay) {
    wire::ToGateway message;
    const bool kill = read_exec(relay, [&](const wire::ToSupervisor& got) {
      if (got.has_start()) {
        message.mutable_started();
        Supervisor::say(relay, message);
      }
      return got.has_signal() && got.signal().kind() == wire::Signal::KILL;
    });
    if (!kill) return;
    ++killed;
    message.mutable_exit()->set_code(137);
    Supervisor::say(relay, message);
  };
  one->become_ready();
  auto request = command("box", "sleep");
  request.mutable_execution_timeout()->set_seconds(1);
  const auto ran = exec(request);
  EXPECT_TRUE(ran.status.ok()) << ran.status.error_message();
  EXPECT_EQ(ran.code, 124);
  EXPECT_TRUE(eventually([&] { return killed == 1; }));
  grpc::ClientContext ctx;
  ctx.set_deadline(std::chrono::system_clock::now() + 2s);
  request.clear_execution_timeout();
  EXPECT_EQ(exec(request, &ctx).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return one->cancelled == 1; })) << "the supervisor sees a broken relay and ends the tree";
}

/// The reason in the details of a refusal.
std::string reason_of(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info)) return info.reason();
  }
  return {};
}

TEST_F(SandboxPath, GW_AnExecWithARequestIdRunsOnce) {
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  auto one = supervisor(sandbox);
  std::atomic<int> runs{0};
  std::atomic<bool> go{false};
  one->run = [&](Supervisor&, Supervisor::Relay& relay) {
    ++runs;
    wire::ToGateway message;
    const bool whole = read_exec(relay, [](const wire::ToSupervisor& got) { return got.has_stdin_end(); });
    message.mutable_started();
    Supervisor::say(relay, message);
    if (!whole || !eventually([&] { return go.load(); })) return;
    message.mutable_exit()->set_code(7);
    Supervisor::say(relay, message);
  };
  one->become_ready();
  auto request = command("box", "once");
  request.set_request_id("6f1d2c3b-0000-4000-8000-00000000aaaa");
  auto first = std::async(std::launch::async, [&] { return exec(request); });
  ASSERT_TRUE(eventually([&] { return runs == 1; }));
  EXPECT_EQ(reason_of(exec(request).status), "REQUEST_OUTCOME_UNCERTAIN");
  auto changed = request;
  changed.add_command("more");
  EXPECT_EQ(reason_of(exec(changed).status), "REQUEST_ID_PAYLOAD_MISMATCH");
  go = true;
  EXPECT_EQ(first.get().code, 7);
  const auto after = exec(request);
  EXPECT_EQ(reason_of(after.status), "REQUEST_STREAM_UNAVAILABLE");
  EXPECT_FALSE(after.code);
  EXPECT_EQ(runs, 1);
}

TEST_F(SandboxPath, GW_AnExecThatItsCallerCancelledHasEndedOneTimedOutIsUncertain) {
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  auto one = supervisor(sandbox);
  std::atomic<int> runs{0};
  one->run = [&](Supervisor&, Supervisor::Relay& relay) {
    ++runs;
    wire::ToGateway message;
    const bool killed = read_exec(relay, [&](const wire::ToSupervisor& got) {
      if (got.has_start()) {
        message.mutable_started();
        Supervisor::say(relay, message);
      }
      return got.has_signal();
    });
    if (!killed) return;
    message.mutable_exit()->set_code(137);
    Supervisor::say(relay, message);
  };
  one->become_ready();
  auto request = command("box", "sleep");
  request.set_request_id("6f1d2c3b-0000-4000-8000-00000000aaaa");
  grpc::ClientContext ctx;
  auto cancelled = std::async(std::launch::async, [&] { return exec(request, &ctx); });
  ASSERT_TRUE(eventually([&] { return runs == 1; }));
  ctx.TryCancel();
  EXPECT_EQ(cancelled.get().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return reason_of(exec(request).status) == "REQUEST_STREAM_UNAVAILABLE"; }));
  request.set_request_id("6f1d2c3b-0000-4000-8000-00000000bbbb");
  request.mutable_execution_timeout()->set_seconds(1);
  EXPECT_EQ(exec(request).code, 124);
  EXPECT_EQ(reason_of(exec(request).status), "REQUEST_OUTCOME_UNCERTAIN");
  EXPECT_EQ(runs, 2);
}

TEST_F(SandboxPath, GW_ARepeatedCreationShowsTheSandboxAsItIsNow) {
  const auto once = [&](grpc::ClientContext& ctx, pb::SandboxResponse& response) {
    auto request = in_default(pb::CreateSandboxRequest{});
    *request.mutable_spec()->mutable_policy() = policy(443);
    request.set_request_id("6f1d2c3b-0000-4000-8000-00000000aaaa");
    return stub->CreateSandbox(&ctx, request, &response);
  };
  grpc::ClientContext first_ctx, again_ctx;
  pb::SandboxResponse first, again;
  ASSERT_TRUE(once(first_ctx, first).ok());
  const auto repeated = once(again_ctx, again);
  ASSERT_TRUE(repeated.ok()) << repeated.error_message();
  EXPECT_EQ(again_ctx.GetServerInitialMetadata().count("openshell-replayed"), 1U);
  EXPECT_EQ(again.sandbox().metadata().id(), first.sandbox().metadata().id());
  auto remove = in_default(pb::DeleteSandboxRequest{});
  remove.set_name(first.sandbox().metadata().name());
  grpc::ClientContext remove_ctx, gone_ctx;
  pb::DeleteSandboxResponse removed;
  ASSERT_TRUE(stub->DeleteSandbox(&remove_ctx, remove, &removed).ok());
  EXPECT_EQ(reason_of(once(gone_ctx, again)), "REQUEST_REPLAY_UNAVAILABLE");
}

TEST_F(SandboxPath, GW_InteractiveExecHalfClosesStdinOnly) {
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  auto one = supervisor(sandbox);
  one->become_ready();
  grpc::ClientContext ctx;
  auto stream = stub->ExecSandboxInteractive(&ctx);
  pb::ExecSandboxInput input;
  *input.mutable_start() = in_default(command("box", "cat"));
  stream->Write(input);
  std::thread writer{[&] {
    for (int i = 0; i < 64; ++i) {
      input.set_stdin(std::string(100'000, 'x'));
      stream->Write(input);
    }
    stream->WritesDone();
  }};
  std::size_t got = 0;
  std::optional<int> code;
  pb::ExecSandboxEvent event;
  while (stream->Read(&event)) {
    got += event.stdout().data().size();
    if (event.has_exit()) code = event.exit().exit_code();
  }
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(got, 6'400'000U);
  EXPECT_EQ(code, 3);
}

TEST_F(SandboxPath, GW_WhatIsNotReadyOrNotThereIsRefused) {
  EXPECT_EQ(exec(command("nobody", "ls")).status.error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(create("box").ok());
  const auto ran = exec(command("box", "ls"));
  EXPECT_EQ(ran.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ran.status.error_message(), "sandbox is not ready");
  grpc::ClientContext ctx;
  pb::SandboxResponse response;
  pb::GetSandboxRequest no_scope;
  no_scope.set_name("box");
  const auto status = stub->GetSandbox(&ctx, no_scope, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("workspace_scope"));
  EXPECT_FALSE(status.error_details().empty()) << "BadRequest names the field";
}

TEST_F(SandboxPath, GW_ASupervisorReachesItsOwnSandboxOnlyAndNotAfterStop) {
  pb::Sandbox first, second;
  ASSERT_TRUE(create("one", &first).ok());
  ASSERT_TRUE(create("two", &second).ok());
  auto one = supervisor(first);
  pb::ReportPolicyStatusRequest foreign;
  foreign.set_sandbox_id(second.metadata().id());
  foreign.set_version(1);
  foreign.set_status(pb::POLICY_STATUS_LOADED);
  pb::ReportPolicyStatusResponse response;
  EXPECT_EQ(pb::OpenShell::NewStub(channel)->ReportPolicyStatus(one->context().get(), foreign, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  one->become_ready();
  auto stop = in_default(pb::StopSandboxRequest{});
  stop.set_name("one");
  grpc::ClientContext ctx;
  pb::SandboxResponse stopped;
  ASSERT_TRUE(eventually([&] { return get("one").status().phase() == pb::SANDBOX_PHASE_READY; }));
  ASSERT_TRUE(stub->StopSandbox(&ctx, stop, &stopped).ok());
  EXPECT_EQ(stopped.sandbox().status().phase(), pb::SANDBOX_PHASE_STOPPED);
  EXPECT_FALSE(one->loaded(1).ok()) << "the token died with the generation";
}

TEST_F(SandboxPath, GW_WatchAndLogs) {  // GW-16, LOG-02
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  auto one = supervisor(sandbox);
  auto watch = in_default(pb::WatchSandboxRequest{});
  watch.set_sandbox("box");
  watch.set_follow_status(true);
  watch.set_follow_logs(true);
  watch.set_stop_on_terminal(true);
  grpc::ClientContext watch_ctx;
  auto events = stub->WatchSandbox(&watch_ctx, watch);
  pb::SandboxStreamEvent event;
  ASSERT_TRUE(events->Read(&event));
  EXPECT_EQ(event.sandbox().status().phase(), pb::SANDBOX_PHASE_PROVISIONING);
  auto push_ctx = one->context();
  pb::PushSandboxLogsResponse pushed;
  auto push = pb::OpenShell::NewStub(channel)->PushSandboxLogs(push_ctx.get(), &pushed);
  pb::PushSandboxLogsRequest batch;
  batch.set_sandbox_id(sandbox.metadata().id());
  batch.add_logs()->set_message("denied");
  batch.mutable_logs(0)->set_level("WARN");
  push->Write(batch);
  push->WritesDone();
  ASSERT_TRUE(push->Finish().ok());
  ASSERT_TRUE(events->Read(&event));
  EXPECT_EQ(event.log().message(), "denied");
  EXPECT_EQ(event.log().source(), "sandbox");
  one->become_ready();
  pb::SandboxPhase last = pb::SANDBOX_PHASE_UNSPECIFIED;
  while (events->Read(&event)) last = event.sandbox().status().phase();
  EXPECT_TRUE(events->Finish().ok());
  EXPECT_EQ(last, pb::SANDBOX_PHASE_READY);
  auto logs = in_default(pb::GetSandboxLogsRequest{});
  logs.set_sandbox("box");
  logs.set_min_level("warn");
  grpc::ClientContext logs_ctx;
  pb::GetSandboxLogsResponse got;
  ASSERT_TRUE(stub->GetSandboxLogs(&logs_ctx, logs, &got).ok());
  ASSERT_EQ(got.logs_size(), 1);
}

TEST_F(SandboxPath, GW_ARestartedGatewayFindsItsSandboxAndExecWorks) {
  keep = true;
  finish();
  begin();
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  auto one = supervisor(sandbox);
  one->become_ready();
  ASSERT_TRUE(eventually([&] { return get("box").status().phase() == pb::SANDBOX_PHASE_READY; }));
  one->disconnect();
  finish();
  EXPECT_EQ(driver.count("stop"), 0) << "keep_on_shutdown";
  begin();
  auto same = supervisor(sandbox);
  same->connect(2);
  ASSERT_TRUE(eventually([&] { return get("box").status().phase() == pb::SANDBOX_PHASE_READY; }));
  auto request = command("box", "cat");
  request.set_stdin("still here");
  EXPECT_EQ(exec(request).out, "still here");
  EXPECT_EQ(driver.count("start"), 0);
}

TEST_F(SandboxPath, GW_AShutdownStopsSandboxesAndTheNextStartPutsThemBack) {
  pb::Sandbox sandbox;
  ASSERT_TRUE(create("box", &sandbox).ok());
  finish();
  EXPECT_EQ(driver.count("stop"), 1);
  begin();
  ASSERT_TRUE(eventually([&] { return driver.count("start") == 1; }));
  EXPECT_TRUE(eventually([&] { return get("box").status().phase() == pb::SANDBOX_PHASE_STARTING; }));
}

}  // namespace
}  // namespace openshell
