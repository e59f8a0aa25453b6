// The streams of a supervisor: its session, and the relays it serves.
#include <atomic>

#include "actors/gateway/admission.hpp"
#include "actors/gateway/relay_pipe.hpp"
#include "actors/gateway/supervisor_link.hpp"
#include "api/sandboxes/plane.hpp"
#include "api/sandboxes/ssh_sessions.hpp"
#include "observability/log.hpp"

namespace openshell::api {
namespace {

inline constexpr std::size_t kRelayChunk = 16'384;  ///< bytes of one frame towards a supervisor

/// The fingerprint of a supervisor's SSH host key as it may be handed to clients; "" where there is none or it is not one.
std::string host_key(const std::string& announced) {
  if (announced.empty() || check_host_key_fingerprint(announced)) return announced;
  log::warning("a supervisor announced a host key fingerprint that is none", {{"bytes", std::to_string(announced.size())}});
  return {};
}

/// One ConnectSupervisor stream.
class SessionCall : public gateway::SupervisorLink, public std::enable_shared_from_this<SessionCall> {
 public:
  using In = Stream<pb::SupervisorMessage, pb::GatewayMessage>;
  SessionCall(PlanePtr plane, Context ctx, In stream) : plane_{std::move(plane)}, ctx_{std::move(ctx)}, stream_{std::move(stream)} {}

  void begin() {
    stream_.read([self = shared_from_this()](std::optional<pb::SupervisorMessage> first) {
      if (!first) return self->close(absl::InvalidArgumentError("stream closed before hello"));
      if (!first->has_hello()) return self->close(absl::InvalidArgumentError("expected SupervisorHello"));
      self->hello(first->hello());
    });
  }

  bool send(const pb::GatewayMessage& message) override {
    if (stream_.over()) return false;
    if (*queued_ >= gateway::kMaxQueuedToSupervisor) {
      close(absl::UnavailableError("the supervisor does not read its session"));
      return false;
    }
    ++*queued_;
    stream_.write(message, [queued = queued_](bool) { --*queued; });
    return true;
  }
  void close(const absl::Status& status) override { stream_.finish(status); }

 private:
  void hello(const pb::SupervisorHello& hello) {
    if (hello.supports_provider_readiness() && !gateway::is_uuid(hello.instance_id()))
      return close(absl::InvalidArgumentError("invalid readiness instance identity"));
    gateway::SessionOffer offer;
    offer.sandbox_id = hello.sandbox_id();
    offer.instance_id = hello.instance_id();
    offer.connection_epoch = hello.connection_epoch();
    offer.provider_readiness = hello.supports_provider_readiness();
    offer.host_key_fingerprint = host_key(ctx_->hint("openshell-ssh-host-key"));
    offer.config_push = hello.supports_config_push() && plane_->config_push;
    offer.link = shared_from_this();
    with_own_sandbox(
        plane_, ctx_, hello.sandbox_id(),
        [self = shared_from_this(), offer](const std::shared_ptr<SandboxHandle>& found) mutable {
          offer.entity = found->entity;
          self->sandbox_ = found->sandbox_id;
          ask<gateway::Reply<gateway::SessionGrant>>(
              self->plane_->system, self->plane_->actors.sessions,
              [self](gateway::Reply<gateway::SessionGrant> granted) { self->granted(std::move(granted)); }, gateway::add_atom::value,
              offer);
        },
        [self = shared_from_this()](const absl::Status& status) { self->close(status); });
  }

  void granted(gateway::Reply<gateway::SessionGrant> reply) {
    if (!reply.value.ok()) return close(reply.value.status());
    session_ = (*reply.value)->session_id;
    stream_.on_done([self = shared_from_this()] {
      caf::anon_send(self->plane_->actors.sessions, gateway::ended_atom::value, self->sandbox_, self->session_,
                     std::string{"the session's stream ended"});
    });
    next();
  }

  void next() {
    stream_.read([self = shared_from_this()](std::optional<pb::SupervisorMessage> message) {
      if (!message) return self->close(absl::OkStatus());
      self->take(*message);
      self->next();
    });
  }

  void take(const pb::SupervisorMessage& message) {
    const auto& actors = plane_->actors;
    caf::anon_send(actors.sessions, gateway::heard_atom::value, sandbox_, session_);
    switch (message.payload_case()) {
      case pb::SupervisorMessage::kRelayOpenResult: {
        const auto& result = message.relay_open_result();
        if (result.success()) return;
        caf::anon_send(actors.relays, gateway::RelayFailure{result.channel_id(), sandbox_, session_, result.error(), true});
        return;
      }
      case pb::SupervisorMessage::kRelayClose:
        caf::anon_send(actors.relays, gateway::RelayFailure{message.relay_close().channel_id(), sandbox_, session_,
                                                            message.relay_close().reason(), false});
        return;
      case pb::SupervisorMessage::kConfigUpdateResult: {
        const auto& result = message.config_update_result();
        caf::anon_send(actors.sessions, gateway::NudgeAnswer{sandbox_, session_, result.update_id(),
                                                             result.outcome() == pb::CONFIG_APPLY_OUTCOME_UNSUPPORTED});
        return;
      }
      default:
        return;  // heartbeats have done their work; anything else is not for this gateway
    }
  }

