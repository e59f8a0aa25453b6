#include "actors/gateway/sandbox_entity.hpp"

#include <caf/all.hpp>

#include <algorithm>

#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/entity_ops.hpp"
#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

constexpr std::chrono::milliseconds kShortestSleep{20};    // something that stays due never spins
constexpr std::chrono::milliseconds kLongestSleep{1'000};  // wall clock and actor clock may drift: look again at least so often

std::vector<RowWrite> rows_of(const SandboxEntityState& s, const Change& change) {
  const auto& meta = change.record.sandbox().metadata();
  std::vector<RowWrite> writes;
  writes.push_back({RowWrite::Kind::update, to_row(change.record), s.record.sandbox().metadata().resource_version()});
  for (auto version : change.policy_rows) {
    const auto* revision = change.policies->find(version);
    const bool fresh = s.policies.find(version) == nullptr;
    writes.push_back({fresh ? RowWrite::Kind::create : RowWrite::Kind::update, to_row(*revision, meta.id(), meta.workspace()), {}});
  }
  if (change.settings) {
    writes.push_back({s.settings ? RowWrite::Kind::update : RowWrite::Kind::create,
                      to_row(*change.settings, storage::types::kSandboxSettings, meta.workspace(), meta.name(), meta.id()),
                      {}});
  }
  for (const auto& draft : change.drafts) {
    const bool fresh = !s.drafts.contains(draft.chunk().id());
    writes.push_back({fresh ? RowWrite::Kind::create : RowWrite::Kind::update, to_row(draft, meta.id(), meta.workspace()), {}});
  }
  for (const auto& id : change.erased_drafts) {
    RowWrite write{RowWrite::Kind::erase, {}, {}};
    write.row.type = std::string{storage::types::kDraftPolicyChunk};
    write.row.id = id;
    writes.push_back(std::move(write));
  }
  if (change.receipt) {
    const bool fresh = !s.receipts.contains(change.receipt->receipt().receipt_id());
    writes.push_back({fresh ? RowWrite::Kind::create : RowWrite::Kind::update, to_row(*change.receipt, meta.id(), meta.workspace()), {}});
  }
  return writes;
}

void touch(Entity self) {
  self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
}

void take_over(Entity self, Change& change, std::uint64_t version) {
  auto& s = self->state;
  s.record = std::move(change.record);
  s.record.mutable_sandbox()->mutable_metadata()->set_resource_version(version);
  if (change.policies) s.policies = std::move(*change.policies);
  if (change.settings) s.settings = std::move(change.settings);
  for (auto& draft : change.drafts) s.drafts[draft.chunk().id()] = draft;
  for (const auto& draft : change.erased_drafts) s.drafts.erase(draft);
  if (change.receipt) s.receipts[change.receipt->receipt().receipt_id()] = *change.receipt;
  s.config.reset();
  const auto& meta = s.record.sandbox().metadata();
  s.deps->identities->put(s.record);
  self->send(s.index, changed_atom::value, meta.id(), s.deps->identities->shown(meta.workspace(), meta.name()));
  if (change.configuration) {
    self->send(s.deps->sessions, changed_atom::value, meta.id());
    refresh_drafts_later(self);
  }
  set_timer(self);
  touch(self);
}

/// A request that reads memory only.
template <class Request, class Response>
auto reading(Entity self, void (*handler)(Entity, const Ask<Request>&, Answer<Response>)) {
  return [=](const Ask<Request>& ask) -> caf::typed_response_promise<Reply<Response>> {
    auto promise = self->make_response_promise<Reply<Response>>();
    Answer<Response> answer = [promise](absl::StatusOr<Response> result) mutable {
      Reply<Response> reply;
      if (result.ok()) {
        reply.value = std::make_shared<const Response>(std::move(*result));
      } else {
        reply.value = result.status();
      }
      promise.deliver(std::move(reply));
    };
    self->state.gone ? answer(not_found()) : handler(self, ask, answer);
    return promise;
  };
}

/// A request that changes something.
template <class Request, class Response>
auto changing(Entity self, void (*handler)(Entity, const Ask<Request>&, Answer<Response>)) {
  return [=](const Ask<Request>& ask) {
    return gated<Response>(self, [=](Answer<Response> answer) { handler(self, ask, std::move(answer)); });
  };
}

void get_config(Entity self, const Ask<openshell::sandbox::v1::GetSandboxConfigRequest>&,
                Answer<openshell::sandbox::v1::GetSandboxConfigResponse> answer) {
  with_providers(self, [=](absl::Status known) { known.ok() ? answer(*config(self)) : answer(known); });
}

void session_added(Entity self, const SessionInfo& info) {
  auto& s = self->state;
  s.session = info;
  s.evidence.reset();
  s.endpoints = {};
  quietly(self, [=](auto leave) {
    auto change = begin(self);
    const bool forgot = forget_results(*change.record.mutable_sandbox()->mutable_status());
    if (!session_connected(change.record, surroundings(self), info.host_key_fingerprint) && !forgot) return leave();
    commit(self, std::move(change), [=](const absl::Status&) { leave(); });
  });
}

void session_over(Entity self, const std::string& session_id) {
  auto& s = self->state;
  if (!s.session || s.session->session_id != session_id) return;
  s.session.reset();
  s.evidence.reset();
  quietly(self, [=](auto leave) {
    auto change = begin(self);
    const bool forgot = !self->state.session && forget_results(*change.record.mutable_sandbox()->mutable_status());
    if (self->state.session || (!session_ended(change.record, self->state.deps->now()) && !forgot)) {
      leave();
      return remove_if_done(self);
    }
    commit(self, std::move(change), [=](const absl::Status&) {
      leave();
      remove_if_done(self);
    });
  });
}

/// What was seen with other credentials says nothing any more.
void forget_dependent_endpoints(Entity self) {
  if (self->state.record.sandbox().status().endpoint_statuses().empty()) return;
  quietly(self, [=](auto leave) {
    with_providers(self, [=](const absl::Status& known) {
      auto change = begin(self);
      auto& status = *change.record.mutable_sandbox()->mutable_status();
      const bool forgot = known.ok() ? forget_credentialed(status, config(self)->policy()) : forget_results(status);
      if (!forgot) return leave();
      commit(self, std::move(change), [=](const absl::Status&) { leave(); });
    });
  });
}

caf::typed_response_promise<Outcome> rotate(Entity self, const TokenRotation& rotation) {
  auto promise = self->make_response_promise<Outcome>();
  quietly(self, [=](auto leave) mutable {
    auto change = begin(self);
    if (change.record.gateway_token_id() != rotation.expected_token_id) {
      promise.deliver(Outcome{absl::AbortedError("the sandbox token was rotated meanwhile")});
      return leave();
    }
    auto& record = change.record;
    record.set_gateway_token_id(rotation.new_token_id);
    record.set_refresh_previous_token_id(rotation.previous_token_id);
    record.set_refresh_request_hash(rotation.request_hash);
    record.set_refresh_rotation_id(rotation.rotation_id);
    record.set_refresh_issued_at(rotation.issued_at);
    record.set_refresh_replay_until(rotation.replay_until);
    commit(self, std::move(change), [=](const absl::Status& status) mutable {
      promise.deliver(Outcome{status});
      leave();
    });
  });
  return promise;
}

}  // namespace

