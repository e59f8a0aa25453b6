#include "actors/gateway/compute_reconciler.hpp"

#include <caf/all.hpp>

#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {
namespace {

using Self = ComputeReconciler::stateful_pointer<ComputeReconcilerState>;
using CallReply = Reply<ComputeAnswer>;

ComputeObservation translate(const drivers::Observation& from) {
  ComputeObservation to;
  to.sandbox_id = from.id.str();
  to.generation = from.generation.str();
  to.has_status = true;
  to.deleting = from.deleting;
  to.instance_id = from.instance_id;
  for (const auto& c : from.conditions) to.conditions.push_back({c.type, c.status, c.reason, c.message, c.last_transition_time});
  return to;
}

ComputeObservation missing(const std::string& id) {
  ComputeObservation gone;
  gone.sandbox_id = id;
  gone.gone = true;
  return gone;
}

std::shared_ptr<const v1::PlatformEvent> translate(const drivers::PlatformEvent& from) {
  auto to = std::make_shared<v1::PlatformEvent>();
  if (from.timestamp_ms != 0) set_millis(to->mutable_event_time(), from.timestamp_ms);
  to->set_source(from.source);
  to->set_type(from.type);
  to->set_reason(from.reason);
  to->set_message(from.message);
  to->mutable_metadata()->insert(from.metadata.begin(), from.metadata.end());
  return to;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
}

/// Runs `work` on a worker and `then` on the actor; at most kCalls at once, the others wait in order.
void on_worker(Self self, std::function<void(drivers::ComputeDriver&)> work, std::function<void()> then) {
  auto& s = self->state;
  auto start = [=] {
    auto& state = self->state;
    ++state.running;
    auto task = [driver = state.driver, work, handle = ComputeReconciler{self}, self, then] {
      work(*driver);
      caf::anon_send(handle, Resume{[=] {
                       auto& now = self->state;
                       --now.running;
                       now.reporter.note_handled();
                       if (!now.waiting.empty() && now.running < ReconcilerOptions::kCalls) {
                         auto next = std::move(now.waiting.front());
                         now.waiting.pop_front();
                         next();
                       }
                       then();
                       touch(self);
                     }});
    };
    if (state.options.threads) {
      self->system().spawn<caf::detached>([task](caf::event_based_actor*) { task(); });
    } else {
      task();
    }
  };
  s.running < ReconcilerOptions::kCalls ? start() : s.waiting.push_back(start);
}

void open_watch(Self self) {
  auto& s = self->state;
  s.watch = s.driver->watch([handle = ComputeReconciler{self}, bus = s.bus](const drivers::WatchEvent& event) {
    if (event.observed) caf::anon_send(handle, translate(*event.observed));
    if (event.deleted) caf::anon_send(handle, missing(event.id.str()));
    if (event.event) caf::anon_send(bus, add_atom::value, event.id.str(), translate(*event.event));
  });
}

/// What the driver lists is applied; what it does not list although it was left alone long enough is asked for once more, then told as
/// missing.
void sweep(Self self) {
  auto listed = std::make_shared<absl::StatusOr<std::vector<drivers::Observation>>>(absl::UnknownError("not asked"));
  on_worker(
      self, [listed](drivers::ComputeDriver& driver) { *listed = driver.list(); },
      [=] {
        auto& s = self->state;
        if (!listed->ok()) return s.reporter.note_failed(std::string{to_std(listed->status().message())});
        std::map<std::string, bool> there;
        for (const auto& one : **listed) {
          there[one.id.str()] = true;
          self->send(s.index, translate(one));
        }
        self->request(s.index, caf::infinite, list_atom::value)
            .then(
                [=](const std::map<std::string, std::int64_t>& known) {
                  for (const auto& [id, changed] : known) {
                    if (there.contains(id) || self->state.options.now() - changed < ReconcilerOptions::kGrace) continue;
                    auto again = std::make_shared<absl::Status>();
                    on_worker(
                        self, [again, id](drivers::ComputeDriver& driver) { *again = driver.get(SandboxId{id}).status(); },
                        [=] {
                          if (again->code() == absl::StatusCode::kNotFound) self->send(self->state.index, missing(id));
                        });
                  }
                },
                [](const caf::error&) {});
      });
}

}  // namespace

ActorSnapshot ComputeReconcilerState::snapshot() const {
  ActorSnapshot out;
  out.summary = cat(running, " driver calls", watch ? ", watching" : ", not watching");
  out.waiting = waiting.size();
  return reporter.complete(out);
}

ComputeReconciler::behavior_type compute_reconciler(Self self, std::shared_ptr<drivers::ComputeDriver> driver, SandboxBus bus,
                                                    Directory directory, ReconcilerOptions options) {
  auto& s = self->state;
  s.driver = std::move(driver);
  s.bus = std::move(bus);
  s.options = std::move(options);
  s.reporter = Reporter{std::move(directory), "compute_reconciler", "compute_reconciler", "gateway_root"};
  ComputeReconciler::behavior_type handlers{
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](const std::shared_ptr<const ComputeCall>& call) {
        auto promise = self->make_response_promise<CallReply>();
        auto answer = std::make_shared<absl::StatusOr<ComputeAnswer>>(absl::UnknownError("not called"));
        on_worker(
            self, [call, answer](drivers::ComputeDriver& target) { *answer = run(target, *call); },
            [promise, answer, self]() mutable {
              CallReply reply;
              if (answer->ok()) {
                reply.value = std::make_shared<const ComputeAnswer>(std::move(**answer));
              } else {
                reply.value = answer->status();
                self->state.reporter.note_failed(std::string{to_std(answer->status().message())});
              }
              promise.deliver(std::move(reply));
            });
        return promise;
      },
      [=](add_atom, const SandboxIndex& index) {
        self->state.index = index;
        open_watch(self);
        self->send(self, sweep_atom::value);
        touch(self);
      },
      [=](const ComputeObservation& observation) {
        if (self->state.index) self->send(self->state.index, observation);
      },
      [=](ended_atom, const std::string& why) {
        self->state.reporter.note_failed(why);
        self->state.watch.reset();
        auto reopen = Resume{[self] { open_watch(self); }};
        self->delayed_send(self, ReconcilerOptions::kReopen, reopen);
      },
      [=](sweep_atom) {
        sweep(self);
        self->delayed_send(self, ReconcilerOptions::kSweep, sweep_atom::value);
      },
      [=](const Resume& resume) { resume.run(); },
  };
  return self->state.reporter.watch(
      self, [self] { return self->state.snapshot(); }, std::move(handlers));
}

}  // namespace openshell::gateway
