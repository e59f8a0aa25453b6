// ForwardTcp: a user's byte stream to the SSH server of a sandbox, or to a port of its loopback.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "actors/gateway/identity_table.hpp"
#include "actors/gateway/relay_pipe.hpp"
#include "actors/gateway/ssh_session_rows.hpp"
#include "api/authorization.hpp"
#include "api/sandboxes/plane.hpp"
#include "api/sandboxes/ssh_sessions.hpp"
#include "datamodel.pb.h"
#include "egress/loopback_target.hpp"
#include "observability/log.hpp"
#include "policy/decision_service.hpp"

namespace openshell::api {
namespace {

constexpr std::size_t kForwardChunk = 65'536;  ///< bytes of one frame towards a client
constexpr std::size_t kMaxServiceId = 1'024;   ///< bytes of the free text in the logs
constexpr std::string_view kReserved = "openshell.";
constexpr std::string_view kReadConfig = "config:read";
constexpr const char* kHalfClose = "openshell-half-close";

/// What a policy decided tells what it holds. Scopes limit only callers that have some: ForwardTcp asks for one of its own where they
/// count.
absl::Status may_read_config(const Principal& principal) {
  const auto* user = std::get_if<User>(&principal);
  if (user != nullptr && user->identity.scopes.empty()) return absl::OkStatus();
  return check_scope(kReadConfig, user == nullptr ? Identity{} : user->identity);
}

/// One call: its checks, then two pumps. An end of the caller's direction is an empty frame or the end of its stream; the target's end is
/// an empty frame to a caller that announced that it knows, else the end of the call.
class ForwardCall : public std::enable_shared_from_this<ForwardCall> {
 public:
  using Calls = Stream<pb::TcpForwardFrame, pb::TcpForwardFrame>;
  ForwardCall(PlanePtr plane, Context ctx, Calls stream)
      : plane_{std::move(plane)}, ctx_{std::move(ctx)}, stream_{std::move(stream)}, half_close_{ctx_->hint(kHalfClose) == "1"} {}

  void begin() {
    stream_.read([self = shared_from_this()](std::optional<pb::TcpForwardFrame> first) {
      if (!first) return self->fail(absl::InvalidArgumentError("empty ForwardTcp stream"));
      if (!first->has_init()) return self->fail(absl::InvalidArgumentError("first TcpForwardFrame must be init"));
      self->open(first->init());
    });
  }

 private:
  void fail(const absl::Status& status) { stream_.finish(status); }

  void open(const pb::TcpForwardInit& init) {
    decisions_ = init.service_id() == policy::kDecisionService && init.has_ssh() && init.authorization_token().empty();
    if (init.service_id().starts_with(kReserved) && !decisions_)
      return fail(invalid_field("service_id", cat("service ids that begin with '", kReserved, "' are reserved")));
    if (decisions_) {
      if (auto status = may_read_config(ctx_->principal); !status.ok()) return fail(status);
    }
    if (init.target_case() == pb::TcpForwardInit::TARGET_NOT_SET) return fail(invalid_field("target", "tcp forward target is required"));
    relay_.service_id = init.service_id().substr(0, kMaxServiceId);
    if (init.has_tcp()) {
      auto host = egress::loopback_target(init.tcp().host(), init.tcp().port());
      if (!host.ok()) return fail(invalid_field("target.tcp", to_std(host.status().message())));
      relay_.tcp_host = *std::move(host);
      relay_.tcp_port = init.tcp().port();
    }
    datamodel::v1::WorkspaceSelector scope;
    if (!init.workspace().empty()) scope.set_workspace(init.workspace());
    if (!init.authorization_token().empty()) token_row_ = ssh_session_row_id(init.authorization_token());
    with_sandbox(
        plane_, ctx_, scope, init.sandbox(), "sandbox", WorkspaceRole::kUser,
        [self = shared_from_this()](const std::shared_ptr<SandboxHandle>& found) { self->found(found); },
        [self = shared_from_this()](const absl::Status& status) { self->fail(status); });
  }

  void found(const std::shared_ptr<SandboxHandle>& sandbox) {
    relay_.sandbox_id = sandbox->sandbox_id;
    ask<gateway::Outcome>(
        plane_->system, sandbox->entity,
        [self = shared_from_this()](const gateway::Outcome& usable) { usable.status.ok() ? self->authorise() : self->fail(usable.status); },
        gateway::usable_atom::value);
  }

