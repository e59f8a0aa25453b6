#include "actors/sandbox/mediation_lease.hpp"

#include <fmt/format.h>

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace openshell::sandbox {

using Self = MediationLease::stateful_pointer<MediationLeaseState>;

namespace {

ActorSnapshot snapshot(const MediationLeaseState& state) {
  ActorSnapshot s;
  s.summary = state.holder == 0 ? "free" : fmt::format("held by call {}", state.holder);
  s.waiting = state.waiters.size();
  return s;
}

void grant_next(Self self) {
  auto& state = self->state;
  while (state.holder == 0 && !state.waiters.empty()) {
    const auto waiter = std::move(state.waiters.front());
    state.waiters.pop_front();
    if (waiter.call->over()) continue;
    state.holder = waiter.number;
    auto stream = state.make_stream(
        [actor = caf::actor_cast<MediationLease>(self), number = waiter.number] { caf::anon_send(actor, ended_atom::value, number); });
    waiter.call->respond(boundary::MediationReady{}, std::move(stream));
  }
  self->state.reporter.note_handled();
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

void refuse(const std::shared_ptr<Call>& call) {
  call->respond(boundary::Error{boundary::ErrorKind::denied, "a mediation session is already active"});
}

}  // namespace

MediationLease::behavior_type mediation_lease(Self self, MediationLeaseState::MakeStream make_stream, Directory directory) {
  self->state.reporter = Reporter{directory, "mediation_lease", "mediation_lease", "sandbox"};
  self->state.make_stream = std::move(make_stream);
  MediationLease::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](mediate_atom, const IncomingCall& incoming) {
        auto& state = self->state;
        if (state.waiters.size() >= kMaxLeaseWaiters) {
          refuse(incoming.call);
          return;
        }
        const std::uint64_t number = ++state.last_number;
        state.waiters.push_back({number, incoming.call});
        grant_next(self);
        if (state.holder != number) self->delayed_send(self, kLeaseWait, tick_atom::value, number);
      },
      [=](ended_atom, std::uint64_t number) {
        if (self->state.holder == number) self->state.holder = 0;
        grant_next(self);
      },
      [=](tick_atom, std::uint64_t number) {
        auto& waiters = self->state.waiters;
        for (auto it = waiters.begin(); it != waiters.end(); ++it) {
          if (it->number != number) continue;
          refuse(it->call);
          waiters.erase(it);
          break;
        }
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::sandbox
