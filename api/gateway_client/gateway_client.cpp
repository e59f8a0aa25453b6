#include "api/gateway_client/gateway_client.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <random>

#include "api/gateway_client/gateway_connection.hpp"
#include "messages/status_error.hpp"

namespace openshell::api {
namespace {

using namespace supervisor;
using Self = GatewayClient::stateful_pointer<GatewayClientState>;

constexpr std::chrono::seconds kRenewalRetry{10};

double jitter() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::uniform_real_distribution<double>{0.0, 1.0}(random);
}

/// Runs `work` on the actor, from any thread. The handle keeps the actor's address, not its life.
void run_on(const GatewayClient& actor, std::function<void()> work) {
  caf::anon_send(actor, run_atom::value, Completion{std::make_shared<std::function<void()>>(std::move(work))});
}

/// The callback of an RPC whose answer is a value.
template <class T>
auto answer_to(Self self, caf::typed_response_promise<T> promise) {
  return [actor = GatewayClient{self}, promise](absl::StatusOr<T> answer) {
    auto held = std::make_shared<absl::StatusOr<T>>(std::move(answer));
    run_on(actor, [promise, held] { deliver(promise, std::move(*held)); });
  };
}

/// The callback of an RPC whose answer says nothing.
auto answer_to(Self self, caf::typed_response_promise<void> promise) {
  return [actor = GatewayClient{self}, promise](absl::Status status) { run_on(actor, [promise, status] { deliver(promise, status); }); };
}

void renew(Self self);

void schedule_renewal(Self self, std::chrono::seconds after) {
  const auto timer = ++self->state.timer;
  self->delayed_send(self, after, run_atom::value, Completion{std::make_shared<std::function<void()>>([self, timer] {
                       if (timer == self->state.timer && self->state.waiting_for_renewal.empty()) renew(self);
                     })});
}

void renew(Self self) {
  self->state.connection->renew_tokens([actor = GatewayClient{self}, self](absl::Status status) {
    run_on(actor, [self, status] {
      for (auto& promise : std::exchange(self->state.waiting_for_renewal, {})) deliver(promise, status);
      const auto& tokens = self->state.connection->tokens();
      schedule_renewal(self, status.ok() ? tokens.until_renewal(std::chrono::system_clock::now(), jitter()) : kRenewalRetry);
    });
  });
}

}  // namespace

GatewayClient::behavior_type gateway_client(Self self, std::shared_ptr<GatewayConnection> connection) {
  self->state.connection = std::move(connection);
  schedule_renewal(self, self->state.connection->tokens().until_renewal(std::chrono::system_clock::now(), jitter()));
  const auto gateway = self->state.connection;
  return {
      [=](config_atom) {
        auto promise = self->make_response_promise<ConfigSnapshot>();
        gateway->get_config(answer_to(self, promise));
        return promise;
      },
      [=](environ_atom) {
        auto promise = self->make_response_promise<ProviderEnvironment>();
        gateway->get_environment(answer_to(self, promise));
        return promise;
      },
      [=](submit_atom, const PolicyUpload& upload) {
        auto promise = self->make_response_promise<void>();
        gateway->submit_policy(upload, answer_to(self, promise));
        return promise;
      },
      [=](reported_atom, const PolicyStatus& status) {
        auto promise = self->make_response_promise<void>();
        gateway->report_policy_status(status, answer_to(self, promise));
        return promise;
      },
      [=](admit_atom, const AdmissionReport& report) {
        auto promise = self->make_response_promise<void>();
        gateway->report_admission(report, answer_to(self, promise));
        return promise;
      },
      [=](ready_atom, const ReadinessReport& report) {
        auto promise = self->make_response_promise<ReadinessAccepted>();
        gateway->report_readiness(report, answer_to(self, promise));
        return promise;
      },
      [=](endpoint_atom, const EndpointReport& report) {
        auto promise = self->make_response_promise<void>();
        gateway->report_endpoints(report, answer_to(self, promise));
        return promise;
      },
      [=](analyse_atom, const DenialBatch& batch) {
        auto promise = self->make_response_promise<void>();
        gateway->submit_analysis(batch, answer_to(self, promise));
        return promise;
      },
      [=](exited_atom, std::int32_t code) {
        auto promise = self->make_response_promise<void>();
        gateway->report_main_exit(code, answer_to(self, promise));
        return promise;
      },
      [=](finalize_atom) {
        auto promise = self->make_response_promise<void>();
        gateway->finalize_main_exit(answer_to(self, promise));
        return promise;
      },
      [=](renew_atom) {
        auto promise = self->make_response_promise<void>();
        const bool running = !self->state.waiting_for_renewal.empty();
        self->state.waiting_for_renewal.push_back(promise);
        if (!running) renew(self);
        return promise;
      },
      [=](run_atom, const Completion& completion) { (*completion.run)(); },
  };
}

}  // namespace openshell::api
