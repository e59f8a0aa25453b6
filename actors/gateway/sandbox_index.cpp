#include "actors/gateway/sandbox_index.hpp"

#include <caf/all.hpp>

#include <algorithm>

#include "actors/gateway/create_request.hpp"
#include "actors/gateway/lifecycle.hpp"
#include "actors/gateway/paging.hpp"
#include "api/errors.hpp"
#include "api/service_endpoint.hpp"
#include "observability/text.hpp"
#include "policy/hash.hpp"
#include "storage/labels.hpp"

namespace openshell::gateway {
namespace {

using Self = SandboxIndex::stateful_pointer<SandboxIndexState>;
using CreateReply = Reply<pb::SandboxResponse>;

SandboxIndexState::Order order_of(const pb::Sandbox& sandbox) {
  const auto& meta = sandbox.metadata();
  return {to_millis(meta.created_time()), meta.name(), meta.workspace(), meta.id()};
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
}

SandboxEntity adopt(Self self, std::shared_ptr<const StoredSandbox> initial, bool stored) {
  auto& s = self->state;
  const auto& meta = initial->record.sandbox().metadata();
  auto entity = self->spawn(sandbox_entity, s.deps, SandboxIndex{self}, initial, stored, s.global);
  self->monitor(entity);
  auto& entry = s.by_id[meta.id()];
  entry.entity = entity;
  entry.workspace = meta.workspace();
  entry.name = meta.name();
  entry.changed = s.deps->now();
  s.by_name[{meta.workspace(), meta.name()}] = meta.id();
  if (stored) {
    entry.shown = std::make_shared<const pb::Sandbox>(initial->record.sandbox());
    s.order.insert(order_of(*entry.shown));
    self->send(s.bus, changed_atom::value, meta.id(),
               entry.shown);  // whoever finds it here can watch it there at once, before the first change
  }
  return entity;
}

void forget(Self self, const std::string& id) {
  auto& s = self->state;
  const auto it = s.by_id.find(id);
  if (it == s.by_id.end()) return;
  if (it->second.shown) s.order.erase(order_of(*it->second.shown));
  const auto name = s.by_name.find({it->second.workspace, it->second.name});
  if (name != s.by_name.end() && name->second == id) s.by_name.erase(name);
  s.by_id.erase(it);
  self->send(s.bus, drop_atom::value, id);
  touch(self);
}

absl::StatusOr<std::shared_ptr<const StoredSandbox>> prepare(Self self, const Ask<pb::CreateSandboxRequest>& ask) {
  auto& s = self->state;
  auto request = *ask.request;
  if (auto status = check_create(request); !status.ok()) return status;
  Creation creation;
  creation.workspace = request.workspace_scope().workspace();
  creation.name = request.name();
  for (int tries = 0; creation.name.empty(); ++tries) {
    auto name = pet_name(s.options.random);
    if (!s.by_name.contains({creation.workspace, name})) creation.name = name;
    if (tries == 1'000) return absl::ResourceExhaustedError("no free sandbox name was found; name the sandbox");
  }
  if (s.by_name.contains({creation.workspace, creation.name}))
    return absl::AlreadyExistsError(cat("sandbox '", creation.name, "' already exists"));
  creation.driver = s.options.driver_name;
  creation.default_image = s.options.default_image;
  creation.sandbox_id = s.deps->new_id();
  creation.attachment_epoch = s.deps->new_id();
  creation.now = s.deps->now();
  StoredSandbox initial;
  initial.record = new_record(request, creation);
  begin_attempt(initial.record, creation.now, s.deps->new_id(), s.deps->new_id(), s.deps->new_id());
  set_condition(*initial.record.mutable_sandbox()->mutable_status(), "Ready", false, "ConfigurationPending",
                "Waiting for the first accepted configuration", creation.now);
  if (request.spec().has_policy()) {
    PolicyHistory policies;
    const auto& policy = initial.record.sandbox().spec().policy();
    policies.append(s.deps->new_id(), policy, policy::policy_hash(policy).str(), {}, creation.now, true);
    initial.policies = policies.rows();
  }
  initial.services = api::exposures_of(request, creation.workspace, creation.sandbox_id, creation.name);
  return std::make_shared<const StoredSandbox>(std::move(initial));
}

bool matches(const pb::Sandbox& sandbox, const storage::Labels& selector) {
  return std::all_of(selector.begin(), selector.end(), [&](const auto& pair) {
    const auto it = sandbox.metadata().labels().find(pair.first);
    return it != sandbox.metadata().labels().end() && it->second == pair.second;
  });
}

absl::StatusOr<pb::ListSandboxesResponse> list(const SandboxIndexState& s, const pb::ListSandboxesRequest& request,
                                               const std::string& workspace) {
  auto limit = page_limit(request.page_size());
  if (!limit.ok()) return limit.status();
  auto selector = storage::parse_label_selector(request.label_selector());
  if (!selector.ok()) return api::invalid_field("label_selector", to_std(selector.status().message()));
  const auto binding = cat("ListSandboxes|", workspace.empty() ? "*" : workspace, "|", request.label_selector());
  auto after = s.deps->store->parse_page_token(binding, request.page_token());
  if (!after.ok()) return api::invalid_field("page_token", to_std(after.status().message()));
  auto it = s.order.begin();
  if (*after) it = s.order.upper_bound({(*after)->position, (*after)->name, (*after)->workspace, (*after)->id});
  pb::ListSandboxesResponse response;
  SandboxIndexState::Order last;
  for (; it != s.order.end(); ++it) {
    const auto entry = s.by_id.find(std::get<3>(*it));
    if (entry == s.by_id.end() || !entry->second.shown) continue;
    if ((!workspace.empty() && entry->second.workspace != workspace) || !matches(*entry->second.shown, *selector)) continue;
    if (static_cast<std::size_t>(response.sandboxes_size()) == *limit) {
      response.set_next_page_token(
          s.deps->store->page_token(binding, {std::get<0>(last), std::get<1>(last), std::get<2>(last), std::get<3>(last)}));
      break;
    }
    *response.add_sandboxes() = *entry->second.shown;
    last = *it;
  }
  return response;
}

Handed<SandboxHandle> handle_of(const SandboxIndexState& s, const std::string& id) {
  const auto it = s.by_id.find(id);
  if (it == s.by_id.end()) return {absl::NotFoundError("sandbox not found")};
  return {std::make_shared<SandboxHandle>(SandboxHandle{id, it->second.workspace, it->second.name, it->second.entity})};
}

void entity_died(Self self, const std::string& id);

/// An entity that died of a fault is made again from the store, and goes on where the records say it was.
void resurrect(Self self, const std::string& id) {
  auto& s = self->state;
  if (s.ending || !s.by_id.contains(id)) return;
  auto read = std::make_shared<StoredSandboxes>();
  s.deps->store->read(
      [read](storage::Transaction& tx) {
        auto all = load_all(tx);
        if (all.ok()) *read = std::move(*all);
        return all.status();
      },
      [handle = SandboxIndex{self}, self, id, read](const absl::Status& status) {
        caf::anon_send(handle, Resume{[=] {
                         if (self->state.ending) return;
                         if (!status.ok()) return entity_died(self, id);  // the store may answer later
                         forget(self, id);
                         // Its supervisor introduces itself anew: the one that died was told of its session.
                         self->send(self->state.deps->sessions, drop_atom::value, id,
                                    std::string{"the actor of the sandbox was restarted"});
                         for (const auto& one : read->sandboxes) {
                           if (one.record.sandbox().metadata().id() != id) continue;
                           self->send(adopt(self, std::make_shared<const StoredSandbox>(one), true), recover_atom::value);
                         }
                       }});
      });
}

/// One that dies again and again stays dead, and only it: requests about it are refused until the process starts anew.
void entity_died(Self self, const std::string& id) {
  auto& s = self->state;
  auto& rule = s.deaths.try_emplace(id, OnDeath::restart).first->second;
  const auto verdict = rule.died(self->clock().now());
  if (verdict.action != OnDeath::restart) {
    s.reporter.note_failed(cat("the actor of sandbox ", id, " dies again and again and is not made any more"));
    return touch(self);
  }
  s.reporter.note_failed(cat("the actor of sandbox ", id, " died and is made again from the store"));
  self->delayed_send(self, verdict.after, Resume{[=] { resurrect(self, id); }});
  touch(self);
}

/// The entities first, then the index: whoever waits for the index has waited for all.
void end(Self self) {
  auto& s = self->state;
  s.ending = true;
  for (const auto& [id, entry] : s.by_id) self->send_exit(entry.entity, caf::exit_reason::user_shutdown);
  if (s.by_id.empty()) self->quit(caf::exit_reason::user_shutdown);
}

void entity_down(Self self, const caf::down_msg& down) {
  auto& s = self->state;
  const auto it =
      std::find_if(s.by_id.begin(), s.by_id.end(), [&](const auto& entry) { return entry.second.entity.address() == down.source; });
  if (it == s.by_id.end()) {  // deleted, and it reported for the last time
    if (auto gone = s.leaving.extract(down.source))
      self->send(s.deps->directory, forget_atom::value, cat("sandbox_entity:", gone.mapped()));
    return;
  }
  const auto id = it->first;
  if (s.ending) {
    s.by_id.erase(it);
    if (s.by_id.empty()) self->quit(caf::exit_reason::user_shutdown);
    return;
  }
  if (!down.reason || down.reason == caf::exit_reason::user_shutdown) return;
  entity_died(self, id);
}

}  // namespace

ActorSnapshot SandboxIndexState::snapshot() const {
  ActorSnapshot out;
  out.summary = cat(order.size(), " sandboxes");
  out.waiting = by_id.size() - std::min(by_id.size(), order.size());  // being created
  return reporter.complete(out);
}

SandboxIndex::behavior_type sandbox_index(Self self, std::shared_ptr<const EntityDeps> deps, SandboxBus bus, IndexOptions options) {
  auto& s = self->state;
  s.deps = std::move(deps);
  s.bus = std::move(bus);
  s.options = std::move(options);
  s.reporter = Reporter{s.deps->directory, "sandbox_index", "sandbox_index", "gateway_root"};
  self->set_exit_handler([self](caf::exit_msg& exit) {
    if (exit.reason == caf::exit_reason::user_shutdown) return end(self);
    self->quit(exit.reason);
  });
  self->set_down_handler([self](caf::down_msg& down) { entity_down(self, down); });
  SandboxIndex::behavior_type handlers{
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](load_atom, const std::shared_ptr<const StoredSandboxes>& all) -> Outcome {
        for (const auto& one : all->sandboxes) {
          auto entity = adopt(self, std::make_shared<const StoredSandbox>(one), true);
          self->send(entity, recover_atom::value);
        }
        touch(self);
        return {};
      },
      [=](const Ask<pb::CreateSandboxRequest>& ask) {
        auto promise = self->make_response_promise<CreateReply>();
        auto initial = prepare(self, ask);
        if (!initial.ok()) {
          self->state.reporter.note_failed(std::string{to_std(initial.status().message())});
          promise.deliver(CreateReply{initial.status()});
          return promise;
        }
        self->request(adopt(self, *initial, false), caf::infinite, create_atom::value)
            .then([promise](CreateReply& reply) mutable { promise.deliver(std::move(reply)); },
                  [promise, self](const caf::error& error) mutable {
                    promise.deliver(CreateReply{absl::UnavailableError(cat("create sandbox failed: ", self->system().render(error)))});
                  });
        return promise;
      },
      [=](find_atom, const std::string& workspace, const std::string& name) -> Handed<SandboxHandle> {
        const auto it = self->state.by_name.find({workspace, name});
        if (it == self->state.by_name.end() || !self->state.by_id[it->second].shown) return {absl::NotFoundError("sandbox not found")};
        return handle_of(self->state, it->second);
      },
      [=](find_atom, const std::string& id) { return handle_of(self->state, id); },
      [=](const Ask<pb::ListSandboxesRequest>& ask, const std::string& workspace) -> Reply<pb::ListSandboxesResponse> {
        auto page = list(self->state, *ask.request, workspace);
        if (!page.ok()) return {page.status()};
        return {std::make_shared<const pb::ListSandboxesResponse>(std::move(*page))};
      },
      [=](changed_atom, const std::string& id, const std::shared_ptr<const pb::Sandbox>& sandbox) {
        auto& state = self->state;
        const auto it = state.by_id.find(id);
        if (it == state.by_id.end()) return;
        it->second.shown = sandbox;
        it->second.changed = state.deps->now();
        state.order.insert(order_of(*sandbox));
        self->send(state.bus, changed_atom::value, id, sandbox);
        state.reporter.note_handled();
        touch(self);
      },
      [=](drop_atom, const std::string& id) {
        if (const auto it = self->state.by_id.find(id); it != self->state.by_id.end())
          self->state.leaving[it->second.entity.address()] = id;
        self->state.deaths.erase(id);
        forget(self, id);
      },
      [=](changed_atom, const GlobalView& view) {
        self->state.global = view;
        for (auto& [id, entry] : self->state.by_id) self->send(entry.entity, changed_atom::value, view);
      },
      [=](changed_atom, const std::string& workspace, const std::string& provider) {
        for (auto& [id, entry] : self->state.by_id) {
          if (workspace.empty() || entry.workspace == workspace) self->send(entry.entity, changed_atom::value, provider);
        }
      },
      [=](const ComputeObservation& observation) {
        const auto it = self->state.by_id.find(observation.sandbox_id);
        if (it != self->state.by_id.end()) self->send(it->second.entity, observation);
      },
      [=](list_atom) {
        std::map<std::string, std::int64_t> out;
        for (const auto& [id, entry] : self->state.by_id) {
          if (entry.shown) out[id] = entry.changed;
        }
        return out;
      },
      [=](const Resume& resume) { resume.run(); },
  };
  return self->state.reporter.watch(
      self, [self] { return self->state.snapshot(); }, std::move(handlers));
}

}  // namespace openshell::gateway
