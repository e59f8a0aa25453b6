#include "actors/endpoint_observer/endpoint_observer.hpp"

#include <caf/all.hpp>

#include <algorithm>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = EndpointObserver::stateful_pointer<EndpointObserverState>;

constexpr std::chrono::seconds kReportTimeout{15};
constexpr std::chrono::seconds kPause{1};
constexpr std::chrono::seconds kLongestBackoff{32};

ActorSnapshot snapshot(const EndpointObserverState& state) {
  ActorSnapshot out;
  out.waiting = state.window.size();
  out.summary =
      std::to_string(state.window.size()) + " endpoints to report, " + std::to_string(state.window.dropped()) + " observations dropped";
  return out;
}

void pump(Self self, const GatewayClient& gateway) {
  auto& state = self->state;
  state.reporter.touch(self, [self] { return snapshot(self->state); });
  if (state.busy) return;
  auto report = state.window.take();
  if (!report) return;
  state.busy = true;
  self->request(gateway, kReportTimeout, endpoint_atom::value, *report)
      .then(
          [=] {
            self->state.failures = 0;
            self->state.reporter.note_handled();
            self->delayed_send(self, kPause, tick_atom::value);
          },
          [=](const caf::error& error) {
            self->state.reporter.note_failed(to_status(error).ToString());
            self->state.window.restore(*report);
            const auto wait = std::min<std::chrono::seconds>(kPause * (1 << std::min(self->state.failures++, 5U)), kLongestBackoff);
            self->delayed_send(self, wait, tick_atom::value);
          });
}

}  // namespace

void EndpointWindow::observe(EndpointObservation observation) {
  const auto id = observation.endpoint_id;
  if (endpoints_.size() >= kMaxEndpoints && endpoints_.count(id) == 0) {
    ++dropped_;
    return;
  }
  endpoints_[id] = std::move(observation);
}

void EndpointWindow::rebase(std::string session_id, std::string policy_hash, std::uint64_t provider_env_revision) {
  endpoints_.clear();
  session_id_ = std::move(session_id);
  policy_hash_ = std::move(policy_hash);
  provider_env_revision_ = provider_env_revision;
}

std::optional<EndpointReport> EndpointWindow::take() {
  if (session_id_.empty() || endpoints_.empty()) return std::nullopt;
  EndpointReport report{session_id_, ++sequence_, policy_hash_, provider_env_revision_, {}};
  for (auto& [id, observation] : endpoints_) report.observations.push_back(std::move(observation));
  endpoints_.clear();
  return report;
}

void EndpointWindow::restore(const EndpointReport& report) {
  if (report.session_id != session_id_ || report.policy_hash != policy_hash_ || report.provider_env_revision != provider_env_revision_)
    return;
  for (const auto& observation : report.observations) endpoints_.try_emplace(observation.endpoint_id, observation);
}

EndpointObserver::behavior_type endpoint_observer(Self self, GatewayClient gateway, Reporter reporter) {
  self->state.reporter = std::move(reporter);
  return {
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](endpoint_atom, EndpointObservation& observation) {
        self->state.window.observe(std::move(observation));
        pump(self, gateway);
      },
      [=](accepted_atom, std::string& session_id) {
        auto& window = self->state.window;
        window.rebase(std::move(session_id), window.policy_hash(), window.provider_env_revision());
      },
      [=](publish_atom, std::string& policy_hash, std::uint64_t revision) {
        auto& window = self->state.window;
        window.rebase(window.session_id(), std::move(policy_hash), revision);
      },
      [=](tick_atom) {
        self->state.busy = false;
        pump(self, gateway);
      },
  };
}

}  // namespace openshell::supervisor