absl::Status not_found() { return absl::NotFoundError("sandbox not found"); }

ActorSnapshot SandboxEntityState::snapshot() const {
  ActorSnapshot out;
  const auto& status = record.sandbox().status();
  out.summary = cat(record.sandbox().metadata().name(), ": ", phase_name(status.phase()), session ? ", connected" : ", no session",
                    ", policy ", status.current_policy_version());
  out.waiting = writes.waiting() + lifecycle.waiting();
  return reporter.complete(out);
}

Surroundings surroundings(Entity self) {
  const auto& s = self->state;
  return {s.deps->now(), s.session.has_value(), s.session ? s.session->instance_id : std::string{}};
}

Change begin(Entity self) {
  Change change;
  change.record = self->state.record;
  return change;
}

void commit(Entity self, Change change, std::function<void(absl::Status)> then) {
  auto& s = self->state;
  auto writes = std::make_shared<const std::vector<RowWrite>>(rows_of(s, change));
  auto version = std::make_shared<std::uint64_t>(0);
  auto shared = std::make_shared<Change>(std::move(change));
  s.deps->store->write(
      [writes, version, check = shared->check](storage::Transaction& tx) {
        if (check) {
          if (auto status = check(tx); !status.ok()) return status;
        }
        auto versions = write_rows(tx, *writes);
        if (!versions.ok()) return versions.status();
        *version = versions->front();
        return absl::OkStatus();
      },
      [handle = SandboxEntity{self}, self, shared, version, then = std::move(then)](const absl::Status& committed) {
        caf::anon_send(handle, Resume{[=] {
                         if (committed.ok())
                           take_over(self, *shared, *version);
                         else
                           self->state.reporter.note_failed(std::string{committed.message()});
                         then(committed);
                       }});
      });
}

