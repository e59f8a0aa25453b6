#include "tests/integration/supervisor/scripted_gateway.hpp"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "openshell.grpc.pb.h"
#include "policy/hash.hpp"

namespace openshell::supervisor::test {
namespace {

using namespace std::chrono_literals;
namespace exec_wire = internal::exec::v1;
using RelayServer = grpc::ServerReaderWriter<v1::RelayFrame, v1::RelayFrame>;
using SessionServer = grpc::ServerReaderWriter<v1::GatewayMessage, v1::SupervisorMessage>;

constexpr auto kPatience = 20s;

std::string framed(const exec_wire::ToSupervisor& message) {
  const auto length = static_cast<std::uint32_t>(message.ByteSizeLong());
  std::string out{static_cast<char>(length >> 24), static_cast<char>(length >> 16), static_cast<char>(length >> 8),
                  static_cast<char>(length)};
  message.AppendToString(&out);
  return out;
}

}  // namespace

struct ScriptedGateway::State final : v1::OpenShell::Service {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  sandbox::v1::GetSandboxConfigResponse config;
  v1::GetSandboxProviderEnvironmentResponse environment;
  std::vector<v1::ReportPolicyStatusRequest> statuses;
  std::vector<v1::ReportSandboxConfigurationRequest> admissions;
  std::vector<std::string> applied, logs, analysed;
  std::vector<int> exits;
  bool finalized = false;
  SessionServer* session = nullptr;
  grpc::ServerContext* session_context = nullptr;
  std::size_t sessions = 0;
  std::map<std::string, std::function<void(RelayServer*, grpc::ServerContext*)>> relays;
  std::map<std::string, std::string> relay_errors;
  std::size_t channels = 0;
  int port = 0;
  std::unique_ptr<grpc::Server> server;

  template <class Done>
  bool wait(Done done) const {
    std::unique_lock lock{mutex};
    return changed.wait_for(lock, kPatience, done);
  }
  template <class Change>
  grpc::Status change(Change what) {
    const std::lock_guard lock{mutex};
    what();
    changed.notify_all();
    return grpc::Status::OK;
  }

  static bool known(grpc::ServerContext* context) {
    const auto bearer = context->client_metadata().find("authorization");
    return bearer != context->client_metadata().end() && bearer->second == "Bearer gateway-token";
  }

  grpc::Status GetSandboxConfig(grpc::ServerContext* context, const sandbox::v1::GetSandboxConfigRequest* request,
                                sandbox::v1::GetSandboxConfigResponse* response) override {
    if (!known(context)) return {grpc::StatusCode::UNAUTHENTICATED, "bearer"};
    if (request->name() != "box" || request->has_workspace_scope()) return {grpc::StatusCode::INVALID_ARGUMENT, "name"};
    return change([&] { *response = config; });
  }
  grpc::Status GetSandboxProviderEnvironment(grpc::ServerContext*, const v1::GetSandboxProviderEnvironmentRequest*,
                                             v1::GetSandboxProviderEnvironmentResponse* response) override {
    return change([&] {
      *response = environment;
      response->set_policy_hash(config.policy_hash());
      response->set_provider_env_revision(config.provider_env_revision());
      response->set_provider_attachment_epoch(config.provider_attachment_epoch());
    });
  }
  grpc::Status UpdateConfig(grpc::ServerContext*, const v1::UpdateConfigRequest* request, v1::UpdateConfigResponse*) override {
    return change([&] { install(request->policy(), config.version() + 1); });
  }
  grpc::Status ReportPolicyStatus(grpc::ServerContext*, const v1::ReportPolicyStatusRequest* request,
                                  v1::ReportPolicyStatusResponse*) override {
    return change([&] { statuses.push_back(*request); });
  }
  grpc::Status ReportSandboxConfiguration(grpc::ServerContext*, const v1::ReportSandboxConfigurationRequest* request,
                                          v1::ReportSandboxConfigurationResponse*) override {
    {
      const std::lock_guard lock{mutex};
      if (request->expected_instance_id() != config.configuration_instance_id()) return {grpc::StatusCode::ABORTED, "another instance"};
    }
    return change([&] {
      config.set_configuration_instance_id(request->admission().instance_id());
      admissions.push_back(*request);
    });
  }
  grpc::Status ReportMainProcessExit(grpc::ServerContext*, const v1::ReportMainProcessExitRequest* request,
                                     v1::ReportMainProcessExitResponse*) override {
    return change([&] { exits.push_back(request->exit_code()); });
  }
  grpc::Status FinalizeMainProcessExit(grpc::ServerContext*, const v1::FinalizeMainProcessExitRequest*,
                                       v1::FinalizeMainProcessExitResponse*) override {
    return change([&] { finalized = true; });
  }
  grpc::Status SubmitPolicyAnalysis(grpc::ServerContext*, const v1::SubmitPolicyAnalysisRequest* request,
                                    v1::SubmitPolicyAnalysisResponse*) override {
    return change([&] {
      for (const auto& summary : request->summaries()) analysed.push_back(summary.host());
    });
  }
  grpc::Status PushSandboxLogs(grpc::ServerContext*, grpc::ServerReader<v1::PushSandboxLogsRequest>* reader,
                               v1::PushSandboxLogsResponse*) override {
    v1::PushSandboxLogsRequest request;
    while (reader->Read(&request)) {
      change([&] {
        for (const auto& line : request.logs()) {
          const auto denial = line.fields().find("denial_id");
          logs.push_back(line.level() + " " + line.message() + (denial == line.fields().end() ? "" : " denial_id"));
        }
      });
    }
    return grpc::Status::OK;
  }

