#include "actors/sandbox/grpc_call.hpp"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <deque>
#include <mutex>
#include <vector>

#include "boundary.grpc.pb.h"
#include "isolation/boundary/digest.hpp"
#include "isolation/boundary/framing.hpp"
#include "observability/fault_point.hpp"

namespace openshell::sandbox {
namespace {

namespace wire = ::openshell::sandbox::protocol::v1;

grpc::Status status_of(CallEnd end, const std::string& message) {
  switch (end) {
    case CallEnd::done:
      return grpc::Status::OK;
    case CallEnd::refused:
      return {grpc::StatusCode::INVALID_ARGUMENT, message};
    case CallEnd::broken:
      break;
  }
  return {grpc::StatusCode::ABORTED, message};
}

/// Both sides of one call. gRPC's reactions come on its own threads and never inside a Start* of ours (its callback queue is polled by its
/// own threads), so `mutex_` is held around Start*; stream functions are called outside it.
class GrpcCall final : public Call,
                       public grpc::ServerBidiReactor<wire::BoundaryChunk, wire::BoundaryChunk>,
                       public std::enable_shared_from_this<GrpcCall> {
 public:
  GrpcCall(ConnectionNumber connection, bool mediate, const ChannelServer::Events& events) : events_{events} {
    pending_request_.connection = connection;
    pending_request_.mediate = mediate;
  }

  /// Takes the bearer from the call's metadata, then waits for the request frame. Keeps itself alive until OnDone.
  void begin(grpc::CallbackServerContext& context, const boundary::SessionTokenVerifier& verifier) {
    self_ = shared_from_this();
    const absl::Status status = authenticate(context, verifier);
    const std::lock_guard lock{mutex_};
    if (!status.ok()) {
      end_locked({grpc::StatusCode::UNAUTHENTICATED, std::string(status.message())});
      return;
    }
    StartSendInitialMetadata();  // at once: a client that waits for it before it sends would wait for ever
    read_locked();
    // Weak: an alarm keeps its function after it ran or was cancelled, and this call owns the alarm.
    first_frame_.Set(std::chrono::system_clock::now() + ChannelServer::kFirstFrameDeadline, [weak = weak_from_this()](bool ok) {
      if (!ok) return;
      if (const auto self = weak.lock()) self->first_frame_late();
    });
  }

  const std::shared_ptr<const CallRequest>& request() const override { return request_; }

  void respond(const boundary::Response& response, std::shared_ptr<CallStream> stream) override {
    fault::point("runtime", boundary::operation_name(request_->envelope.request), "answer");
    std::shared_ptr<CallStream> refused;
    {
      const std::lock_guard lock{mutex_};
      if (responded_ || finishing_ || cancelled_) {
        refused = std::move(stream);
      } else {
        responded_ = true;
        stream_ = std::move(stream);
        response_pending_ = true;
        queue_locked(boundary::encode_control_frame(boundary::encode_response(request_->envelope.request_id, response)));
        if (!stream_) end_locked(grpc::Status::OK);
      }
    }
    if (refused) {
      refused->start(shared_from_this());
      refused->ended();
    }
  }

  void read() override {
    std::string rest;
    std::shared_ptr<CallStream> stream;
    {
      const std::lock_guard lock{mutex_};
      if (finishing_) return;
      if (rest_.empty()) {
        if (read_ended_)
          stream = stream_;
        else
          read_locked();
      } else {
        rest = std::move(rest_);
        rest_.clear();
        stream = stream_;
      }
    }
    if (!stream) return;
    if (rest.empty()) {
      stream->received_end();
    } else {
      stream->received(std::move(rest));
    }
  }

  void write(std::string bytes) override {
    const std::lock_guard lock{mutex_};
    if (!finishing_) queue_locked(std::move(bytes));
  }

  void finish(CallEnd end, const std::string& message) override {
    const std::lock_guard lock{mutex_};
    end_locked(status_of(end, message));
  }

  bool over() const override {
    const std::lock_guard lock{mutex_};
    return over_ || cancelled_;
  }

  void on_over(std::function<void()> then) override {
    {
      const std::lock_guard lock{mutex_};
      if (!over_) {
        over_hooks_.push_back(std::move(then));
        return;
      }
    }
    then();
  }

  void OnReadDone(bool ok) override {
    std::shared_ptr<CallStream> stream;
    std::string bytes;
    bool dispatch = false;
    {
      const std::lock_guard lock{mutex_};
      reading_ = false;
      read_ended_ = !ok;
      if (request_) {
        stream = stream_;
        bytes = std::move(*in_.mutable_data());
        if (ok && bytes.empty() && stream) {  // says nothing: the next one
          read_locked();
          return;
        }
      } else if (!ok) {
        end_locked({grpc::StatusCode::INVALID_ARGUMENT, "stream ended before a whole control request"});
        return;
      } else {
        dispatch = take_request_locked();
      }
    }
    if (dispatch) {
      first_frame_.Cancel();
      fault::point("runtime", boundary::operation_name(request_->envelope.request), "begin");
      events_.request(shared_from_this());
    } else if (stream && ok) {
      stream->received(std::move(bytes));
    } else if (stream) {
      stream->received_end();
    }
  }

  void OnWriteDone(bool ok) override {
    std::shared_ptr<CallStream> stream;
    bool start = false;
    {
      const std::lock_guard lock{mutex_};
      writing_ = false;
      if (!ok) {
        out_.clear();
        end_locked(status_of(CallEnd::broken, "write failed"));
        return;
      }
      if (!out_.empty()) {
        write_locked();
        return;
      }
      if (finishing_) {
        finish_locked();
        return;
      }
      stream = stream_;
      start = std::exchange(response_pending_, false);
      if (start) stream_started_ = true;
    }
    if (!stream) return;
    if (start) {
      stream->start(shared_from_this());
    } else {
      stream->written();
    }
  }

  void OnCancel() override {
    const std::lock_guard lock{mutex_};
    cancelled_ = true;
    out_.clear();
    end_locked(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    first_frame_.Cancel();
    std::shared_ptr<CallStream> stream;
    std::vector<std::function<void()>> hooks;
    bool started = false;
    {
      const std::lock_guard lock{mutex_};
      over_ = true;
      stream = std::move(stream_);
      started = stream_started_;
      hooks.swap(over_hooks_);
    }
    if (stream) {
      if (!started) stream->start(shared_from_this());  // every stream sees start, then ended
      stream->ended();
    }
    for (const auto& hook : hooks) hook();
    self_.reset();  // may delete this
  }

 private:
  absl::Status authenticate(grpc::CallbackServerContext& context, const boundary::SessionTokenVerifier& verifier) {
    const auto [first, last] = context.client_metadata().equal_range("authorization");
    if (first == last || std::next(first) != last) return absl::UnauthenticatedError("exactly one authorization is required");
    const std::string_view header{first->second.data(), first->second.size()};
    const auto token = boundary::SessionTokenVerifier::bearer(header);
    if (!token.ok()) return token.status();
    auto claims = verifier.verify(*token, std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
    if (!claims.ok()) return claims.status();
    pending_request_.claims = std::move(*claims);
    pending_request_.bearer_fingerprint = boundary::sha256_hex(header);
    return absl::OkStatus();
  }

  /// True when a whole request is there and goes to the actors.
  bool take_request_locked() {
    if (const auto status = decoder_.append(in_.data()); !status.ok()) {
      end_locked({grpc::StatusCode::INVALID_ARGUMENT, std::string(status.message())});
      return false;
    }
    auto frame = decoder_.next();
    if (!frame) {
      read_locked();
      return false;
    }
    rest_ = decoder_.take_rest();
    auto decoded = boundary::decode_request(*frame);
    if (auto* refused = std::get_if<boundary::RefusedRequest>(&decoded)) {
      if (!refused->request_id.empty()) {
        const auto kind = absl::IsPermissionDenied(refused->status) ? boundary::ErrorKind::denied : boundary::ErrorKind::invalid;
        queue_locked(boundary::encode_control_frame(
            boundary::encode_response(refused->request_id, boundary::Error{kind, std::string(refused->status.message())})));
        responded_ = true;
        end_locked(grpc::Status::OK);
      } else {
        end_locked({grpc::StatusCode::INVALID_ARGUMENT, std::string(refused->status.message())});
      }
      return false;
    }
    pending_request_.envelope = std::move(std::get<boundary::RequestEnvelope>(decoded));
    request_ = std::make_shared<const CallRequest>(std::move(pending_request_));
    return true;
  }

  void first_frame_late() {
    const std::lock_guard lock{mutex_};
    if (!request_) end_locked({grpc::StatusCode::DEADLINE_EXCEEDED, "no control request within 30 s"});
  }

  void read_locked() {
    if (reading_ || read_ended_ || finish_sent_) return;
    reading_ = true;
    in_.Clear();
    StartRead(&in_);
  }

  void queue_locked(std::string bytes) {
    if (cancelled_) return;
    if (bytes.size() <= boundary::kMaxChunkBytes) {
      out_.push_back(std::move(bytes));
    } else {
      for (std::size_t at = 0; at < bytes.size(); at += boundary::kMaxChunkBytes)
        out_.push_back(bytes.substr(at, boundary::kMaxChunkBytes));
    }
    if (!writing_) write_locked();
  }

  void write_locked() {
    writing_ = true;
    *out_chunk_.mutable_data() = std::move(out_.front());
    out_.pop_front();
    StartWrite(&out_chunk_);
  }

  void end_locked(grpc::Status status) {
    if (finishing_) {
      if (cancelled_ && !writing_) finish_locked();
      return;
    }
    finishing_ = true;
    final_ = std::move(status);
    if (!writing_) finish_locked();
  }

  void finish_locked() {
    if (finish_sent_) return;
    finish_sent_ = true;
    Finish(final_);
  }

  const ChannelServer::Events& events_;
  mutable std::mutex mutex_;
  std::shared_ptr<GrpcCall> self_;  // gRPC holds no reference: the call owns itself until OnDone
  CallRequest pending_request_;
  std::shared_ptr<const CallRequest> request_;
  std::shared_ptr<CallStream> stream_;
  boundary::ControlFrameDecoder decoder_;
  std::string rest_;  // bytes behind the request frame
  wire::BoundaryChunk in_;
  wire::BoundaryChunk out_chunk_;
  std::deque<std::string> out_;
  grpc::Status final_;
  grpc::Alarm first_frame_;
  std::vector<std::function<void()>> over_hooks_;
  bool reading_ = false, read_ended_ = false, writing_ = false, responded_ = false, response_pending_ = false, stream_started_ = false,
       finishing_ = false, finish_sent_ = false, cancelled_ = false, over_ = false;
};

class Service final : public wire::IsolationBoundary::CallbackService {
 public:
  Service(ConnectionNumber connection, const boundary::SessionTokenVerifier& verifier, const ChannelServer::Events& events)
      : connection_{connection}, verifier_{verifier}, events_{events} {}

  grpc::ServerBidiReactor<wire::BoundaryChunk, wire::BoundaryChunk>* Exchange(grpc::CallbackServerContext* context) override {
    return make(context, false);
  }
  grpc::ServerBidiReactor<wire::BoundaryChunk, wire::BoundaryChunk>* Mediate(grpc::CallbackServerContext* context) override {
    return make(context, true);
  }

 private:
  grpc::ServerBidiReactor<wire::BoundaryChunk, wire::BoundaryChunk>* make(grpc::CallbackServerContext* context, bool mediate) {
    auto call = std::make_shared<GrpcCall>(connection_, mediate, events_);
    call->begin(*context, verifier_);
    return call.get();
  }

  ConnectionNumber connection_;
  const boundary::SessionTokenVerifier& verifier_;
  const ChannelServer::Events& events_;
};

class GrpcConnectionServer final : public ConnectionServer {
 public:
  GrpcConnectionServer(ConnectionNumber connection, int fd, const boundary::SessionTokenVerifier& verifier,
                       const ChannelServer::Events& events)
      : service_{connection, verifier, events} {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(boundary::kMaxGrpcMessageBytes));
    builder.SetMaxSendMessageSize(static_cast<int>(boundary::kMaxGrpcMessageBytes));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, ChannelServer::kMaxStreams);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65'536);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // windows stay: what unread relays hold is streams times 64 KiB
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(ChannelServer::kPingInterval.count()));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(ChannelServer::kPingTimeout.count()));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 4'000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    server_ = builder.BuildAndStart();
    if (server_) grpc::AddInsecureChannelFromFd(server_.get(), fd);
  }
  ~GrpcConnectionServer() override {
    if (!server_) return;
    server_->Shutdown(std::chrono::system_clock::now());  // cancels what runs
    server_->Wait();
  }
  [[nodiscard]] bool good() const { return server_ != nullptr; }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<ConnectionServer> serve_connection(ConnectionNumber connection, int plaintext_fd,
                                                   const boundary::SessionTokenVerifier& verifier, const ChannelServer::Events& events) {
  auto server = std::make_unique<GrpcConnectionServer>(connection, plaintext_fd, verifier, events);
  return server->good() ? std::move(server) : nullptr;
}

}  // namespace openshell::sandbox
