#include "api/sandboxes/control_plane.hpp"

#include <caf/actor_system.hpp>
#include <caf/all.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "actors/gateway/attachments.hpp"
#include "actors/gateway/gateway_tree.hpp"
#include "actors/gateway/profile_impact.hpp"
#include "actors/supervision/sleeping_scheduler.hpp"
#include "api/sandboxes/actor_source.hpp"
#include "api/sandboxes/plane.hpp"
#include "api/sandboxes/ssh_sessions.hpp"
#include "api/tokens.hpp"
#include "drivers/driver.hpp"
#include "observability/log.hpp"

namespace openshell::api {
namespace {

constexpr std::size_t kStopsAtOnce = 16;

drivers::LaunchAuthentication to_driver(const LaunchAuthentication& from, const drivers::SupervisorSettings& settings,
                                        std::uint32_t gateway_outage_limit_secs) {
  drivers::LaunchAuthentication to;
  to.session_id = SessionId{from.session_id};
  to.runtime_generation = from.generation;
  to.auth_epoch = from.auth_epoch;
  to.gateway_id = from.gateway_id;
  to.gateway_token = from.gateway_token;
  to.gateway_expires_at = from.gateway_expires_at;
  to.sandbox_token = from.boundary_token;
  to.sandbox_expires_at = from.boundary_expires_at;
  for (const auto& key : from.verification_keys) to.verification_keys.push_back({key.key_id, key.public_key_pem});
  to.supervisor_settings = settings;
  to.gateway_outage_limit_secs = gateway_outage_limit_secs;
  return to;
}

class ActorPlane : public ControlPlane {
 public:
  explicit ActorPlane(ControlPlaneOptions options) : options_{std::move(options)}, system_{config_} {
    gateway::TreeOptions tree;
    tree.store = options_.store;
    tree.credentials = options_.credentials;
    tree.driver = std::shared_ptr<drivers::ComputeDriver>{options_.driver, [](drivers::ComputeDriver*) {}};
    capabilities_ = options_.driver->capabilities();
    tree.driver_name = capabilities_.driver_name;
    tree.failure_mode = options_.policy_validation_failure_mode;
    tree.extension_authentication = options_.tokens != nullptr;
    tree.mint = [tokens = options_.tokens, settings = options_.supervisor, outage = options_.gateway_outage_limit_secs](
                    const gateway::records::SandboxRecord& record) -> absl::StatusOr<drivers::LaunchAuthentication> {
      if (tokens == nullptr)
        return absl::FailedPreconditionError("the gateway has no signing key for sandbox tokens; configure gateway_jwt");
      const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
      return to_driver(tokens->launch(SandboxId{record.sandbox().metadata().id()}, GenerationId{record.runtime_generation()},
                                      record.auth_epoch(), record.gateway_token_id(), now),
                       settings, outage);
    };
    tree.fatal = [](const std::string& which) {
      log::error("an actor died; the gateway ends in order", {{"actor", which}});
      ::kill(::getpid(), SIGTERM);
    };
    system_.await_actors_before_shutdown(false);  // timers of execs that ended long ago are not waited for; the tree is joined
    tree_ = std::make_unique<gateway::GatewayTree>(system_, std::move(tree));
    plane_ = std::make_shared<const Plane>(Plane{system_, options_.store, tree_->actors(), options_.config_push, options_.service_address,
                                                 options_.ssh, std::make_shared<ForwardSlots>()});
  }

  ~ActorPlane() override {
    end();
    caf::logger::set_current_actor_system(nullptr);
  }

  void add_handlers(Router& router) override {
    add_unary_handlers(router, plane_);
    add_sandbox_provider_handlers(router, plane_);
    add_config_handlers(router, plane_);
    add_draft_handlers(router, plane_);
    add_watch_handlers(router, plane_);
    add_session_handlers(router, plane_);
    add_exec_handlers(router, plane_);
    add_ssh_handlers(router, plane_);
    add_forward_handlers(router, plane_);
  }

  void start() override {
    std::vector<std::string> warnings;
    const auto loaded = tree_->load(&warnings);
    for (const auto& warning : warnings) log::warning("a stored sandbox is left out", {{"why", warning}});
    if (!loaded.ok()) log::error("stored sandboxes cannot be read", {{"why", loaded.ToString()}});
    sweep_ssh_sessions(plane_);
  }

  absl::Status shutdown(std::chrono::seconds limit) override {
    std::vector<std::string> running;
    if (!options_.keep_on_shutdown && capabilities_.gateway_manages_lifecycle) {
      auto read = options_.store->read_and_wait([&](storage::Transaction& tx) {
        auto all = gateway::load_all(tx);
        if (!all.ok()) return all.status();
        for (const auto& one : all->sandboxes) {
          if (one.record.intent() == gateway::records::INTENT_RUNNING || one.record.intent() == gateway::records::INTENT_FINISHED) {
            running.push_back(one.record.sandbox().metadata().id());
          }
        }
        return absl::OkStatus();
      });
      if (!read.ok()) return read;
    }
    end();  // before anything is stopped, so that nobody puts it back
    return stop_all(running, limit);
  }

