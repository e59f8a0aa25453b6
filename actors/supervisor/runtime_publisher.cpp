#include "actors/supervisor/runtime_publisher.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include <algorithm>

#include "messages/status_error.hpp"
#include "observability/fault_point.hpp"

namespace openshell::supervisor {
namespace {

using Self = RuntimePublisher::stateful_pointer<RuntimePublisherState>;

constexpr std::chrono::seconds kRequestTimeout{15};
constexpr std::chrono::seconds kInstallTimeout{120};
constexpr std::chrono::milliseconds kReadinessInterval{5'000};  // where the gateway does not say
constexpr std::chrono::milliseconds kShortestReadinessInterval{1'000};
constexpr std::chrono::milliseconds kLongestReadinessInterval{10'000};  // evidence lives 15 s
constexpr const char* kRejectedText = "Effective configuration could not be activated; replace the policy or repair attached providers";

struct Peers {
  GatewayClient gateway;
  std::shared_ptr<StatusJournal> journal;
  Boundary boundary;
  InstalledSink endpoints;
};

ActorSnapshot snapshot(const RuntimePublisherState& state) {
  ActorSnapshot out;
  out.summary = "version " + std::to_string(state.running.version.value) + (state.quarantined ? ", quarantined" : "") + ", " +
                std::to_string(state.publications) + " publications";
  return out;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

/// The same record as at start-up, for what is in force now or was rejected. A gateway that moved on meanwhile answers ABORTED, and the
/// next poll brings the rest.
void report_admission(Self self, const Peers& peers, const ConfigSnapshot& about, std::uint64_t environment_revision, bool accepted) {
  AdmissionReport report;
  report.state = accepted ? AdmissionState::accepted : AdmissionState::rejected;
  report.version = about.version;
  report.policy_hash = about.policy_hash;
  report.config_revision = about.config_revision;
  report.provider_env_revision = environment_revision;
  report.expected_instance_id = about.instance_id;
  if (!accepted) report.error = kRejectedText;
  self->request(peers.gateway, kRequestTimeout, admit_atom::value, report)
      .then([] {},
            [=](const caf::error& error) {
              const auto status = to_status(error);
              self->state.reporter.note_failed(status.ToString());
              spdlog::warn("the admission of version {} could not be reported: {}", about.version.value, status.ToString());
            });
}

/// The gateway forgets evidence that is not renewed, also where it refused or missed the last report.
void renew_readiness(Self self, std::chrono::milliseconds after) {
  self->delayed_send(self, after, tick_atom::value, ++self->state.readiness_timer);
}

/// What is installed now, under the next sequence: a repeated one would renew nothing. While an environment is on its way into the sandbox
/// nothing true can be said of it; the installation reports itself.
void report_readiness(Self self, const Peers& peers) {
  auto& state = self->state;
  if (state.session_id.empty() || state.installing > 0) return;
  ReadinessReport report;
  report.session_id = state.session_id;
  report.sequence = ++state.sequence;
  report.attachment_epoch = state.environment.attachment_epoch;
  report.provider_env_revision = state.environment.revision;
  report.config_revision = state.running.config_revision;
  report.policy_hash = state.running.policy_hash;
  report.credentials_installed = !state.quarantined;
  report.policy_active = !state.quarantined;
  report.launch_environment_installed = state.environment_installed;
  self->request(peers.gateway, kRequestTimeout, ready_atom::value, report)
      .then(
          [=](const ReadinessAccepted& accepted) {
            const auto said = accepted.report_interval.count() > 0 ? accepted.report_interval : kReadinessInterval;
            renew_readiness(self, std::clamp(said, kShortestReadinessInterval, kLongestReadinessInterval));
          },
          [=](const caf::error& error) {
            self->state.reporter.note_failed(to_status(error).ToString());
            spdlog::debug("provider readiness was not taken: {}", to_status(error).ToString());
            renew_readiness(self, kReadinessInterval);
          });
}

void install_environment(Self self, const Peers& peers) {
  ++self->state.installing;
  self->request(peers.boundary, kInstallTimeout, install_atom::value, self->state.environment)
      .then(
          [=](bool applied) {
            --self->state.installing;
            self->state.environment_installed = applied;
            report_readiness(self, peers);
          },
          [=](const caf::error& error) {
            --self->state.installing;
            self->state.environment_installed = false;
            spdlog::error("the provider environment was not installed in the sandbox: {}", to_status(error).ToString());
            report_readiness(self, peers);
          });
}

void tell_installed(Self self, const Peers& peers) {
  const auto& state = self->state;
  self->send(peers.endpoints, publish_atom::value,
             Installed{state.running.policy_hash, state.environment.revision, state.host->observed_endpoints(), state.host->inventory()});
}

PublishOutcome reject(Self self, const Peers& peers, const Candidate& candidate, const absl::Status& why) {
  auto& state = self->state;
  const auto& snapshot = candidate.snapshot;
  const bool keep = snapshot.failure_mode == FailureMode::retain_last_valid && !state.quarantined;
  if (!keep) {
    state.host->quarantine("policy version " + std::to_string(snapshot.version.value) + " was rejected");
    state.quarantined = true;
  }
  spdlog::error("policy version {} was rejected, {}: {}", snapshot.version.value, keep ? "the one before stays" : "all traffic is denied",
                std::string{why.message()});
  if (auto status = state.acknowledgements.failed(snapshot, std::string{why.message()})) {
    peers.journal->push(*std::move(status));
    report_admission(self, peers, snapshot, candidate.environment.revision, false);
  }
  return {false, false};
}

PublishOutcome publish(Self self, const Peers& peers, Candidate candidate) {
  auto& state = self->state;
  auto prepared = state.host->prepare(candidate);  // with nothing to reload it takes over what runs, under the new settings
  if (!prepared.ok()) return reject(self, peers, candidate, prepared.status());
  fault::point("policy", "publish", "begin");
  state.host->publish(*std::move(prepared), [] {});
  fault::point("policy", "publish", "end");
  state.quarantined = false;
  ++state.publications;
  // In the same handler as the publication: what is acknowledged is in force, and in this order.
  if (auto status = state.acknowledgements.loaded(candidate.snapshot, candidate.reload_policy)) peers.journal->push(*std::move(status));
  const bool changed = candidate.environment_changed;
  state.running = std::move(candidate.snapshot);
  if (changed) state.environment = std::move(candidate.environment);
  tell_installed(self, peers);
  spdlog::info("policy version {} is in force", state.running.version.value);
  report_admission(self, peers, state.running, state.environment.revision, true);
  if (changed) {
    install_environment(self, peers);
  } else {
    report_readiness(self, peers);
  }
  return {true, true};
}

}  // namespace

RuntimePublisher::behavior_type runtime_publisher(Self self, GatewayClient gateway, std::shared_ptr<StatusJournal> journal,
                                                  Boundary boundary, InstalledSink endpoints, RuntimePublisherOptions options,
                                                  Reporter reporter) {
  auto& state = self->state;
  state.host = options.host;
  state.running = options.running;
  state.environment = options.environment;
  state.reporter = std::move(reporter);
  state.acknowledgements.seed(options.running);
  const Peers peers{gateway, journal, boundary, endpoints};
  if (options.acknowledge_running && state.running.source == PolicySource::sandbox && state.running.version.value > 0) {
    peers.journal->push({state.running.version, PolicyOutcome::loaded, {}, Acknowledgement::initial});
  }
  tell_installed(self, peers);
  touch(self);
  RuntimePublisher::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](publish_atom, Candidate& candidate) {
        const auto outcome = publish(self, peers, std::move(candidate));
        self->state.reporter.note_handled();
        touch(self);
        return outcome;
      },
      [=](accepted_atom, std::string& session_id) {
        self->state.session_id = std::move(session_id);
        self->state.sequence = 0;
        report_readiness(self, peers);
        self->state.reporter.note_handled();
        touch(self);
      },
      [=](tick_atom, std::uint64_t timer) {
        if (timer != self->state.readiness_timer) return;
        report_readiness(self, peers);
        self->state.reporter.note_handled();
        touch(self);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
