#include "cli/gateway_client.hpp"

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/client_interceptor.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "cli/endpoint.hpp"
#include "cli/ssh/byte_forward.hpp"
#include "openshell.grpc.pb.h"
#include "rpc_status.pb.h"

namespace openshell::cli {
namespace {

constexpr std::chrono::seconds kCallTimeout{30};
constexpr int kPingMs = 10'000;
constexpr int kConnectTimeoutMs = 10'000;
constexpr const char* kAnswerOfGateway = "openshell/answer-of-gateway";  // payload: the serialised details, maybe empty

absl::StatusOr<std::string> read_pem(const std::filesystem::path& path, std::string_view what) {
  std::ifstream file{path, std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty())
    return absl::FailedPreconditionError(absl::StrCat("failed to read TLS ", std::string{what}, " from ", path.string()));
  return text.str();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials_for(const Target& target) {
  if (target.endpoint.starts_with("http://")) return grpc::InsecureChannelCredentials();
  if (!target.endpoint.starts_with("https://")) {
    return absl::InvalidArgumentError(absl::StrCat("gateway endpoint '", target.endpoint, "' must start with https:// or http://"));
  }
  if (target.insecure) {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_verify_server_certs(false);
    options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
    options.set_check_call_host(false);
    return grpc::experimental::TlsCredentials(options);
  }
  grpc::SslCredentialsOptions options;
  if (target.bundle && target.auth_mode == "oidc") {
    // The token says who we are; what is there of the bundle says whom to trust, and may come along.
    std::error_code error;
    if (std::filesystem::exists(target.bundle->ca, error)) {
      auto ca = read_pem(target.bundle->ca, "CA");
      if (!ca.ok()) return ca.status();
      options.pem_root_certs = *std::move(ca);
    }
  } else if (target.bundle) {
    auto ca = read_pem(target.bundle->ca, "CA");
    if (!ca.ok()) return ca.status();
    auto certificate = read_pem(target.bundle->certificate, "cert");
    if (!certificate.ok()) return certificate.status();
    auto key = read_pem(target.bundle->key, "key");
    if (!key.ok()) return key.status();
    options = {*std::move(ca), *std::move(key), *std::move(certificate)};
  }
  return grpc::SslCredentials(options);
}

absl::Status answer(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result{static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
  result.SetPayload(kAnswerOfGateway, absl::Cord(status.error_details()));
  return result;
}

std::string code_name(absl::StatusCode code) {
  std::string name;
  bool upper = true;
  for (const char c : absl::StatusCodeToString(code)) {  // NOT_FOUND -> NotFound
    if (c == '_') {
      upper = true;
    } else {
      name += upper ? c : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      upper = false;
    }
  }
  return name;
}

}  // namespace

std::string describe(const absl::Status& status) {
  const auto payload = status.GetPayload(kAnswerOfGateway);
  if (!payload) return std::string{status.message()};
  auto text = absl::StrCat("status: ", code_name(status.code()), ", message: \"", status.message(), "\"");
  google::rpc::Status details;
  if (!details.ParseFromString(std::string{*payload})) return text;
  for (const auto& detail : details.details()) {
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&bad)) {
      for (const auto& violation : bad.field_violations()) absl::StrAppend(&text, "\n  ", violation.field(), ": ", violation.description());
    } else if (detail.UnpackTo(&retry)) {
      absl::StrAppend(&text, "\n  retry after ", retry.retry_delay().seconds() + (retry.retry_delay().nanos() > 0 ? 1 : 0), "s");
    }
  }
  return text;
}

/// Puts the bearer on every call, also on a plaintext channel, where gRPC's own call credentials do not go.
class BearerInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit BearerInterceptor(const std::string& value) : value_{value} {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->emplace("authorization", value_);
    methods->Proceed();
  }

 private:
  const std::string& value_;
};

class BearerFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit BearerFactory(const Secret& token) : value_{absl::StrCat("Bearer ", std::string{token.reveal()})} {}
  ~BearerFactory() override { wipe(value_); }
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new BearerInterceptor{value_};
  }

 private:
  std::string value_;
};

struct GatewayClient::Connection {
  std::string where;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::OpenShell::Stub> stub;

  template <class Response, class Request, class Method>
  absl::StatusOr<Response> call(Method method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    context.set_wait_for_ready(false);
    Response response;
    auto status = answer((stub.get()->*method)(&context, request, &response));
    if (!status.ok()) return explained(status);
    return response;
  }

  /// A gateway that cannot be reached is not an answer of it.
  absl::Status explained(const absl::Status& status) const {
    const bool no_connection = status.code() == absl::StatusCode::kUnavailable && channel->GetState(false) != GRPC_CHANNEL_READY;
    if (!no_connection) return status;
    return absl::UnavailableError(
        absl::StrCat("failed to connect to gateway ", where, ": ", status.message(),
                     ". Start the gateway service with the installed package manager, or register a different endpoint with "
                     "`openshell gateway add <endpoint>`."));
  }
};

GatewayClient::GatewayClient(std::shared_ptr<Connection> connection) : connection_{std::move(connection)} {}
GatewayClient::GatewayClient(GatewayClient&&) noexcept = default;
GatewayClient::~GatewayClient() = default;

absl::StatusOr<GatewayClient> GatewayClient::open(const Target& target) {
  auto credentials = credentials_for(target);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto connection = std::make_shared<Connection>();
  connection->where = absl::StrCat("'", target.name, "' at ", target.endpoint);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!target.bearer.empty()) interceptors.push_back(std::make_unique<BearerFactory>(target.bearer));
  connection->channel = grpc::experimental::CreateCustomChannelWithInterceptors(split_endpoint(target.endpoint).authority(), *credentials,
                                                                                arguments, std::move(interceptors));
  connection->stub = v1::OpenShell::NewStub(connection->channel);
  return GatewayClient{std::move(connection)};
}

