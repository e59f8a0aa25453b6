#include "actors/gateway/relay_registry.hpp"

#include <caf/all.hpp>

#include <algorithm>

#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {
namespace {

using Self = RelayRegistry::stateful_pointer<RelayRegistryState>;
using EndReply = Handed<RelayEnd>;

constexpr std::chrono::seconds kTick{1};

std::int64_t now(Self self) { return std::chrono::duration_cast<std::chrono::seconds>(self->clock().now().time_since_epoch()).count(); }

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
}

std::shared_ptr<const v1::GatewayMessage> open_message(const std::string& channel, const RelayRequest& request) {
  auto message = std::make_shared<v1::GatewayMessage>();
  auto& open = *message->mutable_relay_open();
  open.set_channel_id(channel);
  open.set_service_id(request.service_id);
  if (request.tcp_host.empty()) {
    open.mutable_ssh();
  } else {
    open.mutable_tcp()->set_host(request.tcp_host);
    open.mutable_tcp()->set_port(request.tcp_port);
  }
  return message;
}

absl::Status check_room(const RelayRegistryState& s, const std::string& sandbox) {
  if (s.pending.size() >= kMaxPendingRelays)
    return absl::ResourceExhaustedError(cat("gateway relay capacity reached (", kMaxPendingRelays, " in flight)"));
  const auto own = std::count_if(s.pending.begin(), s.pending.end(), [&](const auto& entry) { return entry.second.sandbox_id == sandbox; });
  if (static_cast<std::size_t>(own) < kMaxPendingRelaysPerSandbox) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      cat("per-sandbox relay limit reached (", kMaxPendingRelaysPerSandbox, " in flight for ", sandbox, ")"));
}

void fail(Self self, const std::string& channel, const absl::Status& why) {
  auto& s = self->state;
  const auto it = s.pending.find(channel);
  if (it == s.pending.end()) return;
  it->second.promise.deliver(EndReply{why});
  s.pending.erase(it);
  s.reporter.note_failed(std::string{to_std(why.message())});
  touch(self);
}

EndReply claim(Self self, const RelayClaim& wanted) {
  auto& s = self->state;
  const auto it = s.pending.find(wanted.channel_id);
  if (it == s.pending.end()) return {absl::NotFoundError("unknown or expired relay channel")};
  if (it->second.sandbox_id != wanted.caller.sandbox_id) return {absl::PermissionDeniedError("relay channel belongs to another sandbox")};
  auto pair = make_relay();
  s.established[wanted.channel_id] = {it->second.sandbox_id, it->second.session_id, pair.supervisor};
  it->second.promise.deliver(EndReply{pair.requester});
  s.pending.erase(it);
  s.reporter.note_handled();
  touch(self);
  return {pair.supervisor};
}

void failed(Self self, const RelayFailure& failure) {
  auto& s = self->state;
  const auto reason = failure.reason.substr(0, kMaxRelayReason);
  const auto waiting = s.pending.find(failure.channel_id);
  if (waiting != s.pending.end() && waiting->second.sandbox_id == failure.sandbox_id) {
    return fail(self, failure.channel_id, absl::UnavailableError(reason.empty() ? "the supervisor refused the relay" : reason));
  }
  const auto it = s.established.find(failure.channel_id);
  if (failure.refused || it == s.established.end()) return;
  if (it->second.sandbox_id != failure.sandbox_id || it->second.session_id != failure.session_id) return;
  if (auto end = it->second.supervisor.lock()) end->abort(absl::UnavailableError(reason));
  s.established.erase(it);
}

}  // namespace

ActorSnapshot RelayRegistryState::snapshot() const {
  ActorSnapshot out;
  out.summary = cat(pending.size(), " relays wait, ", established.size(), " run");
  out.waiting = pending.size();
  return reporter.complete(out);
}

RelayRegistry::behavior_type relay_registry(Self self, SessionRegistry sessions, Directory directory, std::function<std::string()> new_id) {
  auto& s = self->state;
  s.sessions = std::move(sessions);
  s.new_id = std::move(new_id);
  s.reporter = Reporter{std::move(directory), "relay_registry", "relay_registry", "gateway_root"};
  self->delayed_send(self, kTick, tick_atom::value);
  RelayRegistry::behavior_type handlers{
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](open_atom, const RelayRequest& request) {
        auto promise = self->make_response_promise<EndReply>();
        auto& state = self->state;
        if (auto room = check_room(state, request.sandbox_id); !room.ok()) {
          promise.deliver(EndReply{room});
          return promise;
        }
        const auto channel = state.new_id();
        // Until the message went out the session's own patience counts; then the supervisor has its 10 s.
        state.pending[channel] = {request.sandbox_id, {}, promise, std::numeric_limits<std::int64_t>::max()};
        self->request(state.sessions, caf::infinite, open_atom::value, request.sandbox_id, open_message(channel, request))
            .then(
                [=](const Reply<SessionGrant>& sent) {
                  if (!sent.value.ok()) return fail(self, channel, sent.value.status());
                  const auto it = self->state.pending.find(channel);
                  if (it == self->state.pending.end()) return;
                  it->second.session_id = (*sent.value)->session_id;
                  it->second.until = now(self) + RelayRegistryState::kClaim;
                },
                [=](const caf::error&) { fail(self, channel, absl::UnavailableError("relay channel dropped")); });
        touch(self);
        return promise;
      },
      [=](const RelayClaim& wanted) { return claim(self, wanted); },
      [=](const RelayFailure& failure) { failed(self, failure); },
      [=](tick_atom) {
        auto& state = self->state;
        std::vector<std::string> late;
        for (const auto& [channel, entry] : state.pending) {
          if (now(self) >= entry.until) late.push_back(channel);
        }
        for (const auto& channel : late) fail(self, channel, absl::DeadlineExceededError("relay open timed out"));
        std::erase_if(state.established, [](const auto& entry) { return entry.second.supervisor.expired(); });
        self->delayed_send(self, kTick, tick_atom::value);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return self->state.snapshot(); }, std::move(handlers));
}

}  // namespace openshell::gateway
