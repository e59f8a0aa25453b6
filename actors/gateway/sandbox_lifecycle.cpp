// Create, start, stop, delete, recovery and what time brings: the part of an entity that talks to the driver. The lifecycle gate is held
// from the first write to the driver's answer; the write gate only during commits, so that sessions and reports of the supervisor go on
// meanwhile.
#include <caf/all.hpp>

#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/entity_ops.hpp"
#include "api/errors.hpp"
#include "api/service_endpoint.hpp"
#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

using Driver = absl::StatusOr<std::shared_ptr<const ComputeAnswer>>;

absl::Status prefixed(const absl::Status& status, std::string_view what) {
  return absl::Status{status.code(), cat(what, " sandbox failed: ", to_std(status.message()))};
}

bool permanent(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kNotFound;
}

void refuse(caf::typed_response_promise<Reply<pb::SandboxResponse>> promise, const absl::Status& status) {
  promise.deliver(Reply<pb::SandboxResponse>{status});
}

void give(Entity self, caf::typed_response_promise<Reply<pb::SandboxResponse>> promise) {
  pb::SandboxResponse response;
  *response.mutable_sandbox() = self->state.record.sandbox();
  promise.deliver(Reply<pb::SandboxResponse>{std::make_shared<const pb::SandboxResponse>(std::move(response))});
}

void disconnect(Entity self, const std::string& why) {
  self->send(self->state.deps->sessions, drop_atom::value, self->state.record.sandbox().metadata().id(), why);
}

/// Changes the record inside the write gate and commits; `then` runs with the gate free again.
void change_record(Entity self, std::function<void(records::SandboxRecord&)> how, std::function<void(absl::Status)> then) {
  self->state.writes.enter([=] {
    auto& s = self->state;
    if (s.gone) {
      s.writes.leave();
      return then(not_found());
    }
    auto change = begin(self);
    how(change.record);
    commit(self, std::move(change), [=](const absl::Status& status) {
      self->state.writes.leave();
      then(status);
    });
  });
}

/// Enters the lifecycle gate; `work` gets the function that leaves it.
void alone(Entity self, std::function<void(std::function<void()>)> work) {
  self->state.lifecycle.enter([=] { work([self] { self->state.lifecycle.leave(); }); });
}

/// Both answers at most once: the real one, or after kLifecycleAnswer that it goes on.
template <class T>
struct Once {
  std::function<void(Reply<T>)> to;
  bool done = false;
  void deliver(Reply<T> reply) {
    if (std::exchange(done, true)) return;
    to(std::move(reply));
  }
};

absl::StatusOr<ComputeCall> launch_call(Entity self, ComputeCall::Kind kind) {
  const auto& s = self->state;
  ComputeCall call;
  call.kind = kind;
  auto spec = to_driver_spec(s.record);
  if (!spec.ok()) return spec.status();
  call.spec = std::move(*spec);
  auto launch = s.deps->mint(s.record);
  if (!launch.ok()) return launch.status();
  call.launch = std::move(*launch);
  call.runtime_identity = s.record.runtime_identity();
  return call;
}

/// Driver Start, or Create where the driver has lost the resource.
void launch(Entity self, std::function<void(absl::Status)> then) {
  auto call = launch_call(self, ComputeCall::Kind::start);
  if (!call.ok()) return then(call.status());
  const auto stored = [=](Driver answer) {
    if (!answer.ok()) return then(answer.status());
    change_record(
        self, [identity = (*answer)->runtime_identity](auto& record) { record.set_runtime_identity(identity); }, then);
  };
  call_driver(self, std::move(*call), [=](Driver answer) {
    if (answer.ok() || answer.status().code() != absl::StatusCode::kNotFound) return stored(std::move(answer));
    auto again = launch_call(self, ComputeCall::Kind::create);
    if (!again.ok()) return then(again.status());
    call_driver(self, std::move(*again), stored);
  });
}

