#include "actors/supervisor/session.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = Session::stateful_pointer<SessionState>;
using OptionsPtr = std::shared_ptr<const SessionOptions>;

constexpr std::chrono::seconds kRenewTimeout{15};

ActorSnapshot snapshot(const SessionState& state) {
  ActorSnapshot out;
  out.summary = state.session_id.empty() ? "not connected, attempt " + std::to_string(state.connection)
                                         : "session " + state.session_id + ", " + std::to_string(state.relays) + " relays opened";
  return out;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

/// Events of all older streams mean nothing from here on.
std::uint64_t renumber(Self self) {
  auto& state = self->state;
  return state.connection = ++*state.connections;
}

void connect(Self self) {
  auto& state = self->state;
  const auto connection = renumber(self);
  state.transport->connect(connection, [actor = caf::actor_cast<Session>(self)](SessionEvent event) {
    caf::anon_send(actor, event_atom::value, std::move(event));
  });
}

void arm(Self self, SessionPace::Duration wait) { self->delayed_send(self, wait, tick_atom::value, ++self->state.timer); }

/// The session is over, whatever ended it; another follows after the back-off.
void ended(Self self, const OptionsPtr& options, int code, const std::string& message) {
  auto& state = self->state;
  if (!state.session_id.empty()) {
    state.session_id.clear();
    options->observers.changed({});
  }
  if (!state.running) return;
  const auto wait = state.pace.ended(self->clock().now(), options->random());
  state.reporter.note_failed(message);
  if (code == 0) {
    spdlog::info("supervisor session ended cleanly");
  } else {
    spdlog::warn("supervisor session failed, reconnecting (attempt {}): {}", state.pace.attempts(), message);
  }
  if (code == static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    self->request(options->gateway, kRenewTimeout, renew_atom::value).then([] {}, [](const caf::error&) {});
  }
  state.transport->disconnect();
  renumber(self);
  arm(self, wait);
}

struct Handle {
  Self self;
  OptionsPtr options;

  void operator()(const SessionEvent::Accepted& event) const {
    auto& state = self->state;
    state.session_id = event.session_id;
    state.pace.accepted(self->clock().now(), event.heartbeat_interval);
    spdlog::info("supervisor session established (session_id={}, heartbeat_secs={})", event.session_id,
                 std::chrono::duration_cast<std::chrono::seconds>(state.pace.heartbeat()).count());
    options->observers.changed(event.session_id);
    arm(self, state.pace.heartbeat());
  }
  void operator()(const SessionEvent::Rejected& event) const {
    ended(self, options, static_cast<int>(absl::StatusCode::kFailedPrecondition), "session rejected: " + event.reason);
  }
  void operator()(const SessionEvent::Heartbeat&) const { self->state.pace.heard(self->clock().now()); }
  void operator()(const SessionEvent::RelayOpened& event) const {
    if (self->state.session_id.empty()) return;
    ++self->state.relays;
    options->relays->open(event.request, [transport = self->state.transport, channel = event.request.channel_id](const std::string& error) {
      transport->relay_result(channel, error);
    });
  }
  void operator()(const SessionEvent::RelayClosed& event) const { options->relays->abort(event.channel_id, event.reason); }
  void operator()(const SessionEvent::ConfigUpdate& event) const {
    if (event.has_content) self->state.transport->update_result(event.update_id, false);
    options->observers.nudged(event.has_content ? std::string{} : event.update_id);
  }
  void operator()(const SessionEvent::Ended& event) const {
    const bool early = self->state.session_id.empty() && event.code == 0;
    ended(self, options, early ? static_cast<int>(absl::StatusCode::kUnavailable) : event.code,
          early ? "stream closed before session accepted" : event.message);
  }
};

void tick(Self self, const OptionsPtr& options) {
  auto& state = self->state;
  if (state.session_id.empty()) return connect(self);
  if (state.pace.silent(self->clock().now()))
    return ended(self, options, static_cast<int>(absl::StatusCode::kUnavailable), "the gateway has been silent for three heartbeats");
  state.transport->heartbeat();
  arm(self, state.pace.heartbeat());
}

}  // namespace

Session::behavior_type session(Self self, SessionOptions given, Reporter reporter) {
  const auto options = std::make_shared<const SessionOptions>(std::move(given));
  self->state.transport = options->transport;
  self->state.connections = options->connections;
  self->state.pace = SessionPace{options->limits};
  self->state.reporter = std::move(reporter);
  Session::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](start_atom) {
        if (std::exchange(self->state.running, true)) return;
        connect(self);
        touch(self);
      },
      [=](event_atom, const SessionEvent& event) {
        if (event.connection != self->state.connection) return;
        self->state.reporter.note_handled();
        std::visit(Handle{self, options}, event.what);
        touch(self);
      },
      [=](applied_atom, const std::vector<std::string>& update_ids) {
        if (self->state.session_id.empty()) return;
        for (const auto& id : update_ids) {
          if (!id.empty()) self->state.transport->update_result(id, true);
        }
      },
      [=](tick_atom, std::uint64_t timer) {
        if (timer == self->state.timer && self->state.running) tick(self, options);
      },
      [=](stop_atom) {
        auto& state = self->state;
        state.running = false;
        renumber(self);
        ++state.timer;
        state.session_id.clear();
        state.transport->disconnect();
        touch(self);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
