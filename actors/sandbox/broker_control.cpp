#include "actors/sandbox/broker_control.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace openshell::sandbox {

using Self = BrokerControl::stateful_pointer<BrokerControlState>;
using boundary::OpenDecision;
using isolation::DenyReason;

namespace {

class BrokerGate final : public OpenGate {
 public:
  explicit BrokerGate(isolation::Broker& broker) : broker_{broker} {}
  absl::StatusOr<isolation::FileDescriptor> allow(isolation::OpenId id) override { return broker_.allow(id); }
  void deny(isolation::OpenId id, DenyReason reason) override { broker_.deny(id, reason).IgnoreError(); }
  void freeze() override { broker_.freeze(); }
  void resume() override { broker_.resume(); }
  isolation::BrokerStatistics statistics() const override { return broker_.statistics(); }

 private:
  isolation::Broker& broker_;
};

std::uint64_t microseconds(std::chrono::steady_clock::duration d) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(d).count()));
}

DenyReason reason_of(OpenDecision decision) {
  switch (decision) {
    case OpenDecision::policy_denied:
      return DenyReason::PolicyDenied;
    case OpenDecision::identity_unavailable:
      return DenyReason::IdentityUnavailable;
    case OpenDecision::invalid_destination:
      return DenyReason::InvalidDestination;
    case OpenDecision::resource_exhausted:
      return DenyReason::ResourceExhausted;
    case OpenDecision::relay_ready:
    case OpenDecision::relay_handover:
    case OpenDecision::mediation_unavailable:
      break;
  }
  return DenyReason::MediationUnavailable;
}

ActorSnapshot snapshot(const BrokerControlState& state) {
  ActorSnapshot s;
  const auto seen = state.gate->statistics();
  s.summary = fmt::format("{} opens, {} allowed, {} denied, {} calls waiting{}", seen.external_opens, seen.allowed, seen.denied,
                          state.accepts.size(), state.frozen ? ", frozen" : "");
  s.waiting = seen.pending;
  if (state.handover) state.handover->looked();  // from here on an open over the line is news again
  return s;
}

boundary::NetworkConnected announcement(const NetworkOpen& open) {
  const auto now = std::chrono::steady_clock::now();
  const auto& request = open.request;
  return {identity_of(request.identity),
          request.destination.text(),
          {request.socket_cookie, request.nonblocking, request.identity.ok() ? static_cast<std::uint64_t>(request.identity->pid) : 0},
          0,
          {microseconds(open.queued - request.received), microseconds(now - open.queued)}};
}

/// Oldest open with oldest call.
void pair(Self self) {
  auto& state = self->state;
  while (!state.opens.empty() && !state.accepts.empty()) {
    auto call = std::move(state.accepts.front());
    state.accepts.pop_front();
    if (call->over()) continue;
    auto open = std::move(state.opens.front());
    state.opens.pop_front();
    open->stream = std::make_shared<OpenStream>(
        *state.io, state.handover, [actor = caf::actor_cast<BrokerControl>(self), weak = std::weak_ptr{open}](OpenDecision decision) {
          if (auto decided = weak.lock())
            caf::anon_send(actor, decide_atom::value, OpenEvent{std::move(decided)}, static_cast<std::int32_t>(decision));
        });
    state.paired[open->request.id] = open;
    call->respond(announcement(*open), open->stream);
  }
}

void touch(Self self) {
  self->state.reporter.note_handled();
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

void opened(Self self, const std::shared_ptr<NetworkOpen>& open) {
  auto& state = self->state;
  if (state.frozen || state.opens.size() >= BrokerControlState::kMaxQueuedOpens) {
    state.gate->deny(open->request.id, state.frozen ? DenyReason::MediationUnavailable : DenyReason::ResourceExhausted);
    return;
  }
  state.opens.push_back(open);
  pair(self);
  touch(self);
}

void decided(Self self, const std::shared_ptr<NetworkOpen>& open, OpenDecision decision) {
  auto& state = self->state;
  if (state.paired.erase(open->request.id) == 0) return;  // over already
  if (decision != OpenDecision::relay_ready && decision != OpenDecision::relay_handover) {
    state.gate->deny(open->request.id, reason_of(decision));
  } else {
    auto socket = state.gate->allow(open->request.id);
    if (socket.ok()) {
      open->stream->established(std::move(*socket));
    } else {
      open->stream->established({});
    }
  }
  touch(self);
}

void ended(Self self, isolation::OpenId id) {
  auto& state = self->state;
  std::erase_if(state.opens, [id](const auto& open) { return open->request.id == id; });
  const auto it = state.paired.find(id);
  if (it == state.paired.end()) return;
  it->second->stream->drop("open is over");
  state.paired.erase(it);
  touch(self);
}

}  // namespace