void stop_compute(Entity self, std::function<void(absl::Status)> then) {
  ComputeCall call;
  call.kind = ComputeCall::Kind::stop;
  call_driver(self, std::move(call), [then](Driver answer) {
    then(answer.ok() || answer.status().code() == absl::StatusCode::kNotFound ? absl::OkStatus() : answer.status());
  });
}

/// A new attempt: whatever is left is ended, then the driver starts it anew. Inside the lifecycle gate. `started` is called once the record
/// says STARTING.
void attempt(Entity self, bool by_person, std::function<void()> started, std::function<void(absl::Status)> then) {
  auto& s = self->state;
  const bool leftovers = s.record.sandbox().status().phase() != pb::SANDBOX_PHASE_STOPPED;
  disconnect(self, "sandbox is starting");
  change_record(
      self,
      [=](records::SandboxRecord& record) {
        const auto& deps = *self->state.deps;
        auto& status = *record.mutable_sandbox()->mutable_status();
        if (by_person) {
          status.set_restart_count(0);
          record.set_recovery_step(0);
          record.set_restart_step(0);
        } else if (status.has_next_restart_time()) {
          status.set_restart_count(status.restart_count() + 1);
        }
        begin_attempt(record, deps.now(), deps.new_id(), deps.new_id(), deps.new_id());
        status.set_phase(pb::SANDBOX_PHASE_STARTING);
        set_condition(status, "Ready", false, "Starting", "Sandbox start requested", deps.now());
      },
      [=](const absl::Status& written) {
        if (!written.ok()) return then(written);
        started();
        const auto go = [=](const absl::Status& stopped) { stopped.ok() ? launch(self, then) : then(stopped); };
        leftovers ? stop_compute(self, go) : go(absl::OkStatus());
      });
}

void note_start_failure(Entity self, const absl::Status& status, std::function<void()> then) {
  change_record(
      self,
      [=](records::SandboxRecord& record) {
        fail(record, self->state.deps->now(), "StartFailed", cat("Failed to start sandbox: ", to_std(status.message())), permanent(status));
      },
      [=](const absl::Status&) { then(); });
}

/// Recovery or restart by the gateway itself.
void start_again(Entity self) {
  alone(self, [=](auto leave) {
    auto& s = self->state;
    const auto now = s.deps->now();
    if (s.gone || !(recovery_due(s.record, now) || restart_due(s.record, now))) {
      leave();
      return set_timer(self);
    }
    attempt(
        self, false, [] {}, [=](const absl::Status& status) { status.ok() ? leave() : note_start_failure(self, status, leave); });
  });
}

void finish_removal(Entity self, std::function<void(absl::Status)> then) {
  self->state.writes.enter([=] {
    if (self->state.gone) {
      self->state.writes.leave();
      return then(absl::OkStatus());
    }
    remove_rows(self, [=](const absl::Status& status) {
      self->state.writes.leave();
      then(status);
      if (status.ok()) self->quit();
    });
  });
}

/// DELETING is stored: the driver removes everything, then the rows go.
void remove_compute(Entity self, std::function<void(absl::Status)> then) {
  disconnect(self, "sandbox is being deleted");
  ComputeCall call;
  call.kind = ComputeCall::Kind::remove;
  call_driver(self, std::move(call), [=](Driver answer) {
    if (!answer.ok() && answer.status().code() != absl::StatusCode::kNotFound) return then(answer.status());
    finish_removal(self, then);
  });
}

