// A gateway, a runtime host and a boundary that do what the test says and remember what they were told.
#pragma once

#include <absl/status/status.h>
#include <caf/all.hpp>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/supervisor/ports.hpp"
#include "actors/supervisor/settings.hpp"
#include "messages/status_error.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor::test {

/// Actors that re-arm their timers for ever: the test scheduler fires every timer when it stops, so they have to end before.
class Ended {
 public:
  template <class Handle>
  Handle keep(Handle handle) {
    actors_.push_back(caf::actor_cast<caf::actor>(handle));
    return handle;
  }
  void end_all() {
    for (auto& actor : actors_) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    actors_.clear();
  }

 private:
  std::vector<caf::actor> actors_;
};

/// Holds one configuration and fails as it is told to.
struct FakeGateway {
  ConfigSnapshot config;
  std::uint64_t environment_revision = 0;
  std::function<absl::Status(const PolicyStatus&)> on_report = [](const PolicyStatus&) { return absl::OkStatus(); };
  std::function<absl::Status()> on_config = [] { return absl::OkStatus(); };
  std::function<void()> on_environment = [] {};
  std::function<absl::Status()> on_endpoints = [] { return absl::OkStatus(); };
  std::function<absl::Status()> on_readiness = [] { return absl::OkStatus(); };
  std::chrono::milliseconds readiness_interval{5'000};
  std::function<absl::Status()> on_analysis = [] { return absl::OkStatus(); };

  std::vector<PolicyStatus> reports;  // accepted ones
  std::vector<AdmissionReport> admissions;
  std::vector<ReadinessReport> readiness;
  std::vector<DenialBatch> analyses;
  std::vector<EndpointReport> endpoints;
  std::size_t offered = 0;
  std::size_t polls = 0;
  std::size_t renewals = 0;

  GatewayClient spawn(caf::actor_system& system) {
    return system.spawn([this](GatewayClient::pointer) -> GatewayClient::behavior_type {
      return {
          [this](config_atom) -> caf::result<ConfigSnapshot> {
            ++polls;
            if (auto status = on_config(); !status.ok()) return to_error(status);
            return config;
          },
          [this](environ_atom) -> caf::result<ProviderEnvironment> {
            on_environment();
            return ProviderEnvironment{environment_revision, config.provider_attachment_epoch, config.policy_hash, nullptr};
          },
          [](submit_atom, const PolicyUpload&) -> caf::result<void> { return {}; },
          [this](reported_atom, const PolicyStatus& status) -> caf::result<void> {
            ++offered;
            if (auto answer = on_report(status); !answer.ok()) return to_error(answer);
            reports.push_back(status);
            return {};
          },
          [this](admit_atom, const AdmissionReport& report) -> caf::result<void> {
            admissions.push_back(report);
            return {};
          },
          [this](ready_atom, const ReadinessReport& report) -> caf::result<ReadinessAccepted> {
            readiness.push_back(report);
            if (auto answer = on_readiness(); !answer.ok()) return to_error(answer);
            return ReadinessAccepted{readiness_interval};
          },
          [this](endpoint_atom, const EndpointReport& report) -> caf::result<void> {
            endpoints.push_back(report);
            if (auto answer = on_endpoints(); !answer.ok()) return to_error(answer);
            return {};
          },
          [this](analyse_atom, const DenialBatch& batch) -> caf::result<void> {
            if (auto answer = on_analysis(); !answer.ok()) return to_error(answer);
            analyses.push_back(batch);
            return {};
          },
          [](exited_atom, std::int32_t) -> caf::result<void> { return {}; },
          [](finalize_atom) -> caf::result<void> { return {}; },
          [this](renew_atom) -> caf::result<void> {
            ++renewals;
            return {};
          },
          [](run_atom, const Completion& completion) { (*completion.run)(); },
      };
    });
  }

  std::vector<std::uint64_t> reported() const {
    std::vector<std::uint64_t> out;
    for (const auto& report : reports) out.push_back(report.revision.value);
    return out;
  }
};

/// Refuses the policies whose hash begins with "bad".
struct FakeHost final : RuntimeHost {
  struct Prepared final : PreparedRuntime {
    std::uint64_t version = 0;
  };
  std::vector<std::uint64_t> in_force;  // versions, in the order of publication
  std::size_t builds = 0;
  std::size_t quarantines = 0;
  std::vector<bool> explained;  // the setting network.denied_http of each candidate

  absl::StatusOr<std::unique_ptr<PreparedRuntime>> prepare(const Candidate& candidate) override {
    if (candidate.reload_policy) ++builds;
    explained.push_back(read_settings(candidate.snapshot.settings).explain_denied_http);
    if (candidate.snapshot.policy_hash.starts_with("bad")) return absl::InvalidArgumentError("rule 'x' cannot be compiled");
    auto prepared = std::make_unique<Prepared>();
    prepared->version = candidate.snapshot.version.value;
    return prepared;
  }
  void publish(std::unique_ptr<PreparedRuntime> prepared, std::function<void()> done) override {
    in_force.push_back(static_cast<Prepared&>(*prepared).version);
    done();
  }
  void quarantine(const std::string&) override { ++quarantines; }
  std::vector<std::string> endpoint_ids;
  std::vector<std::string> observed_endpoints() const override { return endpoint_ids; }
  std::map<std::string, std::string> child_environment() const override { return {}; }
};

struct FakeBoundary final : BoundaryPort {
  std::vector<std::uint64_t> installed;
  bool hold = false;  // answers are given by the test
  std::function<void(absl::StatusOr<bool>)> held;
  void install(std::uint64_t revision, std::map<std::string, std::string>, std::function<void(absl::StatusOr<bool>)> done) override {
    installed.push_back(revision);
    if (hold) {
      held = std::move(done);
    } else {
      done(true);
    }
  }
  void terminate(std::function<void(absl::Status)> done) override { done(absl::OkStatus()); }
};

struct FakeTransport final : SessionTransport {
  std::uint64_t connection = 0;
  std::size_t connects = 0;
  std::size_t heartbeats = 0;
  std::size_t disconnects = 0;
  Sink sink;
  std::vector<std::pair<std::string, std::string>> relay_results;
  std::vector<std::pair<std::string, bool>> update_results;

  void connect(std::uint64_t number, Sink to) override {
    ++connects;
    connection = number;
    sink = std::move(to);
  }
  void heartbeat() override { ++heartbeats; }
  void relay_result(const std::string& channel, const std::string& error) override { relay_results.emplace_back(channel, error); }
  void update_result(const std::string& id, bool supported) override { update_results.emplace_back(id, supported); }
  void disconnect() override { ++disconnects; }

  template <class What>
  void bring(What what) {
    sink({connection, std::move(what)});
  }
};

struct FakeRelays final : RelayHost {
  std::vector<std::string> opened, aborted;
  std::string error;
  void open(RelayRequest request, std::function<void(std::string)> done) override {
    opened.push_back(request.channel_id);
    done(error);
  }
  void abort(const std::string& channel, const std::string&) override { aborted.push_back(channel); }
};

}  // namespace openshell::supervisor::test
