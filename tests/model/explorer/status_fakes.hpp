// What the supervisor's actors have below them in the model.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/endpoint_observer/endpoint_box.hpp"
#include "actors/supervisor/ports.hpp"
#include "tests/model/explorer/status_world.hpp"

namespace openshell::model {

inline constexpr const char* kEndpoints[] = {"mail", "wiki"};

/// Builds what does not begin with "bad", and numbers what it publishes as EgressRuntime does.
struct StatusWorld::Host final : supervisor::RuntimeHost {
  struct Prepared final : supervisor::PreparedRuntime {
    supervisor::Candidate candidate;
  };

  StatusWorld* world = nullptr;
  std::shared_ptr<supervisor::EndpointBox> box;
  supervisor::ConfigSnapshot running;  // in force; or what was before the quarantine
  std::uint64_t environment = 0;
  bool quarantined = false;
  bool must_deny = false;  // the newest policy was rejected and nothing is to be allowed
  std::uint64_t generation = 0;
  std::uint64_t publication = 0;
  std::uint64_t handled_revision = 0;  // of the newest configuration that was published or rejected

  absl::StatusOr<std::unique_ptr<supervisor::PreparedRuntime>> prepare(const supervisor::Candidate& candidate) override {
    if (world->dying_) return absl::CancelledError("dead");
    handled_revision = candidate.snapshot.config_revision;
    world->process_.environment_differs = false;
    if (candidate.environment_changed && candidate.environment.policy_hash != candidate.snapshot.policy_hash)
      world->fail("mixed", "the environment of " + candidate.environment.policy_hash + " goes with " + candidate.snapshot.policy_hash);
    if (candidate.snapshot.policy_hash.starts_with("bad")) {
      const std::string error = "rule of " + candidate.snapshot.policy_hash + " cannot be compiled";
      world->note("publisher", "rejects " + candidate.snapshot.policy_hash);
      world->expected_.failed(candidate.snapshot, error);
      must_deny = must_deny || quarantined || candidate.snapshot.failure_mode == supervisor::FailureMode::fail_closed;
      return absl::InvalidArgumentError(error);
    }
    auto prepared = std::make_unique<Prepared>();
    prepared->candidate = candidate;
    return prepared;
  }

  void publish(std::unique_ptr<supervisor::PreparedRuntime> prepared, std::function<void()> done) override {
    if (world->dying_) return done();
    auto& candidate = static_cast<Prepared&>(*prepared).candidate;
    world->note("publisher",
                "in force: " + candidate.snapshot.policy_hash + " version " + std::to_string(candidate.snapshot.version.value));
    if (!candidate.reload_policy && (quarantined || candidate.snapshot.policy_hash != running.policy_hash))
      world->fail("not loaded", candidate.snapshot.policy_hash + " is called in force and was never loaded");
    world->expected_.loaded(candidate.snapshot, candidate.reload_policy);
    put_into_force(candidate);
    done();
  }

  void put_into_force(const supervisor::Candidate& candidate) {
    running = candidate.snapshot;
    if (candidate.environment_changed) environment = candidate.environment.revision;
    quarantined = must_deny = false;
    handled_revision = candidate.snapshot.config_revision;
    ++generation;
    ++publication;
    std::map<supervisor::EndpointBox::Place, std::string> ids;
    for (std::size_t i = 0; i < std::size(kEndpoints); ++i) ids.emplace(std::pair{std::string{"rule"}, i}, kEndpoints[i]);
    box->install(generation, publication, std::move(ids));
    world->last_seen_.clear();
  }

  void quarantine(const std::string&) override {
    quarantined = true;
    ++generation;
    world->note("publisher", "denies everything");
  }
  std::vector<std::string> observed_endpoints() const override { return {std::begin(kEndpoints), std::end(kEndpoints)}; }
  std::uint64_t inventory() const override { return publication; }
  std::map<std::string, std::string> child_environment() const override { return {}; }
};

struct StatusWorld::Port final : supervisor::BoundaryPort {
  void install(std::uint64_t, std::map<std::string, std::string>, std::function<void(absl::StatusOr<bool>)> done) override { done(true); }
  void terminate(std::function<void(absl::Status)> done) override { done(absl::OkStatus()); }
};

struct StatusWorld::Transport final : supervisor::SessionTransport {
  StatusWorld* world = nullptr;
  std::uint64_t connection = 0;
  Sink sink;

  void connect(std::uint64_t number, Sink to) override {
    world->end_session();  // whatever stream was open ends with this one
    connection = number;
    sink = std::move(to);
    world->session_wanted_ = true;
  }
  void heartbeat() override {
    if (!world->gateway_.session.empty()) bring(supervisor::SessionEvent::Heartbeat{});
  }
  void relay_result(const std::string&, const std::string&) override {}
  void update_result(const std::string& id, bool supported) override {
    const auto sent = world->nudged_.find(id);
    if (!supported || world->dying_ || sent == world->nudged_.end()) return;
    world->message("session", "gateway", "applied " + id);
    const auto& process = world->process_;
    if (process.answered_revision < sent->second)
      world->fail("nudge", "the nudge " + id + " was answered before the configuration it told of was looked at");
    world->nudged_.erase(sent);
  }
  void disconnect() override { world->session_wanted_ = false; }

  template <class What>
  void bring(What what) {
    if (sink) sink({connection, std::move(what)});
  }
};

struct StatusWorld::Relays final : supervisor::RelayHost {
  void open(supervisor::RelayRequest, std::function<void(std::string)> opened) override { opened({}); }
  void abort(const std::string&, const std::string&) override {}
};

struct StatusWorld::Logs final : supervisor::LogTransport {
  void connect(std::function<void(int)>) override {}
  void send(std::vector<supervisor::LogLine>, std::function<void(bool)> done) override { done(true); }
  void finish() override {}
};

}  // namespace openshell::model
