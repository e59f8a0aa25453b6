#include "api/shell.hpp"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <mutex>

#include "api/admitted_call.hpp"
#include "api/errors.hpp"
#include "api/faulty_call.hpp"
#include "api/grpc_call.hpp"
#include "observability/text.hpp"
#include "storage/store.hpp"

namespace openshell::api {
namespace {

constexpr std::string_view kServicePrefix = "/openshell.v1.OpenShell/";
constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr int kKeepaliveMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kMinPingIntervalMs = 5'000;  // clients ping every 10 s, idle or not

/// One bucket for all calls; the window starts again with the first call after its end.
class RateWindow {
 public:
  explicit RateWindow(RateLimit limit) : limit_{limit} {}
  /// Refused: RESOURCE_EXHAUSTED with the time until the window ends.
  absl::Status admit() {
    if (limit_.requests == 0 || limit_.window_seconds == 0) return absl::OkStatus();
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock{mutex_};
    if (now - start_ >= std::chrono::seconds{limit_.window_seconds}) {
      start_ = now;
      used_ = 0;
    }
    if (used_++ < limit_.requests) return absl::OkStatus();
    const auto left = start_ + std::chrono::seconds{limit_.window_seconds} - now;
    return with_retry(absl::ResourceExhaustedError("gRPC rate limit exceeded"), std::chrono::ceil<std::chrono::milliseconds>(left));
  }

 private:
  RateLimit limit_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point start_{};
  std::uint64_t used_ = 0;
};

std::vector<std::string> metadata(const grpc::CallbackServerContext& ctx, const char* key) {
  std::vector<std::string> values;
  const auto range = ctx.client_metadata().equal_range(key);
  for (auto it = range.first; it != range.second; ++it) values.emplace_back(it->second.data(), it->second.size());
  return values;
}

/// `ipv4:127.0.0.1:4711` and `ipv6:%5B::1%5D:4711` as people write them.
std::string caller_address(std::string peer) {
  for (const std::string_view prefix : {"ipv4:", "ipv6:"}) {
    if (peer.starts_with(prefix)) peer.erase(0, prefix.size());
  }
  for (const auto& [coded, plain] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    if (const auto at = peer.find(coded); at != std::string::npos) peer.replace(at, 3, plain);
  }
  return peer;
}

/// gRPC bounds the metadata of a call (8 KiB), so these are few and short.
std::map<std::string, std::string> hints(const grpc::CallbackServerContext& ctx) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : ctx.client_metadata()) {
    if (key.starts_with("openshell-")) out.emplace(std::string{key.data(), key.size()}, std::string{value.data(), value.size()});
  }
  return out;
}

std::string peer_certificate(const grpc::CallbackServerContext& ctx) {
  const auto auth = ctx.auth_context();
  if (!auth || !auth->IsPeerAuthenticated()) return {};
  const auto values = auth->FindPropertyValues("x509_pem_cert");
  return values.empty() ? std::string{} : std::string{values.front().data(), values.front().size()};
}

std::string request_id(const grpc::CallbackServerContext& ctx) {
  const auto given = metadata(ctx, "x-request-id");
  return given.size() == 1 && !given.front().empty() && given.front().size() <= kMaxRequestIdBytes ? given.front() : storage::new_uuid();
}

class GenericService final : public grpc::CallbackGenericService {
 public:
  explicit GenericService(ShellOptions options) : options_{std::move(options)}, rate_{options_.rate_limit} {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* ctx) override {
    auto call = GrpcCall::create(*ctx);
    auto* reactor = call.get();
    auto context = std::make_shared<CallContext>();
    context->request_id = request_id(*ctx);
    ctx->AddInitialMetadata("x-request-id", context->request_id);
    begin(*ctx, std::move(call), std::move(context));
    return reactor;
  }