void remove_expired_compute(Entity self) {
  alone(self, [=](auto leave) {
    auto& s = self->state;
    const auto& provisioning = s.record.sandbox().status().provisioning();
    if (s.gone || !provisioning.has_timeout_time() || provisioning.has_cleanup_completed_time()) return leave();
    const auto attempt_id = provisioning.attempt_id();
    disconnect(self, "provisioning repair window expired");
    stop_compute(self, [=](const absl::Status& stopped) {
      change_record(
          self,
          [=](records::SandboxRecord& record) {
            auto& now_provisioning = *record.mutable_sandbox()->mutable_status()->mutable_provisioning();
            if (now_provisioning.attempt_id() != attempt_id) return;
            const auto now = self->state.deps->now();
            if (stopped.ok()) {
              set_millis(now_provisioning.mutable_cleanup_completed_time(), now);
              now_provisioning.clear_cleanup_error();
              now_provisioning.clear_cleanup_retry_time();
            } else {
              now_provisioning.set_cleanup_error("Compute reclamation is pending; the gateway will retry");
              set_millis(now_provisioning.mutable_cleanup_retry_time(), now + 5'000);
            }
          },
          [=](const absl::Status&) { leave(); });
    });
  });
}

absl::Status create_error(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
      return absl::AlreadyExistsError("sandbox already exists");
    case absl::StatusCode::kFailedPrecondition:
      return status;
    case absl::StatusCode::kInvalidArgument:
      return api::invalid_field("spec", to_std(status.message()));
    default:
      return absl::InternalError(cat("create sandbox failed: ", to_std(status.message())));
  }
}

/// The first write: everything that can be refused is refused in the transaction that inserts the row.
absl::Status insert(storage::Transaction& tx, const records::SandboxRecord& record, const PolicyHistory& policies,
                    const std::vector<pb::ServiceEndpoint>& services) {
  const auto& sandbox = record.sandbox();
  const auto& meta = sandbox.metadata();
  const std::vector<std::string> names{sandbox.spec().providers().begin(), sandbox.spec().providers().end()};
  if (auto status = providers::check_attachment(tx, meta.workspace(), names, to_millis(meta.created_time()) / 1000); !status.ok())
    return status;
  auto attached = providers::load_attached(tx, meta.workspace(), names);
  if (!attached.ok()) return attached.status();
  if (auto status = check_bindings(sandbox.spec().policy(), *attached, false); !status.ok()) return status;
  if (auto status = check_composition(sandbox.spec().policy(), *attached); !status.ok()) return status;
  if (auto status = check_uninspected(sandbox.spec().policy(), *attached); !status.ok()) return status;
  std::vector<RowWrite> writes{{RowWrite::Kind::create, to_row(record), {}}};
  if (const auto* revision = policies.newest())
    writes.push_back({RowWrite::Kind::create, to_row(*revision, meta.id(), meta.workspace()), {}});
  for (const auto& service : services) writes.push_back({RowWrite::Kind::create, api::to_row(service), {}});
  auto versions = write_rows(tx, writes);
  if (versions.ok()) return absl::OkStatus();
  if (storage::violated_constraint(versions.status()) == "objects_name_uq")
    return absl::AlreadyExistsError(cat("sandbox '", meta.name(), "' already exists"));
  return api::from_storage("create sandbox", versions.status());
}

}  // namespace

void create_sandbox(Entity self, caf::typed_response_promise<Reply<pb::SandboxResponse>> promise) {
  alone(self, [=](auto leave) {
    const auto abandon = [=](const absl::Status& status) {
      refuse(promise, status);
      self->state.gone = true;
      self->send(self->state.index, drop_atom::value, self->state.record.sandbox().metadata().id());
      leave();
      self->quit();
    };
    auto check = launch_call(self, ComputeCall::Kind::validate);
    if (!check.ok()) return abandon(create_error(check.status()));
    call_driver(self, std::move(*check), [=](Driver valid) {
      if (!valid.ok()) return abandon(create_error(valid.status()));
      auto& state = self->state;
      state.deps->store->write(
          [record = state.record, policies = state.policies, services = std::move(state.services)](storage::Transaction& tx) {
            return insert(tx, record, policies, services);
          },
          [=, handle = SandboxEntity{self}](const absl::Status& stored) {
            caf::anon_send(handle, Resume{[=] {
                             if (!stored.ok()) return abandon(stored);
                             auto& now = self->state;
                             now.stored = true;
                             now.record.mutable_sandbox()->mutable_metadata()->set_resource_version(1);
                             now.deps->identities->put(now.record);
                             self->send(now.index, changed_atom::value, now.record.sandbox().metadata().id(),
                                        std::make_shared<const pb::Sandbox>(now.record.sandbox()));
                             set_timer(self);
                             auto call = launch_call(self, ComputeCall::Kind::create);
                             const auto undo = [=](const absl::Status& why) {
                               remove_rows(self, [=](const absl::Status&) { abandon(create_error(why)); });
                             };
                             if (!call.ok()) return undo(call.status());
                             call_driver(self, std::move(*call), [=](Driver answer) {
                               if (!answer.ok()) return undo(answer.status());
                               change_record(
                                   self, [identity = (*answer)->runtime_identity](auto& record) { record.set_runtime_identity(identity); },
                                   [=](const absl::Status& kept) {
                                     kept.ok() ? give(self, promise) : refuse(promise, kept);
                                     leave();
                                   });
                             });
                           }});
          });
    });
  });
}

