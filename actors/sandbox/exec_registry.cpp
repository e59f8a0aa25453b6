#include "actors/sandbox/exec_registry.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/sandbox/launcher_control.hpp"
#include "actors/sandbox/managed_process.hpp"

namespace openshell::sandbox {

using boundary::ErrorKind;
using Self = ExecRegistry::stateful_pointer<ExecRegistryState>;
using Promise = caf::typed_response_promise<Outcome>;

namespace {

const std::string& process_id_of(const boundary::Request& request) {
  static const std::string none;
  return std::visit(
      [](const auto& operation) -> const std::string& {
        if constexpr (requires { operation.process_id; }) return operation.process_id;
        return none;
      },
      request);
}

int signal_number(boundary::ProcessSignal signal) {
  switch (signal) {
    case boundary::ProcessSignal::term:
      return SIGTERM;
    case boundary::ProcessSignal::kill:
      return SIGKILL;
    case boundary::ProcessSignal::interrupt:
      return SIGINT;
    case boundary::ProcessSignal::hangup:
      break;
  }
  return SIGHUP;
}

bool is_attached(const ExecLedger::Entry& entry) { return entry.process && entry.process->attached(); }

Outcome unknown() { return refusal(ErrorKind::invalid, "unknown exec process ID"); }

ActorSnapshot snapshot(const ExecRegistryState& state) {
  ActorSnapshot s;
  s.summary = fmt::format("{} exec ids accepted, {} retained", state.ledger->accepted(), state.ledger->retained());
  for (const auto& [id, promises] : state.waiters) s.waiting += promises.size();
  return s;
}

void touch(Self self) {
  self->state.reporter.note_handled();
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

std::shared_ptr<const ProcessOrder> order_for(Self self, const std::string& process_id, const Operation& operation) {
  auto order = std::make_shared<ProcessOrder>();
  order->process_id = process_id;
  order->request = operation.request;
  order->on_exit = [registry = caf::actor_cast<ExecRegistry>(self)](std::shared_ptr<ManagedProcess> process) {
    caf::anon_send(registry, exited_atom::value, ProcessRef{std::move(process)});
  };
  return order;
}

Promise start_main(Self self, const Operation& operation) {
  auto promise = self->make_response_promise<Outcome>();
  auto& state = self->state;
  const std::string id = state.ledger->main_id();
  if (!state.ledger->reserve_main()) {
    const auto* main = state.ledger->find(id);
    promise.deliver(main->process ? outcome(boundary::Started{id, 0, 0})
                                  : refusal(ErrorKind::unavailable, "agent process is being started"));
    return promise;
  }
  const auto revision = std::get<boundary::StartAgent>(operation.request->envelope.request).provider_env_revision;
  self->request(state.with.launcher, caf::infinite, main_atom::value, LaunchOrder{order_for(self, id, operation)})
      .then(
          [self, promise, id, revision](LaunchOutcome& result) mutable {
            if (result.process) {
              self->state.ledger->launched(id, result.process);
              promise.deliver(outcome(boundary::Started{id, revision, 0}));
            } else {
              self->state.ledger->forget_main();
              promise.deliver(refusal(ErrorKind::process, std::move(result.error)));
            }
            touch(self);
          },
          [self, promise](const caf::error&) mutable {
            self->state.ledger->forget_main();
            promise.deliver(refusal(ErrorKind::process, "launcher is gone"));
          });
  return promise;
}

void deliver_attachment(Promise& promise, const ExecLedger::Entry& entry) {
  auto stream = entry.process ? entry.process->attach() : nullptr;
  promise.deliver(stream ? outcome(boundary::ExecStarted{entry.process_id, entry.pty}, std::move(stream))
                         : refusal(ErrorKind::unavailable, "prior exec attachment is still being released"));
}

Promise start_exec(Self self, const Operation& operation) {
  auto promise = self->make_response_promise<Outcome>();
  auto& state = self->state;
  const auto& exec = std::get<boundary::Exec>(operation.request->envelope.request);
  auto admission = state.ledger->admit(operation.request->envelope.request_id, operation.request->envelope.payload_digest, exec.spec.pty,
                                       exec.expires_at_unix_ms, state.with.unix_ms(), is_attached);
  touch(self);
  if (admission.action == ExecLedger::Admission::Action::refuse) {
    promise.deliver(outcome(std::move(admission.error)));
    return promise;
  }
  const std::string id = admission.process_id;
  if (admission.action == ExecLedger::Admission::Action::resume) {
    deliver_attachment(promise, *state.ledger->find(id));
    return promise;
  }
  self->request(state.with.launcher, caf::infinite, launch_atom::value, LaunchOrder{order_for(self, id, operation)})
      .then(
          [self, promise, id](LaunchOutcome& result) mutable {
            if (result.process) {
              self->state.ledger->launched(id, result.process);
              deliver_attachment(promise, *self->state.ledger->find(id));
              // Its exit may have been seen before this answer.
              if (result.process->status()) self->delayed_send(self, kReclaimAfter, reclaim_atom::value, id);
            } else {
              self->state.ledger->failed(id, result.error);
              promise.deliver(refusal(ErrorKind::process, std::move(result.error)));
            }
            touch(self);
          },
          [self, promise, id](const caf::error&) mutable {
            self->state.ledger->failed(id, "launcher is gone");
            promise.deliver(refusal(ErrorKind::process, "launcher is gone"));
          });
  return promise;
}

Outcome attach(Self self, const Operation& operation) {
  const auto* entry = self->state.ledger->find(process_id_of(operation.request->envelope.request));
  if (!entry || !entry->process) return unknown();
  auto stream = entry->process->attach();
  if (!stream) return refusal(ErrorKind::unavailable, "process already has a control attachment");
  return outcome(boundary::ProcessAttached{entry->process->has_terminal()}, std::move(stream));
}

Promise wait(Self self, const Operation& operation) {
  auto promise = self->make_response_promise<Outcome>();
  const std::string& id = process_id_of(operation.request->envelope.request);
  const auto* entry = self->state.ledger->find(id);
  if (!entry || entry->phase == ExecLedger::Phase::failed) {
    promise.deliver(unknown());
  } else if (entry->status) {
    promise.deliver(outcome(boundary::Exited{*entry->status}));
  } else {
    self->state.waiters[id].push_back(promise);
  }
  touch(self);
  return promise;
}

Outcome signal(Self self, const Operation& operation) {
  const auto& request = operation.request->envelope.request;
  const auto* entry = self->state.ledger->find(process_id_of(request));
  if (!entry || entry->phase == ExecLedger::Phase::failed) return unknown();
  const auto* to_main = std::get_if<boundary::Signal>(&request);
  const auto kind = to_main ? to_main->signal : std::get<boundary::ExecSignal>(request).signal;
  if (entry->process) entry->process->signal(signal_number(kind));
  return outcome(boundary::Signaled{});
}

Promise terminate(Self self, const Operation& operation) {
  auto promise = self->make_response_promise<Outcome>();
  const auto* entry = self->state.ledger->find(process_id_of(operation.request->envelope.request));
  if (!entry || entry->phase == ExecLedger::Phase::failed) {
    promise.deliver(unknown());
  } else if (!entry->process) {
    promise.deliver(outcome(boundary::Terminated{}));
  } else {
    self->request(self->state.with.tree, caf::infinite, kill_atom::value, ProcessRef{entry->process})
        .then(
            [promise](std::string& error) mutable {
              promise.deliver(error.empty() ? outcome(boundary::Terminated{}) : refusal(ErrorKind::process, std::move(error)));
            },
            [promise](const caf::error&) mutable { promise.deliver(refusal(ErrorKind::process, "process tree control is gone")); });
  }
  return promise;
}

Outcome resize(Self self, const Operation& operation) {
  const auto& request = std::get<boundary::Resize>(operation.request->envelope.request);
  const auto* entry = self->state.ledger->find(request.process_id);
  if (!entry || !entry->process) return unknown();
  if (request.cols != 0 && request.rows != 0)
    entry->process->resize(request.cols, request.rows);
  else
    entry->process->resize(80, 24);  // a client without a size
  return outcome(boundary::Resized{});
}

Survey survey(Self self) {
  auto result = std::make_shared<ProcessSurvey>();
  for (const auto* entry : self->state.ledger->entries()) {
    if (!entry->process) continue;
    result->processes.push_back(
        {entry->process_id, entry->process->is_main(), entry->process->has_terminal(), entry->status, entry->process->retained()});
  }
  return {std::move(result)};
}

void process_exited(Self self, const ProcessRef& ref) {
  const std::string& id = ref.process->id();
  const auto status = ref.process->status();
  if (!status) return;
  self->state.ledger->exited(id, *status);
  if (auto node = self->state.waiters.extract(id)) {
    for (auto& promise : node.mapped()) promise.deliver(outcome(boundary::Exited{*status}));
  }
  if (!ref.process->is_main()) self->delayed_send(self, kReclaimAfter, reclaim_atom::value, id);
  touch(self);
}

}  // namespace

ExecRegistry::behavior_type exec_registry(Self self, ExecRegistryDependencies with, Directory directory) {
  self->state.reporter = Reporter{directory, "exec_registry", "exec_registry", "sandbox"};
  self->state.ledger = std::make_unique<ExecLedger>(with.generation, with.limits);
  self->state.with = std::move(with);
  ExecRegistry::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](main_atom, const Operation& operation) { return start_main(self, operation); },
      [=](exec_atom, const Operation& operation) { return start_exec(self, operation); },
      [=](attach_atom, const Operation& operation) { return attach(self, operation); },
      [=](wait_atom, const Operation& operation) { return wait(self, operation); },
      [=](signal_atom, const Operation& operation) { return signal(self, operation); },
      [=](kill_atom, const Operation& operation) { return terminate(self, operation); },
      [=](resize_atom, const Operation& operation) { return resize(self, operation); },
      [=](survey_atom) { return survey(self); },
      [=](exited_atom, const ProcessRef& ref) { process_exited(self, ref); },
      [=](reclaim_atom, const std::string& id) {
        const auto* entry = self->state.ledger->find(id);
        if (entry && is_attached(*entry)) {
          self->delayed_send(self, kReclaimAfter, reclaim_atom::value, id);
        } else {
          self->state.ledger->reclaim(id);
          touch(self);
        }
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::sandbox