std::shared_ptr<OpenGate> make_open_gate(isolation::Broker& broker) { return std::make_shared<BrokerGate>(broker); }

boundary::ProcessIdentity identity_of(const absl::StatusOr<isolation::BinaryIdentity>& identity) {
  if (!identity.ok()) return boundary::FailedIdentity{std::string(identity.status().message())};
  boundary::ResolvedIdentity resolved;
  resolved.executable = {identity->executable.path, identity->executable.sha256};
  for (const auto& ancestor : identity->ancestors) resolved.ancestors.push_back({ancestor.path, ancestor.sha256});
  resolved.cmdline_paths = identity->command_paths;
  return resolved;
}

SocketHandover::Gate line_gate(std::shared_ptr<OpenGate> gate) {
  return {[gate](std::uint64_t open) { return gate->allow(open); },
          [gate](std::uint64_t open, OpenDecision decision) { gate->deny(open, reason_of(decision)); }};
}

void ActorDecider::open(isolation::OpenRequest request) {
  auto open = std::make_shared<NetworkOpen>();
  open->request = std::move(request);
  open->queued = std::chrono::steady_clock::now();
  if (line_ && line_->announce(open->request.id, announcement(*open))) {
    if (line_->is_news()) caf::anon_send(actor_, seen_atom::value);
    return;
  }
  caf::anon_send(actor_, open_atom::value, OpenEvent{std::move(open)});
}

void ActorDecider::ended(isolation::OpenId id, isolation::OpenEnd) {
  if (line_ && line_->over(id)) return;
  caf::anon_send(actor_, ended_atom::value, static_cast<std::uint64_t>(id));
}

BrokerControl::behavior_type broker_control(Self self, std::shared_ptr<OpenGate> gate, boost::asio::io_context* io,
                                            std::shared_ptr<SocketHandover> handover, Directory directory) {
  self->state.handover = std::move(handover);
  self->state.reporter = Reporter{directory, "broker_control", "broker_control", "sandbox"};
  self->state.gate = std::move(gate);
  self->state.io = io;
  BrokerControl::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](open_atom, const OpenEvent& event) { opened(self, event.open); },
      [=](ended_atom, std::uint64_t id) { ended(self, id); },
      [=](seen_atom) { touch(self); },
      [=](accept_atom, const IncomingCall& incoming) {
        auto& state = self->state;
        std::erase_if(state.accepts, [](const auto& call) { return call->over(); });
        if (state.accepts.size() >= BrokerControlState::kMaxWaitingAccepts) {
          incoming.call->respond(boundary::Error{boundary::ErrorKind::unavailable, "too many waiting accept_network calls"});
          return;
        }
        state.accepts.push_back(incoming.call);
        pair(self);
        touch(self);
      },
      [=](decide_atom, const OpenEvent& event, std::int32_t decision) { decided(self, event.open, static_cast<OpenDecision>(decision)); },
      [=](freeze_atom) {
        auto& state = self->state;
        state.frozen = true;
        state.gate->freeze();
        state.opens.clear();  // the broker has answered them
        for (auto& [id, open] : state.paired) open->stream->drop("supervisor connection is lost");
        state.paired.clear();
        state.accepts.clear();  // their calls went with the connection
        touch(self);
      },
      [=](resume_atom) {
        self->state.frozen = false;
        self->state.gate->resume();
        touch(self);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::sandbox