  PlanePtr plane_;
  Context ctx_;
  In stream_;
  std::string sandbox_, session_;
  std::shared_ptr<std::atomic<int>> queued_ = std::make_shared<std::atomic<int>>(0);
};

/// One RelayStream: the supervisor's end of a relay, pumped both ways without an actor.
class RelayCall : public std::enable_shared_from_this<RelayCall> {
 public:
  using In = Stream<pb::RelayFrame, pb::RelayFrame>;
  RelayCall(PlanePtr plane, Context ctx, In stream) : plane_{std::move(plane)}, ctx_{std::move(ctx)}, stream_{std::move(stream)} {}

  void begin() {
    stream_.read([self = shared_from_this()](std::optional<pb::RelayFrame> first) {
      if (!first) return self->stream_.finish(absl::InvalidArgumentError("empty RelayStream"));
      if (!first->has_init() || first->init().channel_id().empty()) {
        return self->stream_.finish(absl::InvalidArgumentError("first RelayFrame must be init with non-empty channel_id"));
      }
      self->claim(first->init().channel_id());
    });
  }

 private:
  void claim(const std::string& channel) {
    if (ctx_->sandbox() == nullptr) return stream_.finish(absl::PermissionDeniedError("supervisor RPCs require a sandbox principal"));
    ask<gateway::Handed<gateway::RelayEnd>>(
        plane_->system, plane_->actors.relays,
        [self = shared_from_this()](gateway::Handed<gateway::RelayEnd> claimed) {
          if (!claimed.value.ok()) return self->stream_.finish(claimed.value.status());
          self->run(*claimed.value);
        },
        gateway::RelayClaim{channel, caller_of(*ctx_)});
  }

  void run(std::shared_ptr<gateway::RelayEnd> end) {
    end_ = std::move(end);
    end_->on_abort([stream = stream_](const absl::Status& why) { stream.finish(why); });
    stream_.on_done([self = shared_from_this()] {
      if (self->ended_in_ && self->ended_out_) return;
      self->end_->abort(absl::UnavailableError("relay transport ended"));
    });
    from_supervisor();
    to_supervisor();
  }

  void from_supervisor() {
    stream_.read([self = shared_from_this()](std::optional<pb::RelayFrame> frame) {
      if (!frame || (frame->has_data() && frame->data().empty() && !self->ended_in_)) {
        if (self->ended_in_.exchange(true)) return;
        self->end_->end_output();
        if (frame) self->from_supervisor();  // nothing may follow but the end of the stream
        return self->both_ended();
      }
      if (!frame->has_data() || self->ended_in_) return self->protocol_error();
      self->end_->write(std::move(*frame->mutable_data()), [self] { self->from_supervisor(); });
    });
  }

  void to_supervisor() {
    end_->read(
        [self = shared_from_this()](std::string bytes) {
          if (!bytes.empty()) return self->send(std::make_shared<std::string>(std::move(bytes)), 0);
          self->ended_out_ = true;
          pb::RelayFrame frame;
          frame.set_data("");
          self->stream_.write(frame);
          self->both_ended();
        },
        [](const absl::Status&) {});
  }

  void send(std::shared_ptr<std::string> bytes, std::size_t at) {
    pb::RelayFrame frame;
    frame.set_data(bytes->substr(at, kRelayChunk));
    const auto next = at + frame.data().size();
    stream_.write(frame, [self = shared_from_this(), bytes, next](bool written) {
      if (!written) return;
      next < bytes->size() ? self->send(bytes, next) : self->to_supervisor();
    });
  }

  void both_ended() {
    if (ended_in_ && ended_out_) stream_.finish(absl::OkStatus());
  }

  void protocol_error() {
    const auto why = absl::InvalidArgumentError("a RelayFrame after init must hold data, and none may follow an empty one");
    end_->abort(why);
    stream_.finish(why);
  }

  PlanePtr plane_;
  Context ctx_;
  In stream_;
  std::shared_ptr<gateway::RelayEnd> end_;
  std::atomic<bool> ended_in_{false}, ended_out_{false};
};

}  // namespace

void add_session_handlers(Router& router, const PlanePtr& plane) {
  router.bidi<pb::SupervisorMessage, pb::GatewayMessage>("ConnectSupervisor", [=](Context ctx, SessionCall::In stream) {
    std::make_shared<SessionCall>(plane, std::move(ctx), std::move(stream))->begin();
  });
  router.bidi<pb::RelayFrame, pb::RelayFrame>("RelayStream", [=](Context ctx, RelayCall::In stream) {
    std::make_shared<RelayCall>(plane, std::move(ctx), std::move(stream))->begin();
  });
}

}  // namespace openshell::api
