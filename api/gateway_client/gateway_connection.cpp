#include "api/gateway_client/gateway_connection.hpp"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "api/gateway_client/conversion.hpp"
#include "api/gateway_client/gateway_stub.hpp"
#include "api/gateway_client/grpc_byte_stream.hpp"
#include "observability/fault_point.hpp"

namespace openshell::api {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kFirstReconnectMs = 200;
constexpr int kLongestReconnectMs = 10'000;

/// How a relay's bytes stand in RelayFrame.
struct RelayTraits {
  static constexpr std::size_t kMaxBytes = 16'384;
  static void put(v1::RelayFrame& frame, std::string_view bytes) { frame.set_data(bytes.data(), bytes.size()); }
  static std::optional<std::string> take(v1::RelayFrame& frame) {
    if (!frame.has_data()) return std::nullopt;
    return std::move(*frame.mutable_data());
  }
};

absl::StatusOr<std::string> read_text(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return absl::FailedPreconditionError("the gateway's CA file '" + path + "' cannot be read");
  return text.str();
}

grpc::ChannelArguments channel_arguments(const GatewayOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(8 * 1024 * 1024);
  if (!options.tls_server_name.empty()) arguments.SetSslTargetNameOverride(options.tls_server_name);
  return arguments;
}

/// One unary call: what has to live until it ended.
template <class Request, class Response>
struct Unary {
  grpc::ClientContext context;
  Request request;
  Response response;
};

/// `GetSandboxConfig` of GetSandboxConfigRequest.
template <class Request>
std::string_view method_name() {
  std::string_view name = Request::descriptor()->name();
  name.remove_suffix(std::string_view{"Request"}.size());
  return name;
}

template <class Request, class Response, class Method, class Done>
void call(const GatewayConnection& connection, Method method, Request request, Done done) {
  fault::point("gateway", method_name<Request>(), "begin");
  auto state = std::make_shared<Unary<Request, Response>>();
  if (auto status = connection.authorise(state->context); !status.ok()) return done(std::move(status));
  state->request = std::move(request);
  state->context.set_deadline(std::chrono::system_clock::now() + kGatewayCallDeadline);
  state->context.set_wait_for_ready(true);  // a channel in back-off waits for its deadline instead of failing at once
  auto shared_done = std::make_shared<Done>(std::move(done));
  (static_cast<v1::OpenShell::StubInterface::async_interface*>(connection.stub().rpc->async())->*method)(
      &state->context, &state->request, &state->response, [state, shared_done](const grpc::Status& status) {
        fault::point("gateway", method_name<Request>(), "end");
        if (!status.ok()) return (*shared_done)(to_absl(status));
        (*shared_done)(std::move(state->response));
      });
}

using Async = v1::OpenShell::StubInterface::async_interface;
template <class Request, class Response>
using Method = void (Async::*)(grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

}  // namespace

absl::StatusOr<std::shared_ptr<GatewayConnection>> GatewayConnection::make(GatewayOptions options, std::shared_ptr<TokenSlots> tokens) {
  constexpr std::string_view kHttps = "https://", kHttp = "http://";
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string target;
  if (options.endpoint.starts_with(kHttps)) {
    if (options.ca_path.empty()) return absl::FailedPreconditionError("OPENSHELL_TLS_CA is required with an https endpoint");
    auto roots = read_text(options.ca_path);
    if (!roots.ok()) return roots.status();
    credentials = grpc::SslCredentials({*roots, "", ""});
    target = options.endpoint.substr(kHttps.size());
  } else if (options.endpoint.starts_with(kHttp)) {
    credentials = grpc::InsecureChannelCredentials();
    target = options.endpoint.substr(kHttp.size());
  } else {
    return absl::InvalidArgumentError("the gateway endpoint '" + options.endpoint + "' must begin with https:// or http://");
  }
  while (target.ends_with('/')) target.pop_back();
  if (target.empty()) return absl::InvalidArgumentError("the gateway endpoint '" + options.endpoint + "' names no host");
  auto channel = grpc::CreateCustomChannel(target, credentials, channel_arguments(options));
  auto stub = std::make_unique<Stub>(channel);
  return std::shared_ptr<GatewayConnection>{new GatewayConnection{std::move(options), std::move(tokens), std::move(stub)}};
}

GatewayConnection::GatewayConnection(GatewayOptions options, std::shared_ptr<TokenSlots> tokens, std::unique_ptr<Stub> stub)
    : options_{std::move(options)}, tokens_{std::move(tokens)}, stub_{std::move(stub)} {}
GatewayConnection::~GatewayConnection() = default;

absl::Status GatewayConnection::authorise(grpc::ClientContext& context) const {
  auto bearer = tokens_->gateway_authorization(std::chrono::system_clock::now());
  if (!bearer.ok()) return bearer.status();
  context.AddMetadata("authorization", std::string{bearer->reveal()});
  return absl::OkStatus();
}

void GatewayConnection::get_config(Done<supervisor::ConfigSnapshot> done) {
  sandbox::v1::GetSandboxConfigRequest request;
  request.set_name(options_.sandbox_name);  // without a workspace: the token says whose configuration it is
  using Response = sandbox::v1::GetSandboxConfigResponse;
  Method<decltype(request), Response> method = &Async::GetSandboxConfig;
  call<decltype(request), Response>(*this, method, request, [done = std::move(done)](absl::StatusOr<Response> response) mutable {
    if (!response.ok()) return done(response.status());
    done(to_snapshot(*std::move(response)));
  });
}

void GatewayConnection::get_environment(Done<supervisor::ProviderEnvironment> done) {
  v1::GetSandboxProviderEnvironmentRequest request;
  request.set_sandbox_id(options_.sandbox_id);
  request.set_supports_static_credential_bindings(true);
  request.set_supports_stable_placeholder_environment_keys(true);
  using Response = v1::GetSandboxProviderEnvironmentResponse;
  Method<decltype(request), Response> method = &Async::GetSandboxProviderEnvironment;
  call<decltype(request), Response>(*this, method, request, [done = std::move(done)](absl::StatusOr<Response> response) mutable {
    if (!response.ok()) return done(response.status());
    supervisor::ProviderEnvironment out{response->provider_env_revision(), response->provider_attachment_epoch(), response->policy_hash(),
                                        nullptr};
    out.content = std::make_shared<const Response>(*std::move(response));
    done(std::move(out));
  });
}

namespace {
/// For RPCs whose answer says nothing but that it came.
template <class Response>
auto only_status(GatewayConnection::Sent done) {
  return [done = std::move(done)](absl::StatusOr<Response> response) mutable { done(response.status()); };
}
}  // namespace

void GatewayConnection::report_policy_status(const supervisor::PolicyStatus& status, Sent done) {
  v1::ReportPolicyStatusRequest request;
  request.set_sandbox_id(options_.sandbox_id);
  request.set_version(static_cast<std::uint32_t>(status.revision.value));
  request.set_status(status.outcome == supervisor::PolicyOutcome::loaded ? v1::POLICY_STATUS_LOADED : v1::POLICY_STATUS_FAILED);
  request.set_load_error(status.error);
  using Response = v1::ReportPolicyStatusResponse;
  Method<decltype(request), Response> method = &Async::ReportPolicyStatus;
  call<decltype(request), Response>(*this, method, request, only_status<Response>(std::move(done)));
}

void GatewayConnection::report_admission(const supervisor::AdmissionReport& report, Sent done) {
  v1::ReportSandboxConfigurationRequest request;
  request.set_sandbox_id(options_.sandbox_id);
  fill(report, options_.instance_id, request);
  using Response = v1::ReportSandboxConfigurationResponse;
  Method<decltype(request), Response> method = &Async::ReportSandboxConfiguration;
  call<decltype(request), Response>(*this, method, request, only_status<Response>(std::move(done)));
}

void GatewayConnection::report_readiness(const supervisor::ReadinessReport& report, Done<supervisor::ReadinessAccepted> done) {
  v1::ReportProviderReadinessRequest request;
  request.set_sandbox_id(options_.sandbox_id);
  fill(report, options_.instance_id, request);
  using Response = v1::ReportProviderReadinessResponse;
  Method<decltype(request), Response> method = &Async::ReportProviderReadiness;
  call<decltype(request), Response>(*this, method, request, [done = std::move(done)](absl::StatusOr<Response> response) mutable {
    if (!response.ok()) return done(response.status());
    const auto& interval = response->report_interval();
    done(supervisor::ReadinessAccepted{std::chrono::seconds{interval.seconds()} + std::chrono::milliseconds{interval.nanos() / 1'000'000}});
  });
}

void GatewayConnection::report_endpoints(const supervisor::EndpointReport& report, Sent done) {
  v1::ReportEndpointStatusRequest request;
  request.set_sandbox_id(options_.sandbox_id);
  fill(report, request);
  using Response = v1::ReportEndpointStatusResponse;
  Method<decltype(request), Response> method = &Async::ReportEndpointStatus;
  call<decltype(request), Response>(*this, method, request, only_status<Response>(std::move(done)));
}

void GatewayConnection::submit_policy(const supervisor::PolicyUpload& upload, Sent done) {
  v1::UpdateConfigRequest request;
  request.set_sandbox(options_.sandbox_name);
  *request.mutable_policy() = *upload.policy;
  using Response = v1::UpdateConfigResponse;
  Method<decltype(request), Response> method = &Async::UpdateConfig;
  call<decltype(request), Response>(*this, method, request, only_status<Response>(std::move(done)));
}

void GatewayConnection::submit_analysis(const supervisor::DenialBatch& batch, Sent done) {
  v1::SubmitPolicyAnalysisRequest request;
  request.set_name(options_.sandbox_name);
  fill(batch, request);
  using Response = v1::SubmitPolicyAnalysisResponse;
  Method<decltype(request), Response> method = &Async::SubmitPolicyAnalysis;
  call<decltype(request), Response>(*this, method, request, only_status<Response>(std::move(done)));
}

void GatewayConnection::submit_proposals(v1::SubmitPolicyAnalysisRequest request, Done<v1::SubmitPolicyAnalysisResponse> done) {
  request.set_name(options_.sandbox_name);
  using Response = v1::SubmitPolicyAnalysisResponse;
  Method<v1::SubmitPolicyAnalysisRequest, Response> method = &Async::SubmitPolicyAnalysis;
  call<v1::SubmitPolicyAnalysisRequest, Response>(*this, method, std::move(request), std::move(done));
}

void GatewayConnection::get_drafts(Done<v1::GetDraftPolicyResponse> done) {
  v1::GetDraftPolicyRequest request;
  request.set_sandbox(options_.sandbox_name);
  using Response = v1::GetDraftPolicyResponse;
  Method<decltype(request), Response> method = &Async::GetDraftPolicy;
  call<decltype(request), Response>(*this, method, request, std::move(done));
}

void GatewayConnection::report_main_exit(int code, Sent done) {
  v1::ReportMainProcessExitRequest request;
  request.set_sandbox_id(options_.sandbox_id);
  request.set_instance_id(options_.instance_id);
  request.set_exit_code(code);
  using Response = v1::ReportMainProcessExitResponse;
  Method<decltype(request), Response> method = &Async::ReportMainProcessExit;
  call<decltype(request), Response>(*this, method, request, only_status<Response>(std::move(done)));
}

void GatewayConnection::finalize_main_exit(Sent done) {
  v1::FinalizeMainProcessExitRequest request;
  request.set_sandbox_id(options_.sandbox_id);
  request.set_instance_id(options_.instance_id);
  using Response = v1::FinalizeMainProcessExitResponse;
  Method<decltype(request), Response> method = &Async::FinalizeMainProcessExit;
  call<decltype(request), Response>(*this, method, request, only_status<Response>(std::move(done)));
}

void GatewayConnection::renew_tokens(Sent done) {
  using Response = v1::RefreshSandboxTokenResponse;
  Method<v1::RefreshSandboxTokenRequest, Response> method = &Async::RefreshSandboxToken;
  call<v1::RefreshSandboxTokenRequest, Response>(*this, method, v1::RefreshSandboxTokenRequest{},
                                                 [tokens = tokens_, done = std::move(done)](absl::StatusOr<Response> response) mutable {
                                                   if (!response.ok()) return done(response.status());
                                                   auto renewed = to_tokens(*response);
                                                   done(renewed.ok() ? tokens->replace(*std::move(renewed)) : renewed.status());
                                                 });
}

std::shared_ptr<egress::ByteStream> GatewayConnection::open_relay(const std::string& channel_id) {
  using Stream = GrpcByteStream<v1::RelayFrame, RelayTraits>;
  auto stream = Stream::open([&](grpc::ClientContext* context, grpc::ClientBidiReactor<v1::RelayFrame, v1::RelayFrame>* reactor) {
    (void)authorise(*context);  // without a valid bearer the gateway refuses the relay
    stub_->rpc->async()->RelayStream(context, reactor);
  });
  v1::RelayFrame first;
  first.mutable_init()->set_channel_id(channel_id);
  stream->send_first(std::move(first));  // a failure shows in the first read
  return stream;
}

}  // namespace openshell::api
