#include "actors/supervisor/policy_poller.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "actors/supervisor/settings.hpp"
#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = PolicyPoller::stateful_pointer<PolicyPollerState>;

constexpr std::chrono::seconds kRequestTimeout{15};
constexpr std::chrono::seconds kPublishTimeout{60};
constexpr int kMaxEnvironmentFetches = 3;  // of one poll, until environment and snapshot belong together

/// One poll with what it needs to go on after each answer.
struct Poll {
  Self self;
  GatewayClient gateway;
  RuntimePublisher publisher;
  AppliedSink session;
  std::function<double()> random;
};
using PollPtr = std::shared_ptr<const Poll>;

void begin(const PollPtr& poll);
void polled(const PollPtr& poll, const ConfigSnapshot& snapshot, int attempt);

ActorSnapshot snapshot(const PolicyPollerState& state) {
  ActorSnapshot out;
  out.waiting = state.schedule.nudges();
  out.summary = std::to_string(state.polls) + " polls, version " + std::to_string(state.tracker.last_seen().version.value) + ", " +
                std::to_string(state.schedule.nudges()) + " nudges waiting";
  return out;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

void arm(Self self, PollSchedule::Duration wait) { self->delayed_send(self, wait, tick_atom::value, ++self->state.timer); }

void handled(const PollPtr& poll) {
  auto self = poll->self;
  auto next = self->state.schedule.handled(poll->random());
  self->state.reporter.note_handled();
  if (!next.answered.empty()) self->send(poll->session, applied_atom::value, std::move(next.answered));
  if (next.wait.count() == 0) {
    begin(poll);
  } else {
    arm(self, next.wait);
  }
  touch(self);
}

void failed(const PollPtr& poll, const std::string& what) {
  auto self = poll->self;
  spdlog::debug("configuration poll failed: {}", what);
  self->state.reporter.note_failed(what);
  arm(self, self->state.schedule.failed(poll->random()));
  touch(self);
}

void publish(const PollPtr& poll, ConfigSnapshot snapshot, ProviderEnvironment environment, SnapshotTracker::Verdict verdict) {
  auto self = poll->self;
  log_setting_changes(self->state.tracker.last_seen().settings, snapshot.settings);
  Candidate candidate{snapshot, environment, verdict.reload_policy, verdict.fetch_environment};
  self->request(poll->publisher, kPublishTimeout, publish_atom::value, std::move(candidate))
      .then(
          [=](const PublishOutcome& outcome) {
            self->state.tracker.handled(snapshot, environment, verdict.reload_policy, outcome);
            if (outcome.environment_installed) self->state.environment = environment;
            handled(poll);
          },
          [=](const caf::error& error) { failed(poll, to_status(error).ToString()); });
}

void fetch_environment(const PollPtr& poll, ConfigSnapshot snapshot, SnapshotTracker::Verdict verdict, int attempt) {
  auto self = poll->self;
  self->request(poll->gateway, kRequestTimeout, environ_atom::value)
      .then(
          [=](const ProviderEnvironment& environment) {
            const bool together =
                environment.policy_hash == snapshot.policy_hash && environment.attachment_epoch == snapshot.provider_attachment_epoch;
            if (together) return publish(poll, snapshot, environment, verdict);
            if (attempt >= kMaxEnvironmentFetches) return failed(poll, "the provider environment belongs to another configuration");
            // What it belongs to is judged like any other answer: it need not be admitted.
            self->request(poll->gateway, kRequestTimeout, config_atom::value)
                .then([=](const ConfigSnapshot& newer) { polled(poll, newer, attempt + 1); },
                      [=](const caf::error& error) { failed(poll, to_status(error).ToString()); });
          },
          [=](const caf::error& error) { failed(poll, to_status(error).ToString()); });
}

void polled(const PollPtr& poll, const ConfigSnapshot& snapshot, int attempt) {
  auto self = poll->self;
  auto& tracker = self->state.tracker;
  const auto verdict = tracker.judge(snapshot);
  switch (verdict.change) {
    case SnapshotTracker::Change::none:
      return handled(poll);
    case SnapshotTracker::Change::not_admitted:
      spdlog::warn("the gateway does not admit its configuration: {}", snapshot.configuration_error);
      tracker.seen(snapshot);
      return handled(poll);
    case SnapshotTracker::Change::foreign_instance: {
      AdmissionReport report;
      report.expected_instance_id = snapshot.instance_id;
      self->request(poll->gateway, kRequestTimeout, admit_atom::value, report)
          .then([=] { failed(poll, "registered again"); }, [=](const caf::error& error) { failed(poll, to_status(error).ToString()); });
      return;
    }
    case SnapshotTracker::Change::candidate:
      break;
  }
  if (verdict.fetch_environment) return fetch_environment(poll, snapshot, verdict, attempt);
  publish(poll, snapshot, self->state.environment, verdict);
}

void begin(const PollPtr& poll) {
  auto self = poll->self;
  ++self->state.timer;  // whatever timer runs is outdated
  self->state.schedule.began();
  ++self->state.polls;
  self->request(poll->gateway, kRequestTimeout, config_atom::value)
      .then([=](const ConfigSnapshot& snapshot) { polled(poll, snapshot, 1); },
            [=](const caf::error& error) { failed(poll, to_status(error).ToString()); });
}

}  // namespace

PolicyPoller::behavior_type policy_poller(Self self, GatewayClient gateway, RuntimePublisher publisher, AppliedSink session,
                                          PolicyPollerOptions options, Reporter reporter) {
  auto& state = self->state;
  state.schedule = PollSchedule{options.limits};
  state.tracker = SnapshotTracker{options.instance_id, options.running, options.environment.revision, options.environment.attachment_epoch};
  state.environment = options.environment;
  state.reporter = std::move(reporter);
  const auto poll = std::make_shared<const Poll>(Poll{self, gateway, publisher, session, options.random});
  self->send(self, tick_atom::value, ++state.timer);  // the first poll, and with it the safety net
  PolicyPoller::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](nudge_atom, std::string& update_id) {
        if (self->state.schedule.nudged(std::move(update_id))) begin(poll);
      },
      [=](accepted_atom, const std::string& session_id) {
        if (session_id.empty()) {
          self->state.schedule.session_ended();
        } else if (self->state.schedule.session_began()) {
          begin(poll);
        }
      },
      [=](tick_atom, std::uint64_t timer) {
        if (timer == self->state.timer && self->state.schedule.due()) begin(poll);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