  void authorise() {
    if (token_row_.empty()) {
      if (relay_.tcp_host.empty() && !decisions_) return fail(absl::UnauthenticatedError("authorization_token is required for ForwardTcp"));
      return request_relay();
    }
    const auto identity = plane_->actors.identities->find(relay_.sandbox_id);
    const auto generation = identity ? identity->generation : std::string{};
    plane_->store->read(
        [row_id = token_row_, sandbox = relay_.sandbox_id, generation](storage::Transaction& tx) -> absl::Status {
          auto row = tx.get(gateway::row_types::kSshSession, row_id);
          if (!row.ok()) return row.status();
          std::optional<records::SshSessionRecord> session;
          if (*row) {
            auto decoded = ssh_session_from_row(**row);
            if (!decoded.ok()) return decoded.status();
            session = *std::move(decoded);
          }
          const auto now = std::chrono::system_clock::now().time_since_epoch();
          return judge(session, sandbox, generation, std::chrono::duration_cast<std::chrono::seconds>(now).count());
        },
        [self = shared_from_this()](const absl::Status& allowed) { allowed.ok() ? self->request_relay() : self->fail(allowed); });
  }

  void request_relay() {
    if (stream_.over()) return;
    auto slot = plane_->forwards->take(relay_.sandbox_id, token_row_);
    if (!slot.ok()) return fail(slot.status());
    // The slot lives as long as the call, not as long as this object: a pump may be held by the other side a moment longer.
    stream_.on_done([slot = *slot]() mutable { slot.reset(); });
    log::info("forward", {{"sandbox", relay_.sandbox_id},
                          {"target", relay_.tcp_host.empty() ? "ssh" : cat(relay_.tcp_host, ":", relay_.tcp_port)},
                          {"service", relay_.service_id},
                          {"by", ctx_->actor()}});
    ask<gateway::Handed<gateway::RelayEnd>>(
        plane_->system, plane_->actors.relays,
        [self = shared_from_this()](gateway::Handed<gateway::RelayEnd> opened) {
          if (opened.value.ok()) return self->run(*opened.value);
          self->fail(absl::UnavailableError(cat("supervisor relay failed: ", to_std(opened.value.status().message()))));
        },
        gateway::open_atom::value, relay_);
  }

  void run(std::shared_ptr<gateway::RelayEnd> end) {
    end_ = std::move(end);
    end_->on_abort([stream = stream_](const absl::Status& why) { stream.finish(why); });
    stream_.on_done([self = shared_from_this()] {
      if (self->ended_in_ && self->ended_out_) return;
      self->end_->abort(absl::CancelledError("the caller of the forward is gone"));
    });
    from_client();
    to_client();
  }

  void from_client() {
    stream_.read([self = shared_from_this()](std::optional<pb::TcpForwardFrame> frame) {
      if (self->ended_in_) {  // nothing may follow an end but the end of the stream
        if (frame) self->protocol_error();
        return;
      }
      if (!frame || (frame->has_data() && frame->data().empty())) {
        self->ended_in_ = true;
        self->end_->end_output();
        if (frame) self->from_client();
        return self->both_ended();
      }
      if (!frame->has_data()) return self->protocol_error();
      self->end_->write(std::move(*frame->mutable_data()), [self] { self->from_client(); });
    });
  }

  void to_client() {
    end_->read(
        [self = shared_from_this()](std::string bytes) {
          if (!bytes.empty()) return self->send(std::make_shared<std::string>(std::move(bytes)), 0);
          self->ended_out_ = true;
          if (!self->half_close_) {  // the end of the call is the only end that this caller knows
            if (!self->ended_in_.exchange(true)) self->end_->end_output();
            return self->stream_.finish(absl::OkStatus());
          }
          pb::TcpForwardFrame frame;
          frame.set_data("");
          self->stream_.write(frame);
          self->both_ended();
        },
        [](const absl::Status&) {});
  }

  void send(const std::shared_ptr<std::string>& bytes, std::size_t at) {
    pb::TcpForwardFrame frame;
    frame.set_data(bytes->substr(at, kForwardChunk));
    const auto next = at + frame.data().size();
    stream_.write(frame, [self = shared_from_this(), bytes, next](bool written) {
      if (!written) return;
      next < bytes->size() ? self->send(bytes, next) : self->to_client();
    });
  }

  void both_ended() {
    if (ended_in_ && ended_out_) stream_.finish(absl::OkStatus());
  }

  void protocol_error() {
    const auto why = absl::InvalidArgumentError("a TcpForwardFrame after init must hold data, and none may follow an empty one");
    end_->abort(why);
    stream_.finish(why);
  }

  const PlanePtr plane_;
  const Context ctx_;
  const Calls stream_;
  const bool half_close_;
  gateway::RelayRequest relay_;
  bool decisions_ = false;
  std::string token_row_;  // empty: authorised as the caller
  std::shared_ptr<gateway::RelayEnd> end_;
  std::atomic<bool> ended_in_{false}, ended_out_{false};
};

}  // namespace

void add_forward_handlers(Router& router, const PlanePtr& plane) {
  router.bidi<pb::TcpForwardFrame, pb::TcpForwardFrame>("ForwardTcp", [=](Context ctx, ForwardCall::Calls stream) {
    std::make_shared<ForwardCall>(plane, std::move(ctx), std::move(stream))->begin();
  });
}

}  // namespace openshell::api