  grpc::Status ConnectSupervisor(grpc::ServerContext* context, SessionServer* stream) override {
    v1::SupervisorMessage message;
    if (!stream->Read(&message) || !message.has_hello()) return {grpc::StatusCode::INVALID_ARGUMENT, "expected SupervisorHello"};
    v1::GatewayMessage accepted;
    accepted.mutable_session_accepted()->set_session_id("session-" + std::to_string(sessions + 1));
    accepted.mutable_session_accepted()->mutable_heartbeat_interval()->set_seconds(15);
    stream->Write(accepted);
    change([&] {
      session = stream;
      session_context = context;
      ++sessions;
    });
    while (stream->Read(&message)) {
      change([&] {
        if (message.has_config_update_result()) applied.push_back(message.config_update_result().update_id());
        if (message.has_relay_open_result() && !message.relay_open_result().success())
          relay_errors[message.relay_open_result().channel_id()] = message.relay_open_result().error();
      });
    }
    change([&] {
      if (session == stream) session = nullptr;
    });
    return grpc::Status::OK;
  }

  grpc::Status RelayStream(grpc::ServerContext* context, RelayServer* stream) override {
    v1::RelayFrame frame;
    if (!stream->Read(&frame) || !frame.has_init())
      return {grpc::StatusCode::INVALID_ARGUMENT, "first RelayFrame must be init with non-empty channel_id"};
    std::function<void(RelayServer*, grpc::ServerContext*)> serve;
    {
      const std::lock_guard lock{mutex};
      const auto found = relays.find(frame.init().channel_id());
      if (found == relays.end()) return {grpc::StatusCode::NOT_FOUND, "unknown or expired relay channel"};
      serve = found->second;
      relays.erase(found);
    }
    serve(stream, context);
    return grpc::Status::OK;
  }

  void install(const sandbox::v1::SandboxPolicy& policy, std::uint32_t version) {
    *config.mutable_policy() = policy;
    config.set_version(version);
    config.set_policy_hash(policy::policy_hash(policy).str());
    config.set_config_revision(version * 1000ULL + config.settings_size());
    config.set_policy_source(sandbox::v1::POLICY_SOURCE_SANDBOX);
    config.set_configuration_admitted(true);
    config.set_workspace("default");
  }

  bool tell(const v1::GatewayMessage& message) {
    const std::lock_guard lock{mutex};
    return session != nullptr && session->Write(message);
  }

  std::string open_exec(std::function<void(RelayServer*, grpc::ServerContext*)> serve) {
    v1::GatewayMessage message;
    auto& open = *message.mutable_relay_open();
    {
      const std::lock_guard lock{mutex};
      open.set_channel_id("channel-" + std::to_string(++channels));
      relays[open.channel_id()] = std::move(serve);
    }
    open.mutable_ssh();
    open.set_service_id("openshell.exec/1");
    tell(message);
    return open.channel_id();
  }
};

ScriptedGateway::ScriptedGateway() : state_{std::make_shared<State>()} {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &state_->port);
  builder.RegisterService(state_.get());
  state_->server = builder.BuildAndStart();
}

ScriptedGateway::~ScriptedGateway() {
  drop_session();
  state_->server->Shutdown(std::chrono::system_clock::now() + 1s);
  state_->server->Wait();
}

std::string ScriptedGateway::endpoint() const { return "http://127.0.0.1:" + std::to_string(state_->port); }

void ScriptedGateway::set_policy(const sandbox::v1::SandboxPolicy& policy, std::uint32_t version) {
  state_->change([&] { state_->install(policy, version); });
}

void ScriptedGateway::set_setting(const std::string& key, const std::string& value) {
  state_->change([&] {
    (*state_->config.mutable_settings())[key].mutable_value()->set_string_value(value);
    state_->config.set_config_revision(state_->config.config_revision() + 1);
  });
}

void ScriptedGateway::set_environment(const std::string& key, const std::string& value) {
  state_->change([&] {
    (*state_->environment.mutable_environment())[key] = value;
    state_->config.set_provider_env_revision(state_->config.provider_env_revision() + 1);
  });
}

bool ScriptedGateway::nudge(const std::string& update_id) {
  v1::GatewayMessage message;
  message.mutable_config_update()->set_update_id(update_id);
  return state_->tell(message);
}

