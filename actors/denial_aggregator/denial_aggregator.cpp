#include "actors/denial_aggregator/denial_aggregator.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = DenialAggregator::stateful_pointer<DenialAggregatorState>;

constexpr std::chrono::seconds kSubmitTimeout{15};

ActorSnapshot snapshot(const DenialAggregatorState& state) {
  ActorSnapshot out;
  out.waiting = state.window.size();
  out.summary = std::to_string(state.window.size()) + " keys waiting, " + std::to_string(state.submitted) + " summaries submitted, " +
                std::to_string(state.queue->dropped()) + " events dropped, " + std::to_string(state.window.overflow()) + " overflowed";
  return out;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return snapshot(self->state); });
}

void drain(Self self) {
  for (auto& event : self->state.queue->drain()) {
    self->state.window.add(std::move(event));
    self->state.reporter.note_handled();
  }
}

template <class Done>
void submit(Self self, const GatewayClient& gateway, Done done) {
  drain(self);
  if (self->state.window.empty()) return done(absl::OkStatus());
  DenialBatch batch;
  batch.summaries = self->state.window.take();
  batch.proposals = propose(batch.summaries);
  self->state.submitting = true;
  self->request(gateway, kSubmitTimeout, analyse_atom::value, batch)
      .then(
          [=, size = batch.summaries.size()] {
            self->state.submitting = false;
            self->state.submitted += size;
            done(absl::OkStatus());
            touch(self);
          },
          [=, summaries = batch.summaries](const caf::error& error) {
            self->state.submitting = false;
            const auto status = to_status(error);
            self->state.reporter.note_failed(status.ToString());
            spdlog::warn("the denial summaries were not taken and are kept: {}", status.ToString());
            self->state.window.merge(summaries);
            done(status);
            touch(self);
          });
}

}  // namespace

DenialAggregator::behavior_type denial_aggregator(Self self, std::shared_ptr<DenialQueue> queue, GatewayClient gateway,
                                                  std::chrono::seconds interval, Reporter reporter) {
  self->state.queue = std::move(queue);
  self->state.reporter = std::move(reporter);
  self->delayed_send(self, interval, tick_atom::value);
  self->send(self, wake_atom::value);  // what the queue held before this actor was there
  DenialAggregator::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](wake_atom) {
        drain(self);
        touch(self);
      },
      [=](tick_atom) {
        self->delayed_send(self, interval, tick_atom::value);
        if (!self->state.submitting) submit(self, gateway, [](const absl::Status&) {});
      },
      [=](stop_atom) {
        auto promise = self->make_response_promise<void>();
        submit(self, gateway, [promise](const absl::Status& status) { deliver(promise, status); });
        return promise;
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
