#include "actors/endpoint_observer/endpoint_observer.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include <algorithm>

#include "actors/outbox/outbox.hpp"
#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = EndpointObserver::stateful_pointer<EndpointObserverState>;

constexpr std::chrono::seconds kReportTimeout{15};
constexpr std::chrono::seconds kPause{1};
constexpr std::chrono::seconds kLongestBackoff{32};
/// The gateway's words for a report that is ahead of the acknowledgement of its policy.
constexpr absl::string_view kNotAcknowledgedYet = "revisions do not match";

ActorSnapshot snapshot(const EndpointObserverState& state) {
  ActorSnapshot out;
  out.summary = std::to_string(state.window.size()) + " endpoints";
  return out;
}

void wait(Self self, std::chrono::seconds time) {
  self->state.waiting = true;
  self->delayed_send(self, time, tick_atom::value, ++self->state.timer);
}

void failed(Self self, const GatewayClient& gateway, const absl::Status& status) {
  auto& state = self->state;
  state.reporter.note_failed(status.ToString());
  if (status.code() == absl::StatusCode::kUnauthenticated || status.code() == absl::StatusCode::kCancelled)
    self->request(gateway, kReportTimeout, renew_atom::value).then([] {}, [](const caf::error&) {});  // in the same wait
  if (absl::IsFailedPrecondition(status)) {
    if (status.message().find(kNotAcknowledgedYet) == absl::string_view::npos) state.window.renew();
  } else if (!is_retryable(status.code())) {
    if (!absl::IsPermissionDenied(status)) spdlog::warn("the endpoint statuses were refused: {}", status.ToString());
    state.window.delivered();  // the next result or session begins anew
    state.failures = 0;
    return wait(self, kPause);
  }
  wait(self, std::min<std::chrono::seconds>(kPause * (1 << std::min(state.failures++, 5U)), kLongestBackoff));
}

void pump(Self self, const GatewayClient& gateway) {
  auto& state = self->state;
  state.reporter.touch(self, [self] { return snapshot(self->state); });
  if (state.in_flight || state.waiting) return;
  auto report = state.window.take();
  if (!report) return;
  state.box->reported(report->session_id, report->sequence);
  state.in_flight = true;
  // After another session or configuration the answer says nothing about what is to be sent now.
  self->request(gateway, kReportTimeout, endpoint_atom::value, *report)
      .then(
          [=] {
            self->state.in_flight = false;
            if (!self->state.window.current(*report)) return pump(self, gateway);
            self->state.window.delivered();
            self->state.failures = 0;
            self->state.reporter.note_handled();
            wait(self, kPause);
          },
          [=](const caf::error& error) {
            self->state.in_flight = false;
            if (!self->state.window.current(*report)) return pump(self, gateway);
            failed(self, gateway, to_status(error));
          });
}

/// Neither a pause nor a back-off holds for what is new.
void restart(Self self, const GatewayClient& gateway) {
  self->state.waiting = false;
  self->state.failures = 0;
  ++self->state.timer;
  pump(self, gateway);
}

}  // namespace

void EndpointWindow::begin_session(std::string session_id, std::uint64_t last_sequence) {
  session_id_ = std::move(session_id);
  sequence_ = last_sequence;
  pending_.reset();
  news_.clear();
  for (auto& [id, result] : results_) result = kNoObservedExchange;  // the gateway forgot them with the session before
  unseen_ = !results_.empty() || told_;
}

void EndpointWindow::install(const Installed& installed) {
  installed_ = installed;
  results_.clear();
  news_.clear();
  pending_.reset();
  for (const auto& id : installed.endpoint_ids) {
    if (results_.size() < kMaxEndpoints) results_.emplace(id, kNoObservedExchange);
  }
  unseen_ = !results_.empty() || told_;
}

void EndpointWindow::observe(const EndpointObservation& observation) {
  const auto found = results_.find(observation.endpoint_id);
  if (found == results_.end()) return;
  found->second = observation.result;
  news_.insert(observation.endpoint_id);
}

std::optional<EndpointReport> EndpointWindow::take() {
  if (session_id_.empty()) return std::nullopt;
  if (pending_) return pending_;
  if (news_.empty() && !unseen_) return std::nullopt;
  EndpointReport report{
      session_id_, ++sequence_, installed_.policy_hash, installed_.provider_env_revision, {}, {news_.begin(), news_.end()}};
  for (const auto& [id, result] : results_) report.observations.push_back({id, result});
  news_.clear();
  unseen_ = false;
  told_ = told_ || !results_.empty();
  pending_ = report;
  return report;
}

bool EndpointWindow::current(const EndpointReport& report) const {
  return pending_ && pending_->session_id == report.session_id && pending_->sequence == report.sequence;
}

void EndpointWindow::renew() {
  if (!pending_) return;
  news_.insert(pending_->observed.begin(), pending_->observed.end());
  unseen_ = true;
  pending_.reset();
}

EndpointObserver::behavior_type endpoint_observer(Self self, std::shared_ptr<EndpointBox> box, GatewayClient gateway, Reporter reporter) {
  self->state.reporter = std::move(reporter);
  self->state.box = std::move(box);
  self->state.box->on_fill([actor = caf::actor_cast<EndpointObserver>(self)] { caf::anon_send(actor, wake_atom::value); });
  EndpointObserver::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](wake_atom) {
        auto& state = self->state;
        for (const auto& observation : state.box->drain(state.window.inventory())) state.window.observe(observation);
        pump(self, gateway);
      },
      [=](accepted_atom, std::string& session_id) {
        const auto last = self->state.box->last_sequence(session_id);
        self->state.window.begin_session(std::move(session_id), last);
        restart(self, gateway);
      },
      [=](publish_atom, const Installed& installed) {
        self->state.window.install(installed);
        self->send(self, wake_atom::value);  // results that came before this message are of the new configuration
        restart(self, gateway);
      },
      [=](tick_atom, std::uint64_t timer) {
        if (timer != self->state.timer) return;
        self->state.waiting = false;
        pump(self, gateway);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