void stop_sandbox(Entity self, caf::typed_response_promise<Reply<pb::SandboxResponse>> promise) {
  auto once = std::make_shared<Once<pb::SandboxResponse>>();
  once->to = [promise](Reply<pb::SandboxResponse> reply) mutable { promise.deliver(std::move(reply)); };
  const auto give_once = [=] {
    pb::SandboxResponse response;
    *response.mutable_sandbox() = self->state.record.sandbox();
    once->deliver({std::make_shared<const pb::SandboxResponse>(std::move(response))});
  };
  alone(self, [=](auto leave) {
    auto& s = self->state;
    LifecycleStep step = LifecycleStep::done;
    auto allowed = s.gone ? not_found() : check_stop(s.record, &step);
    if (!allowed.ok() || step == LifecycleStep::done) {
      allowed.ok() ? give_once() : once->deliver({allowed});
      return leave();
    }
    const auto before = s.record;
    change_record(
        self, [=](records::SandboxRecord& record) { begin_stop(record, self->state.deps->now()); },
        [=](const absl::Status& written) {
          if (!written.ok()) {
            once->deliver({api::from_storage("stop sandbox", written)});
            return leave();
          }
          self->delayed_send(self, kLifecycleAnswer, Resume{give_once});
          stop_compute(self, [=](const absl::Status& stopped) {
            change_record(
                self,
                [=](records::SandboxRecord& record) {
                  if (stopped.ok()) return finish_stop(record, self->state.deps->now());
                  *record.mutable_sandbox()->mutable_status() = before.sandbox().status();  // it goes on running: nothing was stopped
                  record.set_intent(before.intent());
                },
                [=](const absl::Status& kept) {
                  if (stopped.ok()) disconnect(self, "sandbox is stopped");
                  if (!stopped.ok()) {
                    once->deliver({prefixed(stopped, "stop")});
                  } else {
                    kept.ok() ? give_once() : once->deliver({api::from_storage("stop sandbox", kept)});
                  }
                  leave();
                });
          });
        });
  });
}

void start_sandbox(Entity self, caf::typed_response_promise<Reply<pb::SandboxResponse>> promise) {
  alone(self, [=](auto leave) {
    auto& s = self->state;
    LifecycleStep step = LifecycleStep::done;
    auto allowed = s.gone ? not_found() : check_start(s.record, &step);
    if (!allowed.ok() || step == LifecycleStep::done) {
      allowed.ok() ? give(self, promise) : refuse(promise, allowed);
      return leave();
    }
    const auto before = s.record;
    attempt(
        self, true, [] {},
        [=](const absl::Status& started) {
          if (started.ok()) {
            give(self, promise);
            return leave();
          }
          change_record(
              self,
              [=](records::SandboxRecord& record) {
                *record.mutable_sandbox()->mutable_status() = before.sandbox().status();
                record.set_intent(before.intent());
              },
              [=](const absl::Status&) {
                refuse(promise, prefixed(started, "start"));
                leave();
              });
        });
  });
}