bool ScriptedGateway::wait_for_status(std::uint32_t version, v1::PolicyStatus status) const {
  return state_->wait([&] {
    return std::any_of(state_->statuses.begin(), state_->statuses.end(),
                       [&](const auto& one) { return one.version() == version && one.status() == status; });
  });
}
bool ScriptedGateway::wait_for_session() const {
  return state_->wait([&] { return state_->session != nullptr; });
}
bool ScriptedGateway::wait_for_applied(const std::string& update_id) const {
  return state_->wait([&] { return std::count(state_->applied.begin(), state_->applied.end(), update_id) > 0; });
}
bool ScriptedGateway::wait_for_main_exit(int code) const {
  return state_->wait([&] { return std::count(state_->exits.begin(), state_->exits.end(), code) > 0 && state_->finalized; });
}
bool ScriptedGateway::wait_for_log(const std::string& text) const {
  return state_->wait([&] {
    return std::any_of(state_->logs.begin(), state_->logs.end(), [&](const auto& line) { return line.find(text) != std::string::npos; });
  });
}
bool ScriptedGateway::wait_for_analysis(const std::string& host) const {
  return state_->wait([&] { return std::count(state_->analysed.begin(), state_->analysed.end(), host) > 0; });
}
bool ScriptedGateway::wait_for_admission(v1::ConfigurationAdmissionState admission) const {
  return state_->wait([&] {
    return std::any_of(state_->admissions.begin(), state_->admissions.end(),
                       [&](const auto& one) { return one.admission().state() == admission; });
  });
}

void ScriptedGateway::drop_session() {
  state_->change([&] {
    if (state_->session) state_->session_context->TryCancel();
    state_->session = nullptr;
  });
}

ScriptedGateway::ExecOutcome ScriptedGateway::exec(const std::string& command, const std::string& input) {
  auto outcome = std::make_shared<ExecOutcome>();
  auto done = std::make_shared<bool>(false);
  const auto channel = state_->open_exec([=, state = state_.get()](RelayServer* stream, grpc::ServerContext*) {
    const auto send = [&](const exec_wire::ToSupervisor& message) {
      v1::RelayFrame frame;
      frame.set_data(framed(message));
      stream->Write(frame);
    };
    exec_wire::ToSupervisor start;
    start.mutable_start()->set_exec_id("0d9f2c1e-1111-4222-8333-" + std::string(12 - std::to_string(state->channels).size(), '0') +
                                       std::to_string(state->channels));
    start.mutable_start()->set_command(command);
    send(start);
    std::size_t sent = 0, credit = 262'144;
    bool ended = false;
    const auto feed = [&] {
      while (sent < input.size() && credit > 0) {
        exec_wire::ToSupervisor piece;
        const auto size = std::min({input.size() - sent, credit, std::size_t{32'768}});
        piece.set_stdin(input.substr(sent, size));
        send(piece);
        sent += size;
        credit -= size;
      }
      if (sent < input.size() || ended) return;
      ended = true;
      exec_wire::ToSupervisor end;
      end.mutable_stdin_end();
      send(end);
    };
    feed();
    std::string buffer;
    v1::RelayFrame frame;
    while (stream->Read(&frame)) {
      buffer += frame.data();
      while (buffer.size() >= 4) {
        std::size_t length = 0;
        for (int i = 0; i < 4; ++i) length = length * 256 + static_cast<unsigned char>(buffer[i]);
        if (buffer.size() < 4 + length) break;
        exec_wire::ToGateway message;
        message.ParseFromString(buffer.substr(4, length));
        buffer.erase(0, 4 + length);
        outcome->out += message.stdout();
        outcome->err += message.stderr();
        if (message.has_stdin_credit()) credit += message.stdin_credit().bytes();
        if (message.has_exit()) outcome->code = message.exit().code();
        if (message.has_failure()) outcome->failure = message.failure().code();
      }
      feed();
    }
    state->change([&] { *done = true; });
  });
  state_->wait([&] { return *done || state_->relay_errors.count(channel) != 0; });
  const std::lock_guard lock{state_->mutex};
  outcome->relay_error = state_->relay_errors[channel];
  return *outcome;
}

bool ScriptedGateway::exec_and_cancel(const std::string& command) {
  auto running = std::make_shared<bool>(false);
  state_->open_exec([=, state = state_.get()](RelayServer* stream, grpc::ServerContext* context) {
    exec_wire::ToSupervisor start;
    start.mutable_start()->set_exec_id("0d9f2c1e-9999-4222-8333-444455556666");
    start.mutable_start()->set_command(command);
    v1::RelayFrame frame;
    frame.set_data(framed(start));
    stream->Write(frame);
    if (stream->Read(&frame)) context->TryCancel();  // `started` came
    state->change([&] { *running = true; });
  });
  return state_->wait([&] { return *running; });
}

}  // namespace openshell::supervisor::test