 private:
  void begin(const grpc::GenericCallbackServerContext& ctx, std::shared_ptr<GrpcCall> call, std::shared_ptr<CallContext> context) const {
    if (auto status = rate_.admit(); !status.ok()) return call->finish(status, nullptr);
    const std::string& path = ctx.method();
    if (!path.starts_with(kServicePrefix)) return call->finish(absl::UnimplementedError(cat("unknown service or method ", path)), nullptr);
    context->method = path.substr(kServicePrefix.size());
    context->peer = caller_address(ctx.peer());
    context->deadline = ctx.deadline();
    context->hints = hints(ctx);
    context->rbac = options_.roles.configured;
    context->admin_role = options_.roles.admin_role;
    const MethodRule* rule = options_.table->find(context->method);
    if (rule != nullptr && rule->mode == AuthMode::kUnauthenticated) return dispatch(std::move(call), std::move(context), rule);
    CallFacts facts{context->method, metadata(ctx, "authorization"), peer_certificate(ctx)};
    const bool bearer = !facts.authorization.empty();
    options_.authenticator->authenticate(facts, [this, call, context, rule, bearer](absl::StatusOr<Principal> principal) {
      if (!principal.ok()) return call->finish(principal.status(), nullptr);
      if (auto status = authorize(rule, *principal, options_.roles, bearer); !status.ok()) return call->finish(status, nullptr);
      context->principal = *std::move(principal);
      dispatch(call, context, rule);
    });
  }

  void dispatch(std::shared_ptr<GrpcCall> call, std::shared_ptr<CallContext> context, const MethodRule* rule) const {
    const auto* start = options_.router->find(context->method);
    if (start == nullptr)
      return call->finish(absl::UnimplementedError(cat(context->method, " is not implemented by this gateway")), nullptr);
    auto passing = with_faults(std::move(call), context->method);
    if (!passing) return;
    auto wrapped = admitted(std::move(passing), context, rule, options_.admissions, options_.router);
    (*start)(std::move(context), std::move(wrapped));
  }

  ShellOptions options_;
  mutable RateWindow rate_;
};

std::shared_ptr<grpc::ServerCredentials> credentials(const std::optional<TlsMaterial>& tls) {
  if (!tls) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options{tls->client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                                   : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY};
  options.pem_key_cert_pairs.push_back({std::string{tls->private_key.reveal()}, tls->certificate_chain});
  options.pem_root_certs = tls->client_ca;
  auto made = grpc::SslServerCredentials(options);
  for (auto& pair : options.pem_key_cert_pairs) wipe(pair.private_key);
  return made;
}

class GrpcShell final : public Shell {
 public:
  explicit GrpcShell(ShellOptions options) : socket_{options.unix_socket}, tls_{options.tls}, service_{std::move(options)} {}
  ~GrpcShell() override {
    stop(0);
    if (!socket_.empty()) ::unlink(socket_.c_str());
  }

  absl::Status listen() {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxRequestBytes));
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    const auto identity = credentials(tls_);
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, identity);
    int bound = 0;
    if (!socket_.empty()) {
      ::unlink(socket_.c_str());
      builder.AddListeningPort(cat("unix:", socket_), identity, &bound);
    }
    const mode_t before = ::umask(0177);
    server_ = builder.BuildAndStart();
    ::umask(before);
    tls_.reset();
    if (!server_) return absl::UnavailableError(cat("gRPC server could not start ", socket_));
    return absl::OkStatus();
  }

  void serve(int fd) override {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  }

  void stop(std::int64_t grace_ms) override {
    if (!server_) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds{grace_ms});
    server_->Wait();
    server_.reset();
  }

 private:
  std::string socket_;
  std::optional<TlsMaterial> tls_;
  GenericService service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Shell>> Shell::start(ShellOptions options) {
  auto shell = std::make_unique<GrpcShell>(std::move(options));
  if (auto status = shell->listen(); !status.ok()) return status;
  return shell;
}

}  // namespace openshell::api
