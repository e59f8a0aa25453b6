#include "actors/gateway/global_configuration.hpp"

#include <caf/all.hpp>

#include "actors/gateway/create_request.hpp"
#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/paging.hpp"
#include "actors/gateway/settings.hpp"
#include "actors/gateway/update_config.hpp"
#include "api/errors.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "policy/hash.hpp"

namespace openshell::gateway {
namespace {

namespace sb = openshell::sandbox::v1;
using Self = GlobalConfiguration::stateful_pointer<GlobalConfigurationState>;
using UpdateReply = Reply<pb::UpdateConfigResponse>;
using Answer = std::function<void(absl::StatusOr<pb::UpdateConfigResponse>)>;

constexpr const char* kRowName = "global";

struct GlobalChange {
  Stored<records::SettingsRecord> settings;
  PolicyHistory policies;
  std::vector<std::uint32_t> policy_rows;
};

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
}

void commit(Self self, GlobalChange change, std::function<void(absl::Status)> then) {
  auto& s = self->state;
  std::vector<RowWrite> writes;
  writes.push_back({s.stored ? RowWrite::Kind::update : RowWrite::Kind::create,
                    to_row(change.settings, storage::types::kGatewaySettings, "", kRowName, row_types::kGlobalScope),
                    {}});
  for (auto version : change.policy_rows) {
    const bool fresh = s.policies.find(version) == nullptr;
    writes.push_back(
        {fresh ? RowWrite::Kind::create : RowWrite::Kind::update, to_row(*change.policies.find(version), row_types::kGlobalScope, ""), {}});
  }
  auto shared = std::make_shared<GlobalChange>(std::move(change));
  s.store->write([writes](storage::Transaction& tx) { return write_rows(tx, writes).status(); },
                 [handle = GlobalConfiguration{self}, self, shared, then](const absl::Status& committed) {
                   caf::anon_send(handle, Resume{[=] {
                                    auto& state = self->state;
                                    if (committed.ok()) {
                                      state.settings = std::move(shared->settings);
                                      state.policies = std::move(shared->policies);
                                      state.stored = true;
                                      self->send(state.index, changed_atom::value, state.view());
                                      touch(self);
                                    }
                                    then(committed);
                                  }});
                 });
}

void finish(Self self, GlobalChange change, pb::UpdateConfigResponse response, Answer answer) {
  commit(self, std::move(change),
         [=](const absl::Status& status) { status.ok() ? answer(response) : answer(api::from_storage("UpdateConfig", status)); });
}

void set_policy(Self self, sb::SandboxPolicy policy, Answer answer) {
  auto& s = self->state;
  if (auto status = admit_policy(policy, false); !status.ok()) return answer(status);
  if (auto status = check_bindings(policy, {}, true); !status.ok()) return answer(status);
  const auto hash = policy::policy_hash(policy).str();
  GlobalChange change{s.settings, s.policies, {}};
  pb::UpdateConfigResponse response;
  response.set_policy_hash(hash);
  const auto* newest = s.policies.newest();
  const bool same = newest != nullptr && newest->value.hash() == hash && newest->value.status() == pb::POLICY_STATUS_LOADED;
  if (same) {
    response.set_version(newest->value.version());
    if (s.settings.value.has_global_policy()) return answer(std::move(response));
  } else {
    change.policy_rows = change.policies.append(s.new_id(), policy, hash, {}, s.now(), true);
    response.set_version(change.policies.newest()->value.version());
  }
  *change.settings.value.mutable_global_policy() = std::move(policy);
  touch_setting(change.settings.value, "policy", s.new_id(), s.now());
  finish(self, std::move(change), std::move(response), std::move(answer));
}

void delete_policy(Self self, Answer answer) {
  auto& s = self->state;
  pb::UpdateConfigResponse response;
  response.set_settings_revision(s.settings.value.revision());
  if (!s.settings.value.has_global_policy()) return answer(std::move(response));
  GlobalChange change{s.settings, s.policies, {}};
  change.policy_rows = change.policies.retire_all();
  change.settings.value.clear_global_policy();
  touch_setting(change.settings.value, "policy", s.new_id(), s.now());
  response.set_deleted(true);
  response.set_settings_revision(change.settings.value.revision());
  finish(self, std::move(change), std::move(response), std::move(answer));
}

void set_key(Self self, const pb::UpdateConfigRequest& request, Answer answer) {
  auto& s = self->state;
  const auto& key = request.setting_key();
  if (auto status = check_setting_key(key); !status.ok()) return answer(status);
  if (!request.delete_setting()) {
    if (!request.has_setting_value()) return answer(absl::InvalidArgumentError("setting_value is required"));
    if (auto status = check_setting(key, request.setting_value()); !status.ok()) return answer(status);
  }
  GlobalChange change{s.settings, s.policies, {}};
  const bool changed = request.delete_setting() ? gateway::delete_setting(change.settings.value, key, s.new_id(), s.now())
                                                : set_setting(change.settings.value, key, request.setting_value(), s.new_id(), s.now());
  pb::UpdateConfigResponse response;
  response.set_deleted(request.delete_setting() && changed);
  response.set_settings_revision(change.settings.value.revision());
  if (!changed) return answer(std::move(response));
  finish(self, std::move(change), std::move(response), std::move(answer));
}

void update(Self self, const Ask<pb::UpdateConfigRequest>& ask, Answer answer) {
  const auto& request = *ask.request;
  auto kind = classify_update(request, ask.caller);
  if (!kind.ok()) return answer(kind.status());
  if (*kind == UpdateKind::policy) return set_policy(self, request.policy(), std::move(answer));
  if (request.setting_key() == "policy") return delete_policy(self, std::move(answer));
  set_key(self, request, std::move(answer));
}

caf::typed_response_promise<Reply<GlobalView>> load(Self self) {
  auto promise = self->make_response_promise<Reply<GlobalView>>();
  auto settings = std::make_shared<std::optional<Stored<records::SettingsRecord>>>();
  auto policies = std::make_shared<PolicyRows>();
  self->state.store->read(
      [settings, policies](storage::Transaction& tx) {
        auto row = tx.get_by_name(storage::types::kGatewaySettings, "", kRowName);
        if (!row.ok()) return row.status();
        if (*row) {
          auto decoded = settings_from_row(**row);
          if (!decoded.ok()) return decoded.status();
          *settings = std::move(*decoded);
        }
        auto rows = load_policies(tx, row_types::kGlobalScope);
        if (rows.ok()) *policies = std::move(*rows);
        return rows.status();
      },
      [handle = GlobalConfiguration{self}, self, promise, settings, policies](const absl::Status& read) {
        caf::anon_send(handle, Resume{[=]() mutable {
                         auto& s = self->state;
                         if (!read.ok()) {
                           promise.deliver(Reply<GlobalView>{read});
                           return;
                         }
                         s.stored = settings->has_value();
                         if (*settings) s.settings = std::move(**settings);
                         s.policies = PolicyHistory{std::move(*policies)};
                         promise.deliver(Reply<GlobalView>{std::make_shared<const GlobalView>(s.view())});
                         touch(self);
                       }});
      });
  return promise;
}

}  // namespace