  void find(const SandboxId& id, std::function<void(absl::StatusOr<SandboxIdentity>)> then) override {
    const auto entry = plane_->actors.identities->find(id.str());
    if (!entry) return then(absl::NotFoundError("sandbox not found"));
    SandboxIdentity identity;
    identity.id = id;
    identity.generation = GenerationId{entry->generation};
    identity.auth_epoch = entry->auth_epoch;
    identity.gateway_token_id = entry->gateway_token_id;
    identity.active = entry->active;
    identity.driver_name = entry->driver;
    identity.runtime_identity = entry->runtime_identity;
    if (!entry->refresh_rotation_id.empty()) {
      identity.replay = RefreshReplay{entry->refresh_previous_token_id, entry->refresh_request_hash, entry->refresh_rotation_id,
                                      entry->refresh_issued_at, entry->refresh_replay_until};
    }
    then(std::move(identity));
  }

  void rotate(const SandboxId& id, const std::string& expected_token_id, const std::string& new_token_id, const RefreshReplay& replay,
              std::function<void(absl::Status)> then) override {
    gateway::TokenRotation rotation{expected_token_id,  new_token_id,     replay.previous_token_id, replay.request_hash,
                                    replay.rotation_id, replay.issued_at, replay.replay_until};
    ask<gateway::Handed<SandboxHandle>>(
        system_, plane_->actors.index,
        [plane = plane_, rotation, then](gateway::Handed<SandboxHandle> found) {
          if (!found.value.ok()) return then(found.value.status());
          ask<gateway::Outcome>(
              plane->system, (*found.value)->entity, [then](const gateway::Outcome& outcome) { then(outcome.status); }, rotation);
        },
        gateway::find_atom::value, id.str());
  }

  std::shared_ptr<ActorSource> actor_source() const { return make_actor_source(plane_); }

  absl::StatusOr<std::vector<std::string>> sandboxes_with_provider(storage::Transaction& tx, const std::string& workspace,
                                                                   const std::string& provider) override {
    return gateway::sandboxes_with_provider(tx, workspace, provider);
  }

  void provider_changed(const std::string& workspace, const std::string& provider) override {
    caf::anon_send(plane_->actors.index, gateway::changed_atom::value, workspace, provider);
  }

  absl::Status check_attached(storage::Transaction& tx, const std::string& workspace, const std::vector<std::string>& sandboxes) override {
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    return gateway::check_attached(tx, workspace, sandboxes, now);
  }

  absl::StatusOr<ProviderHandlerOptions::Faults> profile_impact(storage::Transaction& tx, const providers::Profile& candidate,
                                                                const std::string& operation) override {
    return gateway::profile_impact(tx, candidate, operation);
  }

  void update_receipts(const std::string& workspace, const std::vector<std::string>& sandboxes, const std::string& provider,
                       const std::string& mutation_id, std::function<void(std::vector<pb::ProviderMutationReceipt>)> then) override {
    collect_receipts(plane_, workspace, sandboxes, {provider, mutation_id}, std::move(then));
  }

 private:
  void end() {
    tree_->end();
    tree_->join();
    end_timer(system_);
  }

  absl::Status stop_all(const std::vector<std::string>& ids, std::chrono::seconds limit) {
    std::atomic<std::size_t> next{0}, failed{0}, done{0};
    std::vector<std::thread> workers;
    const auto until = std::chrono::steady_clock::now() + limit;
    for (std::size_t i = 0; i < std::min(kStopsAtOnce, ids.size()); ++i) {
      workers.emplace_back([&] {
        for (auto at = next++; at < ids.size(); at = next++) {
          const bool in_time = std::chrono::steady_clock::now() < until;
          if (!in_time || !options_.driver->stop(SandboxId{ids[at]}).ok()) ++failed;
          ++done;
        }
      });
    }
    for (auto& worker : workers) worker.join();
    if (failed == 0) return absl::OkStatus();
    return absl::InternalError(cat("failed to stop ", failed.load(), " sandbox(es) during gateway shutdown"));
  }

  ControlPlaneOptions options_;
  SleepingScheduler config_{std::clamp(std::thread::hardware_concurrency(), 2U, 8U)};
  caf::actor_system system_;
  drivers::Capabilities capabilities_;
  std::unique_ptr<gateway::GatewayTree> tree_;
  std::shared_ptr<const Plane> plane_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ControlPlane>> make_control_plane(ControlPlaneOptions options) {
  if (options.store == nullptr || options.driver == nullptr)
    return absl::InvalidArgumentError("the control plane needs a store and a compute driver");
  return std::make_unique<ActorPlane>(std::move(options));
}

std::shared_ptr<ActorSource> actor_source_of(ControlPlane& made) { return static_cast<ActorPlane&>(made).actor_source(); }

}  // namespace openshell::api