void delete_sandbox(Entity self, std::function<void(Reply<pb::DeleteSandboxResponse>)> to) {
  auto once = std::make_shared<Once<pb::DeleteSandboxResponse>>();
  once->to = std::move(to);
  const auto id = self->state.record.sandbox().metadata().id();
  const auto say = [=](pb::DeletionOutcome outcome) {
    pb::DeleteSandboxResponse response;
    response.set_outcome(outcome);
    response.set_sandbox_id(id);
    once->deliver({std::make_shared<const pb::DeleteSandboxResponse>(std::move(response))});
  };
  if (!self->state.gone && self->state.record.sandbox().status().phase() == pb::SANDBOX_PHASE_DELETING)
    return say(pb::DELETION_OUTCOME_ACCEPTED);
  alone(self, [=](auto leave) {
    if (self->state.gone) {
      say(pb::DELETION_OUTCOME_COMPLETED);
      return leave();
    }
    const auto before = self->state.record;
    change_record(
        self, [=](records::SandboxRecord& record) { begin_delete(record, self->state.deps->now()); },
        [=](const absl::Status& written) {
          // Where the disk is full the mark can not be written, and what this sandbox holds may be what fills it: it is given back first,
          // and the rows go after. A gateway that dies in between finds the sandbox wanted and empty; whoever deletes it again succeeds.
          if (!written.ok() && !absl::IsUnavailable(written)) {
            once->deliver({api::from_storage("set sandbox phase to Deleting", written)});
            return leave();
          }
          self->delayed_send(self, kLifecycleAnswer, Resume{[=] { say(pb::DELETION_OUTCOME_ACCEPTED); }});
          remove_compute(self, [=](const absl::Status& removed) {
            if (removed.ok()) {
              say(pb::DELETION_OUTCOME_COMPLETED);
              return leave();
            }
            change_record(
                self,
                [=](records::SandboxRecord& record) {
                  *record.mutable_sandbox()->mutable_status() = before.sandbox().status();
                  record.mutable_sandbox()->mutable_metadata()->clear_deletion_time();
                  record.set_intent(before.intent());
                },
                [=](const absl::Status&) {
                  once->deliver({absl::InternalError(cat("delete sandbox failed: ", to_std(removed.message())))});
                  leave();
                });
          });
        });
  });
}

void recover_sandbox(Entity self) {
  self->state.recovering = true;
  alone(self, [=](auto leave_gate) {
    const auto leave = [=] {
      self->state.recovering = false;
      leave_gate();
    };
    const auto& record = self->state.record;
    const auto phase = record.sandbox().status().phase();
    if (phase == pb::SANDBOX_PHASE_DELETING) {
      return remove_compute(self, [=](const absl::Status&) { leave(); });
    }
    if (phase == pb::SANDBOX_PHASE_STOPPING) {
      return stop_compute(self, [=](const absl::Status& stopped) {
        if (!stopped.ok()) return leave();
        change_record(
            self, [=](records::SandboxRecord& now) { finish_stop(now, self->state.deps->now()); }, [=](const absl::Status&) { leave(); });
      });
    }
    if (record.intent() != records::INTENT_RUNNING || phase == pb::SANDBOX_PHASE_ERROR || phase == pb::SANDBOX_PHASE_COMPLETED) {
      leave();
      return set_timer(self);
    }
    ComputeCall look;
    look.kind = ComputeCall::Kind::get;
    call_driver(self, std::move(look), [=](Driver answer) {
      const auto& now = self->state.record;
      bool running = false;
      if (answer.ok()) {
        const auto& seen = (*answer)->observed;
        ComputeObservation observation;
        observation.has_status = true;
        observation.deleting = seen.deleting;
        for (const auto& c : seen.conditions)
          observation.conditions.push_back({c.type, c.status, c.reason, c.message, c.last_transition_time});
        const auto derived = derive_phase(observation);
        const bool ours = seen.generation.empty() || seen.generation.str() == now.runtime_generation();
        running = ours && (derived == pb::SANDBOX_PHASE_READY || derived == pb::SANDBOX_PHASE_PROVISIONING);
      } else if (answer.status().code() != absl::StatusCode::kNotFound) {
        // The driver does not know: what runs is left alone; its watch or the sweep tells.
        return leave();
      }
      if (running) return leave();
      attempt(
          self, false, [=] { self->state.recovering = false; },
          [=](const absl::Status& status) { status.ok() ? leave() : note_start_failure(self, status, leave); });
    });
  });
}

