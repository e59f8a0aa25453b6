#include "actors/sandbox/boundary.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/sandbox/exec_registry.hpp"

namespace openshell::sandbox {

using Self = Boundary::stateful_pointer<BoundaryState>;
using CallPtr = std::shared_ptr<Call>;
using boundary::Error;
using boundary::ErrorKind;
using Machine = BoundaryMachine;

namespace {

constexpr std::chrono::seconds kIntrospectPace{1};
constexpr std::chrono::seconds kLastAnswer{2};      ///< the answer to terminate_boundary may take so long to leave
constexpr std::chrono::milliseconds kLastHop{250};  ///< and from gRPC through the TLS pump to the peer, where that does not close

ActorSnapshot snapshot(const BoundaryState& state) {
  ActorSnapshot s;
  s.summary = state.machine->summary();
  s.waiting = state.joined.size() + state.deferred.size();
  return s;
}

void touch(Self self) {
  self->state.reporter.note_handled();
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

void close_all(Self self, const std::vector<ConnectionNumber>& connections) {
  for (const auto connection : connections) self->state.with.close_connection(connection);
}

/// The end of one executed request: state first, then the answer to everybody who asked.
void complete(Self self, const CallPtr& call, const Outcome& outcome) {
  auto settled = self->state.machine->finished(*call->request(), outcome.answer->response);
  close_all(self, settled.close);
  call->respond(settled.response, outcome.answer->stream);
  if (auto node = self->state.joined.extract(call->request()->envelope.request_id)) {
    for (const auto& other : node.mapped()) other->respond(settled.response);
  }
  touch(self);
}

/// Sends `request` on to another actor and completes the call with what comes back.
template <class Actor, class Atom>
void forward(Self self, const CallPtr& call, const Actor& to, Atom) {
  self->request(to, caf::infinite, Atom::value, Operation{call->request()})
      .then([self, call](const Outcome& outcome) { complete(self, call, outcome); },
            [self, call](const caf::error&) { complete(self, call, refusal(ErrorKind::process, "internal error")); });
}

// ---- confirm
// ----------------------------------------------------------------------------------------------------------------------------------------

void confirm(Self self, const CallPtr& call) {
  auto& state = self->state;
  auto response = state.with.measure(state.machine->supervisor());
  if (state.machine->link() != Machine::Link::frozen || std::holds_alternative<Error>(response)) {
    complete(self, call, outcome(std::move(response)));
    return;
  }
  // What we stopped goes on first; only then does the link count as connected and the broker ask again.
  self->request(state.with.tree, caf::infinite, resume_atom::value)
      .then(
          [self, call, response](const std::string& error) {
            if (!error.empty()) {
              complete(self, call, refusal(ErrorKind::process, error));
              return;
            }
            self->request(self->state.with.broker, caf::infinite, resume_atom::value)
                .then([self, call, response] { complete(self, call, outcome(response)); },
                      [self, call](const caf::error&) { complete(self, call, refusal(ErrorKind::process, "broker is gone")); });
          },
          [self, call](const caf::error&) { complete(self, call, refusal(ErrorKind::process, "process tree control is gone")); });
}

// ---- end
// --------------------------------------------------------------------------------------------------------------------------------------------

void leave(Self self, int code) {
  if (std::exchange(self->state.exited, true)) return;
  self->state.with.exit(code);
}

void tree_ended(Self self, const std::string& error, int code) {
  auto& state = self->state;
  auto calls = std::exchange(state.terminations, {});
  if (!error.empty()) {
    spdlog::error("termination: {}", error);
    for (const auto& call : calls)
      complete(self, call, refusal(ErrorKind::process, "owned workload processes remain after forced termination"));
    state.ending = false;
    if (code != kExitTerminated || calls.empty()) leave(self, code);  // nobody to tell: the end of this process ends the rest
    return;
  }
  state.machine->terminal();
  if (calls.empty()) {
    leave(self, code);
    return;
  }
  // A call that is over may still have its answer on the way through the TLS pump: the peer's close ends this process, or kLastHop.
  state.last_words_said = true;
  for (const auto& call : calls) {
    call->on_over([actor = caf::actor_cast<Boundary>(self)] {
      caf::delayed_anon_send(actor, kLastHop, tick_atom::value, Deadline::exit, std::uint64_t{0});
    });
    complete(self, call, outcome(boundary::BoundaryTerminated{}));
  }
  self->delayed_send(self, kLastAnswer, tick_atom::value, Deadline::exit, std::uint64_t{0});
}

/// No new connect is let out, then every descendant is ended.
void terminate(Self self, int code) {
  auto& state = self->state;
  state.machine->terminating();
  if (std::exchange(state.ending, true)) return;
  const auto stop = [self, code] {
    self->request(self->state.with.tree, caf::infinite, stop_atom::value, self->state.with.stop_grace_secs)
        .then([self, code](const std::string& error) { tree_ended(self, error, code); },
              [self](const caf::error&) { leave(self, kExitInternal); });
  };
  self->request(state.with.broker, caf::infinite, freeze_atom::value).then(stop, [stop](const caf::error&) { stop(); });
  touch(self);
}

// ---- freeze
// -----------------------------------------------------------------------------------------------------------------------------------------

void handle(Self self, const CallPtr& call);

void frozen(Self self, const std::string& error) {
  auto& state = self->state;
  state.freezing = false;
  if (!error.empty()) spdlog::warn("freeze: {}", error);
  for (const auto& call : std::exchange(state.deferred, {})) handle(self, call);
  touch(self);
}

/// Order matters: a task that waits in a notification neither stops nor counts as frozen, so the broker answers first.
void freeze(Self self) {
  auto& state = self->state;
  spdlog::warn("supervisor connection is lost: workload is frozen (sandbox-supervisor-connection-lost)");
  state.freezing = true;
  self->delayed_send(self, state.with.recovery_window, tick_atom::value, Deadline::recovery, ++state.freezes);
  const auto stop_tree = [self] {
    self->request(self->state.with.tree, caf::infinite, freeze_atom::value)
        .then([self](const std::string& error) { frozen(self, error); }, [self](const caf::error&) { leave(self, kExitInternal); });
  };
  self->request(state.with.broker, caf::infinite, freeze_atom::value).then(stop_tree, [self](const caf::error&) {
    leave(self, kExitInternal);
  });
}

// ---- requests
// ---------------------------------------------------------------------------------------------------------------------------------------

void introspect(Self self, const CallPtr& call, const boundary::Introspect& request) {
  auto& state = self->state;
  state.reporter.disregard();
  const auto now = self->clock().now();
  const bool too_soon = state.introspections != 0 && now - state.last_introspection < kIntrospectPace;
  if (state.introspecting || too_soon) {
    call->respond(Error{ErrorKind::unavailable, "introspect rate limit"});
    return;
  }
  state.introspecting = true;
  state.last_introspection = now;
  ++state.introspections;
  self->request(state.with.directory, caf::infinite, list_atom::value)
      .then(
          [self, call, request](std::vector<ActorSnapshot>& all) {
            auto& s = self->state;
            s.introspecting = false;
            boundary::Introspected result;
            result.epoch = s.with.generation;
            result.seq = s.introspections;
            for (auto& one : all) {
              if (one.rates.size() > 8) one.rates.clear();
              result.actors.push_back({one.id.substr(0, 128), one.parent.substr(0, 128), one.kind.substr(0, 64), one.summary.substr(0, 256),
                                       one.mailbox, one.waiting, one.handled, one.failed, one.restarts, one.oldest_ms,
                                       one.last_error.substr(0, 256), one.rates});
              const bool fits = result.actors.size() <= request.max_actors &&
                                boundary::encode_response(call->request()->envelope.request_id, result).size() <= request.max_bytes;
              if (fits) continue;
              result.actors.pop_back();
              ++result.left_out;
            }
            call->respond(result);
          },
          [self, call](const caf::error&) {
            self->state.introspecting = false;
            call->respond(Error{ErrorKind::unavailable, "directory is gone"});
          });
}

void attach(Self self, const CallPtr& call) {
  self->request(self->state.with.registry, caf::infinite, survey_atom::value)
      .then(
          [self, call](const Survey& survey) {
            complete(self, call, outcome(boundary::Attached{{self->state.with.generation, survey.processes->processes}}));
          },
          [self, call](const caf::error&) { complete(self, call, refusal(ErrorKind::process, "internal error")); });
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

void execute(Self self, const CallPtr& call) {
  auto& with = self->state.with;
  std::visit(Overloaded{
                 [&](const boundary::DiscoverPolicy&) {
                   self->request(with.launcher, caf::infinite, discover_atom::value)
                       .then([self, call](const Outcome& result) { complete(self, call, result); },
                             [self, call](const caf::error&) { complete(self, call, refusal(ErrorKind::process, "internal error")); });
                 },
                 [&](const boundary::Attach&) { attach(self, call); },
                 [&](const boundary::Confirm&) { confirm(self, call); },
                 [&](const boundary::ProbeProviderFiles&) {
                   self->request(with.launcher, caf::infinite, files_atom::value)
                       .then([self, call](const Outcome& result) { complete(self, call, result); },
                             [self, call](const caf::error&) { complete(self, call, refusal(ErrorKind::process, "internal error")); });
                 },
                 [&](const boundary::StartAgent&) { forward(self, call, with.registry, main_atom{}); },
                 [&](const boundary::UpdateProviderEnvironment&) { forward(self, call, with.launcher, environ_atom{}); },
                 [&](const boundary::AttachProcess&) { forward(self, call, with.registry, attach_atom{}); },
                 [&](const boundary::Wait&) { forward(self, call, with.registry, wait_atom{}); },
                 [&](const boundary::Signal&) { forward(self, call, with.registry, signal_atom{}); },
                 [&](const boundary::ExecSignal&) { forward(self, call, with.registry, signal_atom{}); },
                 [&](const boundary::Terminate&) { forward(self, call, with.registry, kill_atom{}); },
                 [&](const boundary::TerminateBoundary&) {
                   self->state.terminations.push_back(call);
                   terminate(self, kExitTerminated);
                 },
                 [&](const boundary::Exec&) { forward(self, call, with.registry, exec_atom{}); },
                 [&](const boundary::Resize&) { forward(self, call, with.registry, resize_atom{}); },
                 [&](const boundary::LoopbackConnect&) { with.loopback_connect(call); },
                 [&](const boundary::AcceptNetwork&) { self->send(with.broker, accept_atom::value, IncomingCall{call}); },
                 [&](const boundary::OpenMediation&) { self->send(with.lease, mediate_atom::value, IncomingCall{call}); },
                 [&](const boundary::ResolveLinks&) { with.resolve_links(call); },
                 [&](const boundary::Introspect& request) { introspect(self, call, request); },
             },
             call->request()->envelope.request);
}

void arm_bearer_timer(Self self, ConnectionNumber connection) {
  const auto expiry = self->state.machine->bearer_expiry(connection);
  if (!expiry || *expiry == 0 || !self->state.bearer_timers.insert(connection).second) return;
  const auto left = std::max<std::int64_t>(0, *expiry - self->state.with.unix_seconds());
  self->delayed_send(self, std::chrono::seconds{left}, tick_atom::value, Deadline::bearer, connection);
}

void handle(Self self, const CallPtr& call) {
  auto& state = self->state;
  const CallRequest& request = *call->request();
  if (state.freezing && std::holds_alternative<boundary::Confirm>(request.envelope.request)) {
    state.deferred.push_back(call);
    return;
  }
  auto verdict = state.machine->admit(request);
  close_all(self, verdict.close);
  if (verdict.staged) self->delayed_send(self, state.with.staged_confirm, tick_atom::value, Deadline::staged, *verdict.staged);
  arm_bearer_timer(self, request.connection);
  switch (verdict.action) {
    case Machine::Action::answer:
      call->respond(verdict.response);
      break;
    case Machine::Action::join:
      state.joined[request.envelope.request_id].push_back(call);
      break;
    case Machine::Action::execute:
      execute(self, call);
      break;
  }
  touch(self);
}

void deadline(Self self, Deadline what, std::uint64_t number) {
  auto& state = self->state;
  switch (what) {
    case Deadline::first_confirm:
      if (state.machine->link() != Machine::Link::awaiting_confirmation) return;
      spdlog::error("no confirmed supervisor within {} s", state.with.first_confirm.count() / 1'000);
      leave(self, kExitNeverConfirmed);
      return;
    case Deadline::staged:
      if (state.machine->staged_expired(number)) state.with.close_connection(number);
      return;
    case Deadline::recovery:
      if (number != state.freezes || state.machine->link() != Machine::Link::frozen) return;
      spdlog::error("supervisor did not come back: workload is ended (sandbox-supervisor-recovery-expired)");
      terminate(self, kExitRecoveryExpired);
      return;
    case Deadline::bearer: {
      state.bearer_timers.erase(number);
      const auto expiry = state.machine->bearer_expiry(number);
      if (!expiry || *expiry == 0) return;
      if (*expiry <= state.with.unix_seconds()) {
        spdlog::warn("bearer of connection {} expired", number);
        state.with.close_connection(number);
      } else {
        arm_bearer_timer(self, number);
      }
      return;
    }
    case Deadline::exit:
      leave(self, kExitTerminated);
      return;
  }
}

}  // namespace

Boundary::behavior_type boundary_actor(Self self, BoundaryDependencies with) {
  auto& state = self->state;
  state.reporter = Reporter{with.directory, "boundary", "boundary", "sandbox"};
  state.machine = std::make_unique<Machine>(with.machine);
  state.with = std::move(with);
  self->delayed_send(self, state.with.first_confirm, tick_atom::value, Deadline::first_confirm, std::uint64_t{0});
  touch(self);
  Boundary::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](request_atom, const IncomingCall& incoming) { handle(self, incoming.call); },
      [=](opened_atom, ConnectionNumber connection) { self->state.machine->opened(connection); },
      [=](closed_atom, ConnectionNumber connection) {
        if (self->state.last_words_said) return leave(self, kExitTerminated);
        if (self->state.machine->closed(connection)) freeze(self);
        touch(self);
      },
      [=](tick_atom, Deadline what, std::uint64_t number) { deadline(self, what, number); },
      [=](stop_atom, std::int32_t signal) {
        if (self->state.machine->link() == Machine::Link::awaiting_confirmation) {
          spdlog::error("sandbox boundary received {} before supervisor confirmation", signal == 2 ? "SIGINT" : "SIGTERM");
          leave(self, kExitSignalBeforeConfirm);
        } else {
          terminate(self, kExitTerminated);
        }
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::sandbox
