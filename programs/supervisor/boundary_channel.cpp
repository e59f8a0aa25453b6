#include "programs/supervisor/boundary_channel.hpp"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <openssl/rand.h>

#include <array>
#include <cstdio>
#include <mutex>
#include <optional>
#include <utility>

#include "api/gateway_client/grpc_byte_stream.hpp"
#include "boundary.grpc.pb.h"
#include "isolation/boundary/framing.hpp"
#include "observability/fault_point.hpp"

namespace openshell::supervisor {
namespace {

namespace wire = sandbox::protocol::v1;

constexpr int kMaxWindowBytes = 65'536;
constexpr int kReconnectMs = 100;
constexpr int kConnectMs = 5'000;  // a whole attempt, TLS included: on a busy host a handshake takes its time

struct ChunkTraits {
  static constexpr std::size_t kMaxBytes = boundary::kMaxChunkBytes;
  static void put(wire::BoundaryChunk& chunk, std::string_view bytes) { chunk.set_data(bytes.data(), bytes.size()); }
  static std::optional<std::string> take(wire::BoundaryChunk& chunk) { return std::move(*chunk.mutable_data()); }
};
using ChunkStream = api::GrpcByteStream<wire::BoundaryChunk, ChunkTraits>;

/// One request and its answer on a fresh stream; lives in the completions it leaves behind.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<ChunkStream> stream, std::string request_id, BoundaryChannel::Done done)
      : stream_{std::move(stream)}, request_id_{std::move(request_id)}, done_{std::move(done)} {}

  void run(const boundary::Request& request) {
    operation_ = boundary::operation_name(request);
    stream_->write(boundary::encode_control_frame(boundary::encode_request(request_id_, request)),
                   [self = shared_from_this()](const absl::Status&) { self->settle(std::nullopt); });  // a failure shows in the read
    read();
  }

 private:
  void read() {
    stream_->read([self = shared_from_this()](absl::StatusOr<std::string> bytes) { self->received(std::move(bytes)); });
  }

  void received(absl::StatusOr<std::string> bytes) {
    if (!bytes.ok()) return fail(bytes.status());
    if (bytes->empty()) return fail(absl::UnavailableError("the boundary ended the stream without an answer"));
    if (auto status = decoder_.append(*bytes); !status.ok()) return fail(absl::InternalError(std::string{status.message()}));
    auto frame = decoder_.next();
    if (!frame) return read();
    auto response = boundary::decode_response(*frame);
    if (!response.ok()) return fail(absl::InternalError("the boundary's answer is malformed: " + std::string{response.status().message()}));
    if (response->request_id != request_id_) return fail(absl::InternalError("the boundary answered another request"));
    if (auto rest = decoder_.take_rest(); !rest.empty()) stream_->unread(std::move(rest));
    settle(std::move(response->response));
  }

  /// The stream is handed on when the request's own write is over as well: gRPC may report the answer before it, and takes one write at a
  /// time.
  void settle(std::optional<boundary::Response> answer) {
    {
      const std::lock_guard lock{mutex_};
      if (answer) {
        answer_ = std::move(answer);
      } else {
        written_ = true;
      }
      if (!written_ || !answer_) return;
    }
    fault::point("boundary", operation_, "end");
    done_(Opened{*std::move(answer_), std::move(stream_)});
  }

  void fail(absl::Status status) {
    stream_->reset();
    done_(std::move(status));
  }

  std::shared_ptr<ChunkStream> stream_;
  const std::string request_id_;
  std::string_view operation_;  // a literal
  BoundaryChannel::Done done_;
  boundary::ControlFrameDecoder decoder_;
  std::mutex mutex_;  // of what follows
  bool written_ = false;
  std::optional<boundary::Response> answer_;
};

absl::StatusOr<std::string> target_of(const boundary::Transport& transport) {
  if (const auto* unix_socket = std::get_if<boundary::UnixTransport>(&transport)) return "unix:" + unix_socket->socket_path;
  if (const auto* tcp = std::get_if<boundary::TcpTransport>(&transport)) {
    std::string target;
    for (const auto& address : tcp->addresses) target += (target.empty() ? (address.starts_with('[') ? "ipv6:" : "ipv4:") : ",") + address;
    return target;
  }
  return absl::UnimplementedError("the boundary transport vsock is not built");
}

}  // namespace

class BoundaryChannel::Stub {
 public:
  explicit Stub(const std::shared_ptr<grpc::Channel>& channel) : rpc{wire::IsolationBoundary::NewStub(channel)} {}
  std::unique_ptr<wire::IsolationBoundary::Stub> rpc;
};

BoundaryChannel::BoundaryChannel(std::unique_ptr<Stub> stub, Bearer bearer) : stub_{std::move(stub)}, bearer_{std::move(bearer)} {}
BoundaryChannel::~BoundaryChannel() = default;

absl::StatusOr<std::shared_ptr<BoundaryChannel>> BoundaryChannel::make(const boundary::Descriptor& descriptor, Bearer bearer) {
  auto target = target_of(descriptor.transport);
  if (!target.ok()) return target.status();
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = descriptor.tls_trust_anchor_pem;
  tls.pem_cert_chain = descriptor.tls_client_certificate_pem;
  tls.pem_private_key = std::string{descriptor.tls_client_private_key_pem.reveal()};
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(descriptor.tls_server_name);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a new channel is a new connection
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);  // the limit of an attempt, whatever its name says
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kMaxWindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(boundary::kMaxGrpcMessageBytes);
  auto channel = grpc::CreateCustomChannel(*target, grpc::SslCredentials(tls), arguments);
  return std::shared_ptr<BoundaryChannel>{new BoundaryChannel{std::make_unique<Stub>(channel), std::move(bearer)}};
}

void BoundaryChannel::request(const std::string& request_id, const boundary::Request& request,
                              std::optional<std::chrono::milliseconds> deadline, Done done) {
  fault::point("boundary", boundary::operation_name(request), "begin");
  auto bearer = bearer_();
  if (!bearer.ok()) return done(bearer.status());
  const bool mediation = std::holds_alternative<boundary::OpenMediation>(request);
  auto stream =
      ChunkStream::open([&](grpc::ClientContext* context, grpc::ClientBidiReactor<wire::BoundaryChunk, wire::BoundaryChunk>* reactor) {
        context->AddMetadata("authorization", std::string{bearer->reveal()});
        if (deadline) context->set_deadline(std::chrono::system_clock::now() + *deadline);
        if (mediation) {
          stub_->rpc->async()->Mediate(context, reactor);
        } else {
          stub_->rpc->async()->Exchange(context, reactor);
        }
      });
  std::make_shared<Exchange>(std::move(stream), request_id, std::move(done))->run(request);
}

std::string make_uuid() {
  std::array<unsigned char, 16> bytes{};
  RAND_bytes(bytes.data(), static_cast<int>(bytes.size()));
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  text.reserve(36);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", bytes[i]);
    text += hex.data();
  }
  return text;
}

}  // namespace openshell::supervisor