void remove_rows(Entity self, std::function<void(absl::Status)> then) {
  auto& s = self->state;
  auto writes = std::make_shared<const std::vector<RowWrite>>(removal_of(s.record));
  s.deps->store->write([writes](storage::Transaction& tx) { return write_rows(tx, *writes).status(); },
                       [handle = SandboxEntity{self}, self, then = std::move(then)](const absl::Status& committed) {
                         caf::anon_send(handle, Resume{[=] {
                                          auto& state = self->state;
                                          const auto& id = state.record.sandbox().metadata().id();
                                          if (committed.ok()) {
                                            state.gone = true;
                                            state.deps->identities->erase(id);
                                            self->send(state.index, drop_atom::value, id);
                                          }
                                          then(committed);
                                        }});
                       });
}

void read_store(Entity self, std::function<absl::Status(storage::Transaction&)> work, std::function<void(absl::Status)> then) {
  self->state.deps->store->read(std::move(work), [handle = SandboxEntity{self}, then = std::move(then)](const absl::Status& status) {
    caf::anon_send(handle, Resume{[=] { then(status); }});
  });
}

void call_driver(Entity self, ComputeCall call, std::function<void(absl::StatusOr<std::shared_ptr<const ComputeAnswer>>)> then) {
  call.id = SandboxId{self->state.record.sandbox().metadata().id()};
  self->request(self->state.deps->compute, caf::infinite, std::make_shared<const ComputeCall>(std::move(call)))
      .then([then](Reply<ComputeAnswer>& reply) { then(std::move(reply.value)); },
            [then, self](const caf::error& error) { then(absl::UnavailableError(self->system().render(error))); });
}

void quietly(Entity self, std::function<void(std::function<void()>)> op) {
  self->state.writes.enter([self, op = std::move(op)] {
    auto leave = [self] { self->state.writes.leave(); };
    if (self->state.gone) return leave();
    op(leave);
  });
}

void set_timer(Entity self) {
  auto& s = self->state;
  if (s.tick_set || s.gone) return;
  const auto due = next_due(s.record);
  if (!due) return;
  s.tick_set = true;
  const std::chrono::milliseconds wait{std::clamp<Millis>(*due - s.deps->now(), kShortestSleep.count(), kLongestSleep.count())};
  self->delayed_send(self, wait, tick_atom::value);
}

void forget_providers(Entity self) {
  auto& s = self->state;
  s.attached_known = false;
  ++s.attached_epoch;
  s.config.reset();
}

void with_providers(Entity self, std::function<void(absl::Status)> then) {
  auto& s = self->state;
  if (s.attached_known) return then(absl::OkStatus());
  const auto& sandbox = s.record.sandbox();
  auto names = std::vector<std::string>{sandbox.spec().providers().begin(), sandbox.spec().providers().end()};
  if (names.empty()) {
    s.attached.clear();
    s.attached_known = true;
    s.provider_missing = false;
    return then(absl::OkStatus());
  }
  auto found = std::make_shared<std::vector<providers::Provider>>();
  const auto epoch = s.attached_epoch;
  read_store(
      self,
      [found, names, workspace = sandbox.metadata().workspace()](storage::Transaction& tx) {
        for (const auto& name : names) {
          auto provider = providers::find_provider(tx, workspace, name);
          if (!provider.ok()) return provider.status();
          if (!*provider) continue;
          if (auto status = providers::with_profile(tx, **provider); !status.ok()) return status;
          found->push_back(std::move(**provider));
        }
        return absl::OkStatus();
      },
      [=](const absl::Status& status) {
        if (status.ok() && epoch != self->state.attached_epoch) return with_providers(self, then);
        if (status.ok()) {
          self->state.attached = *found;
          self->state.attached_known = true;
          self->state.provider_missing = found->size() != names.size();
          self->state.config.reset();
        }
        then(status);
      });
}

ConfigInputs config_inputs(Entity self) {
  const auto& s = self->state;
  return {s.record,           s.policies,           s.settings ? &s.settings->value : nullptr, s.global, s.attached,
          s.provider_missing, s.deps->failure_mode, s.deps->extension_authentication};
}

std::shared_ptr<const openshell::sandbox::v1::GetSandboxConfigResponse> config(Entity self) {
  auto& s = self->state;
  if (!s.config) {
    s.config = std::make_shared<const openshell::sandbox::v1::GetSandboxConfigResponse>(compose_config(config_inputs(self)));
  }
  return s.config;
}

