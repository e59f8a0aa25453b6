#include "actors/gateway/session_registry.hpp"

#include <caf/all.hpp>

#include "actors/gateway/supervisor_link.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {
namespace {

using Self = SessionRegistryView::stateful_pointer<SessionRegistryState>;
using GrantReply = Reply<SessionGrant>;

constexpr std::chrono::seconds kTick{1};

SessionTable::Seconds now(Self self) {
  return std::chrono::duration_cast<std::chrono::seconds>(self->clock().now().time_since_epoch()).count();
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
}

void nudge(Self self, const std::string& sandbox_id, const std::string& update_id) {
  const auto* session = self->state.table.find(sandbox_id);
  if (session == nullptr) return;
  v1::GatewayMessage message;
  message.mutable_config_update()->set_update_id(update_id);  // no part: a hint that a poll is worth making
  ++self->state.nudges;
  session->offer.link->send(message);
}

GrantReply grant(const SessionTable::Session& session) {
  SessionGrant granted;
  granted.session_id = session.session_id;
  return {std::make_shared<const SessionGrant>(std::move(granted))};
}

GrantReply deliver(const SessionTable::Session& session, const v1::GatewayMessage& message) {
  if (!session.offer.link->send(message)) return {absl::UnavailableError("supervisor session disconnected")};
  return grant(session);
}

void tell_ended(Self self, const SessionTable::Session& session, const std::string& why) {
  self->send(session.offer.entity, ended_atom::value, session.session_id, why);
}

void serve_waiters(Self self, const std::string& sandbox_id) {
  auto& waiters = self->state.waiters;
  const auto* session = self->state.table.find(sandbox_id);
  for (auto it = waiters.begin(); session != nullptr && it != waiters.end();) {
    if (it->sandbox_id != sandbox_id) {
      ++it;
      continue;
    }
    it->promise.deliver(deliver(*session, *it->message));
    it = waiters.erase(it);
  }
}

GrantReply connect(Self self, const SessionOffer& offer) {
  auto& s = self->state;
  auto replaced = s.table.connect(offer, s.new_id(), now(self));
  if (!replaced.ok()) {
    s.reporter.note_failed(std::string{to_std(replaced.status().message())});
    return {replaced.status()};
  }
  if (*replaced) {
    tell_ended(self, **replaced, "replaced by a newer session");
    (*replaced)->offer.link->close(absl::AbortedError("replaced by a newer session"));
  }
  const auto& session = *s.table.find(offer.sandbox_id);
  SessionInfo info;
  info.session_id = session.session_id;
  info.instance_id = offer.instance_id;
  info.host_key_fingerprint = offer.host_key_fingerprint;
  info.provider_readiness = offer.provider_readiness;
  v1::GatewayMessage accepted;
  accepted.mutable_session_accepted()->set_session_id(session.session_id);
  accepted.mutable_session_accepted()->mutable_heartbeat_interval()->set_seconds(SessionTable::kHeartbeat);
  offer.link->send(accepted);
  self->send(offer.entity, add_atom::value, info);
  serve_waiters(self, offer.sandbox_id);
  return grant(session);
}

void tick(Self self) {
  auto& s = self->state;
  const auto at = now(self);
  auto due = s.table.tick(s.new_id, at);
  s.unanswered += due.unanswered;
  v1::GatewayMessage heartbeat;
  heartbeat.mutable_heartbeat();
  for (const auto& id : due.heartbeats) s.table.find(id)->offer.link->send(heartbeat);
  for (const auto& id : due.silent) {
    const auto session = s.table.end(id, s.table.find(id)->session_id);
    tell_ended(self, *session, "no message of the supervisor for 45 s");
    session->offer.link->close(absl::UnavailableError("no message of the supervisor for 45 s"));
  }
  for (const auto& [id, update] : due.nudges) nudge(self, id, update);
  for (auto it = s.waiters.begin(); it != s.waiters.end();) {
    if (at < it->until) {
      ++it;
      continue;
    }
    it->promise.deliver(GrantReply{absl::UnavailableError("no supervisor session")});
    it = s.waiters.erase(it);
  }
}

}  // namespace

ActorSnapshot SessionRegistryState::snapshot() const {
  ActorSnapshot out;
  out.summary = cat(table.size(), " sessions, ", nudges, " nudges, ", unanswered, " unanswered");
  out.waiting = waiters.size();
  return reporter.complete(out);
}

SessionRegistryView::behavior_type session_registry(Self self, Directory directory, std::function<std::string()> new_id) {
  auto& s = self->state;
  s.new_id = std::move(new_id);
  s.reporter = Reporter{std::move(directory), "session_registry", "session_registry", "gateway_root"};
  self->delayed_send(self, kTick, tick_atom::value);
  SessionRegistryView::behavior_type handlers{
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](add_atom, const SessionOffer& offer) {
        self->state.reporter.note_handled();
        auto reply = connect(self, offer);
        touch(self);
        return reply;
      },
      [=](heard_atom, const std::string& sandbox, const std::string& session) { self->state.table.heard(sandbox, session, now(self)); },
      [=](ended_atom, const std::string& sandbox, const std::string& session_id, const std::string& why) {
        if (auto session = self->state.table.end(sandbox, session_id)) tell_ended(self, *session, why);
        touch(self);
      },
      [=](const NudgeAnswer& answer) {
        auto& state = self->state;
        if (auto next = state.table.answered(answer, state.new_id, now(self))) nudge(self, answer.sandbox_id, *next);
      },
      [=](changed_atom, const std::string& sandbox) {
        auto& state = self->state;
        if (auto update = state.table.mark(sandbox, state.new_id, now(self))) nudge(self, sandbox, *update);
      },
      [=](open_atom, const std::string& sandbox, const std::shared_ptr<const v1::GatewayMessage>& message) {
        auto promise = self->make_response_promise<GrantReply>();
        if (const auto* session = self->state.table.find(sandbox)) {
          promise.deliver(deliver(*session, *message));
        } else {
          self->state.waiters.push_back({sandbox, message, promise, now(self) + SessionRegistryState::kPatience.count()});
        }
        return promise;
      },
      [=](list_atom) {
        self->state.reporter.disregard();
        return self->state.table.sessions();
      },
      [=](drop_atom, const std::string& sandbox, const std::string& why) {
        const auto* current = self->state.table.find(sandbox);
        if (current == nullptr) return;
        const auto session = self->state.table.end(sandbox, current->session_id);
        tell_ended(self, *session, why);
        session->offer.link->close(absl::UnavailableError(why));
        touch(self);
      },
      [=](tick_atom) {
        tick(self);
        self->delayed_send(self, kTick, tick_atom::value);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return self->state.snapshot(); }, std::move(handlers));
}

}  // namespace openshell::gateway