#define X(function, rpc, request, response)                                          \
  absl::StatusOr<v1::response> GatewayClient::function(const v1::request& message) { \
    return connection_->call<v1::response>(&v1::OpenShell::Stub::rpc, message);      \
  }
OPENSHELL_CLI_CALLS(X)
#undef X

absl::StatusOr<sandbox::v1::GetSandboxConfigResponse> GatewayClient::get_sandbox_config(
    const sandbox::v1::GetSandboxConfigRequest& message) {
  return connection_->call<sandbox::v1::GetSandboxConfigResponse>(&v1::OpenShell::Stub::GetSandboxConfig, message);
}
absl::StatusOr<sandbox::v1::GetGatewayConfigResponse> GatewayClient::get_gateway_config(
    const sandbox::v1::GetGatewayConfigRequest& message) {
  return connection_->call<sandbox::v1::GetGatewayConfigResponse>(&v1::OpenShell::Stub::GetGatewayConfig, message);
}

absl::Status GatewayClient::watch(const v1::WatchSandboxRequest& message, const TakeEvent& take,
                                  std::optional<std::chrono::system_clock::time_point> until) {
  grpc::ClientContext context;
  if (until) context.set_deadline(*until);
  auto stream = connection_->stub->WatchSandbox(&context, message);
  v1::SandboxStreamEvent event;
  bool enough = false;
  while (!enough && stream->Read(&event)) enough = !take(event);
  if (enough) context.TryCancel();
  const auto status = answer(stream->Finish());
  return enough ? absl::OkStatus() : connection_->explained(status);
}

absl::Status GatewayClient::exec(const v1::ExecSandboxRequest& message, const TakeOutput& take) {
  grpc::ClientContext context;
  auto stream = connection_->stub->ExecSandbox(&context, message);
  v1::ExecSandboxEvent event;
  while (stream->Read(&event)) take(event);
  return connection_->explained(answer(stream->Finish()));
}

absl::Status GatewayClient::exec_interactive(const v1::ExecSandboxRequest& start, const NextInput& next, const TakeOutput& take) {
  // The writer may still wait for input when the call is over, so what it touches is shared and it is left behind.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ExecSandboxInput, v1::ExecSandboxEvent>> stream;
    std::mutex mutex;  // of `input_error`: the reader may end first
    absl::Status input_error;
  };
  auto call = std::make_shared<Call>();
  call->stream = connection_->stub->ExecSandboxInteractive(&call->context);
  v1::ExecSandboxInput first;
  *first.mutable_start() = start;
  if (call->stream->Write(first)) {
    std::thread{[call, next] {
      while (true) {
        auto piece = next();
        if (!piece.ok()) {
          {
            const std::lock_guard lock{call->mutex};
            call->input_error = piece.status();
          }
          call->context.TryCancel();
          return;
        }
        if (!piece->has_value()) break;
        v1::ExecSandboxInput input;
        if ((*piece)->resized) {
          input.mutable_resize()->set_cols((*piece)->resized->columns);
          input.mutable_resize()->set_rows((*piece)->resized->rows);
        } else {
          input.set_stdin(std::move((*piece)->bytes));
        }
        if (!call->stream->Write(input)) return;
      }
      call->stream->WritesDone();
    }}.detach();
  }
  v1::ExecSandboxEvent event;
  while (call->stream->Read(&event)) take(event);
  const auto status = answer(call->stream->Finish());
  const std::lock_guard lock{call->mutex};
  return !call->input_error.ok() ? call->input_error : connection_->explained(status);
}

namespace {

/// A ForwardTcp call. It announces that it knows the empty frame, which is the end of the target's output while ours goes on.
class ForwardCall final : public ByteForward {
 public:
  ForwardCall(v1::OpenShell::Stub& stub, std::shared_ptr<void> keep, std::function<absl::Status(const absl::Status&)> explain)
      : keep_{std::move(keep)}, explain_{std::move(explain)} {
    context_.AddMetadata("openshell-half-close", "1");
    stream_ = stub.ForwardTcp(&context_);
  }
  ~ForwardCall() override {
    if (finished_) return;
    context_.TryCancel();
    (void)stream_->Finish();
  }
  void begin(const v1::TcpForwardInit& init) {
    v1::TcpForwardFrame frame;
    *frame.mutable_init() = init;
    stream_->Write(frame);
  }
  bool write(std::string bytes) override {
    v1::TcpForwardFrame frame;
    frame.set_data(std::move(bytes));
    return stream_->Write(frame);
  }
  void end_output() override { stream_->WritesDone(); }
  absl::StatusOr<std::optional<std::string>> read() override {
    v1::TcpForwardFrame frame;
    if (stream_->Read(&frame)) return std::optional{std::move(*frame.mutable_data())};
    finished_ = true;
    if (const auto status = explain_(answer(stream_->Finish())); !status.ok()) return status;
    return std::optional<std::string>{};
  }
  void cancel() override { context_.TryCancel(); }

 private:
  const std::shared_ptr<void> keep_;
  const std::function<absl::Status(const absl::Status&)> explain_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TcpForwardFrame, v1::TcpForwardFrame>> stream_;
  bool finished_ = false;
};

}  // namespace

std::shared_ptr<ByteForward> GatewayClient::open_forward(const v1::TcpForwardInit& init) {
  auto call = std::make_shared<ForwardCall>(
      *connection_->stub, connection_, [connection = connection_](const absl::Status& status) { return connection->explained(status); });
  call->begin(init);
  return call;
}

}  // namespace openshell::cli