SandboxEntity::behavior_type sandbox_entity(SandboxEntity::stateful_pointer<SandboxEntityState> self,
                                            std::shared_ptr<const EntityDeps> deps, SandboxIndex index,
                                            std::shared_ptr<const StoredSandbox> initial, bool stored, GlobalView global) {
  auto& s = self->state;
  s.deps = std::move(deps);
  s.index = std::move(index);
  s.record = initial->record;
  forget_results(*s.record.mutable_sandbox()->mutable_status());  // of sessions that ended with the gateway before
  s.stored = stored;
  s.policies = PolicyHistory{initial->policies};
  s.settings = initial->settings;
  s.drafts = initial->drafts;
  s.receipts = initial->receipts;
  s.services = initial->services;
  s.global = std::move(global);
  s.reporter = Reporter{s.deps->directory, cat("sandbox_entity:", s.record.sandbox().metadata().id()), "sandbox_entity", "sandbox_index"};
  if (stored) {
    s.deps->identities->put(s.record);
    set_timer(self);
  }
  touch(self);

  SandboxEntity::behavior_type handlers{
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](create_atom) {
        auto promise = self->make_response_promise<Reply<pb::SandboxResponse>>();
        create_sandbox(self, promise);
        return promise;
      },
      [=](recover_atom) { recover_sandbox(self); },
      [=](get_atom) -> Reply<pb::Sandbox> {
        if (self->state.gone || !self->state.stored) return {not_found()};
        return {std::make_shared<const pb::Sandbox>(self->state.record.sandbox())};
      },
      [=](usable_atom) -> Outcome {
        if (self->state.gone || !self->state.stored) return {not_found()};
        return {check_usable(self->state.record, self->state.session.has_value())};
      },
      [=](const Ask<pb::StopSandboxRequest>&) {
        auto promise = self->make_response_promise<Reply<pb::SandboxResponse>>();
        stop_sandbox(self, promise);
        return promise;
      },
      [=](const Ask<pb::StartSandboxRequest>&) {
        auto promise = self->make_response_promise<Reply<pb::SandboxResponse>>();
        start_sandbox(self, promise);
        return promise;
      },
      [=](const Ask<pb::DeleteSandboxRequest>&) {
        auto promise = self->make_response_promise<Reply<pb::DeleteSandboxResponse>>();
        delete_sandbox(self, [promise](Reply<pb::DeleteSandboxResponse> reply) mutable { promise.deliver(std::move(reply)); });
        return promise;
      },
      changing(self, update_config),
      reading(self, get_config),
      reading(self, list_policies),
      reading(self, policy_status),
      changing(self, report_policy),
      changing(
          self,
          static_cast<void (*)(Entity, const Ask<pb::ReportSandboxConfigurationRequest>&, Answer<pb::ReportSandboxConfigurationResponse>)>(
              report_configuration)),
      changing(self, report_readiness),
      changing(self, report_endpoints),
      changing(self, main_exit),
      changing(self, finalize),
      reading(self, provider_environment),
      changing(self, attach),
      changing(self, detach),
      changing(self, provider_status),
      [=](const ProviderUpdated& updated) {
        return gated<pb::ProviderMutationReceipt>(
            self, [=](Answer<pb::ProviderMutationReceipt> answer) { update_receipt(self, updated, answer); });
      },
      changing(self, submit_analysis),
      reading(self, get_drafts),
      reading(self, draft_history),
      changing(self, approve_draft),
      changing(self, approve_drafts),
      changing(self, reject_draft),
      changing(self, edit_draft),
      changing(self, undo_draft),
      changing(self, clear_drafts),
      [=](const ComputeObservation& observation) { observed(self, observation); },
      [=](add_atom, const SessionInfo& info) { session_added(self, info); },
      [=](ended_atom, const std::string& session_id, const std::string&) { session_over(self, session_id); },
      [=](changed_atom, const GlobalView& view) {
        self->state.global = view;
        self->state.config.reset();
        refresh_drafts_later(self);
        self->send(self->state.deps->sessions, changed_atom::value, self->state.record.sandbox().metadata().id());
      },
      [=](changed_atom, const std::string& provider) {
        const auto& names = self->state.record.sandbox().spec().providers();
        if (!provider.empty() && std::find(names.begin(), names.end(), provider) == names.end()) return;
        forget_providers(self);
        refresh_drafts_later(self);
        forget_dependent_endpoints(self);
        self->send(self->state.deps->sessions, changed_atom::value, self->state.record.sandbox().metadata().id());
      },
      [=](const TokenRotation& rotation) { return rotate(self, rotation); },
      [=](tick_atom) {
        self->state.tick_set = false;
        tick(self);
      },
      [=](const Resume& resume) { resume.run(); },
  };
  return self->state.reporter.watch(
      self, [self] { return self->state.snapshot(); }, std::move(handlers));
}

}  // namespace openshell::gateway