void observed(Entity self, const ComputeObservation& observation) {
  auto& s = self->state;
  if (s.gone || !s.stored || s.recovering) return;
  // What the driver found of a launch that was cut off is of no generation; while a new one is under way it says nothing about that.
  if (!observation.gone && observation.generation.empty() && s.lifecycle.busy()) return;
  if (observation.gone && s.record.sandbox().status().phase() == pb::SANDBOX_PHASE_DELETING) return;  // the one who deletes finishes it
  quietly(self, [=](auto leave) {
    auto change = begin(self);
    const bool changed = observation.gone ? apply_missing(change.record, self->state.deps->now())
                                          : apply_observation(change.record, observation, surroundings(self));
    if (!changed) return leave();
    commit(self, std::move(change), [=](const absl::Status&) { leave(); });
  });
}

void tick(Entity self) {
  auto& s = self->state;
  if (s.gone || !s.stored) return;
  const auto now = s.deps->now();
  if (recovery_due(s.record, now) || restart_due(s.record, now)) {
    start_again(self);
    return;  // the attempt's commits set the timer again
  }
  const auto& provisioning = s.record.sandbox().status().provisioning();
  const bool cleanup = provisioning.has_timeout_time() && !provisioning.has_cleanup_completed_time() &&
                       (!provisioning.has_cleanup_retry_time() || now >= to_millis(provisioning.cleanup_retry_time()));
  if (cleanup) return remove_expired_compute(self);
  quietly(self, [=](auto leave) {
    auto change = begin(self);
    if (!expire(change.record, self->state.deps->now())) {
      leave();
      return set_timer(self);
    }
    commit(self, std::move(change), [=](const absl::Status&) { leave(); });
  });
}

void main_exit(Entity self, const Ask<pb::ReportMainProcessExitRequest>& ask, Answer<pb::ReportMainProcessExitResponse> answer) {
  if (ask.request->instance_id().empty()) return answer(absl::InvalidArgumentError("instance_id is required"));
  auto change = begin(self);
  if (!main_process_exited(change.record, ask.request->instance_id(), ask.request->exit_code(), self->state.deps->now())) {
    return answer(pb::ReportMainProcessExitResponse{});
  }
  commit(self, std::move(change), [=](const absl::Status& status) {
    if (!status.ok()) return answer(absl::FailedPreconditionError(std::string{to_std(status.message())}));
    answer(pb::ReportMainProcessExitResponse{});
    remove_if_done(self);
  });
}

void finalize(Entity self, const Ask<pb::FinalizeMainProcessExitRequest>& ask, Answer<pb::FinalizeMainProcessExitResponse> answer) {
  if (ask.request->instance_id().empty()) return answer(absl::InvalidArgumentError("instance_id is required"));
  auto change = begin(self);
  const auto& status = change.record.sandbox().status();
  if (status.main_process_instance_id() != ask.request->instance_id() || change.record.finalized_instance() == ask.request->instance_id()) {
    return answer(pb::FinalizeMainProcessExitResponse{});
  }
  change.record.set_finalized_instance(ask.request->instance_id());
  commit(self, std::move(change), [=](const absl::Status& written) {
    if (!written.ok()) return answer(absl::FailedPreconditionError(std::string{to_std(written.message())}));
    answer(pb::FinalizeMainProcessExitResponse{});
    remove_if_done(self);
  });
}

void remove_if_done(Entity self) {
  auto& s = self->state;
  if (!s.gone && restart_due(s.record, s.deps->now())) return start_again(self);
  if (s.gone || !ready_to_remove(s.record, s.session.has_value())) return;
  delete_sandbox(self, [](const Reply<pb::DeleteSandboxResponse>&) {});
}

}  // namespace openshell::gateway