GlobalView GlobalConfigurationState::view() const {
  GlobalView out;
  out.settings = std::make_shared<const records::SettingsRecord>(settings.value);
  if (settings.value.has_global_policy() && policies.newest() != nullptr) out.policy_version = policies.newest()->value.version();
  return out;
}

ActorSnapshot GlobalConfigurationState::snapshot() const {
  ActorSnapshot out;
  out.summary = cat(settings.value.settings_size(), " settings", settings.value.has_global_policy() ? ", a global policy" : "");
  out.waiting = writes.waiting();
  return reporter.complete(out);
}

GlobalConfiguration::behavior_type global_configuration(Self self, storage::Store* store, SandboxIndex index, Directory directory,
                                                        std::function<Millis()> now, std::function<std::string()> new_id) {
  auto& s = self->state;
  s.store = store;
  s.index = std::move(index);
  s.now = std::move(now);
  s.new_id = std::move(new_id);
  s.settings.row_id = s.new_id();
  s.reporter = Reporter{std::move(directory), "global_configuration", "global_configuration", "gateway_root"};
  GlobalConfiguration::behavior_type handlers{
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](const Ask<pb::UpdateConfigRequest>& ask) {
        auto promise = self->make_response_promise<UpdateReply>();
        self->state.writes.enter([=] {
          update(self, ask, [self, promise](absl::StatusOr<pb::UpdateConfigResponse> result) mutable {
            UpdateReply reply;
            if (result.ok()) {
              reply.value = std::make_shared<const pb::UpdateConfigResponse>(std::move(*result));
            } else {
              reply.value = result.status();
            }
            promise.deliver(std::move(reply));
            self->state.writes.leave();
          });
        });
        return promise;
      },
      [=](const Ask<sb::GetGatewayConfigRequest>&) -> Reply<sb::GetGatewayConfigResponse> {
        sb::GetGatewayConfigResponse response;
        const auto& settings = self->state.settings.value;
        for (const auto& key : registered_settings()) {
          auto& value = (*response.mutable_settings())[std::string{key.name}];
          const auto it = settings.settings().find(std::string{key.name});
          if (it != settings.settings().end()) value = it->second;
        }
        response.set_settings_revision(settings.revision());
        return {std::make_shared<const sb::GetGatewayConfigResponse>(std::move(response))};
      },
      [=](const Ask<pb::ListSandboxPoliciesRequest>& ask) -> Reply<pb::ListSandboxPoliciesResponse> {
        auto page = page_of(self->state.policies, *ask.request, *self->state.store, std::string{row_types::kGlobalScope});
        if (!page.ok()) return {page.status()};
        return {std::make_shared<const pb::ListSandboxPoliciesResponse>(std::move(*page))};
      },
      [=](const Ask<pb::GetSandboxPolicyStatusRequest>& ask) -> Reply<pb::GetSandboxPolicyStatusResponse> {
        const auto* revision = self->state.policies.find(ask.request->version());
        if (revision == nullptr) return {absl::NotFoundError("no global policy revision found")};
        pb::GetSandboxPolicyStatusResponse response;
        *response.mutable_revision() = PolicyHistory::to_public(revision->value, true);
        return {std::make_shared<const pb::GetSandboxPolicyStatusResponse>(std::move(response))};
      },
      [=](load_atom) { return load(self); },
      [=](const Resume& resume) { resume.run(); },
  };
  return self->state.reporter.watch(
      self, [self] { return self->state.snapshot(); }, std::move(handlers));
}

}  // namespace openshell::gateway
