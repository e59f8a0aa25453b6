#pragma once

#include <caf/stateful_actor.hpp>

#include <functional>

#include "actors/introspection/reporter.hpp"
#include "actors/supervisor/poll_schedule.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

struct PolicyPollerOptions {
  PollSchedule::Limits limits;
  std::string instance_id;          ///< of this process
  ConfigSnapshot running;           ///< what the start-up loaded
  ProviderEnvironment environment;  ///< and the environment with it
  std::function<double()> random = [] { return 0.5; };
};

struct PolicyPollerState {
  PollSchedule schedule;
  SnapshotTracker tracker;
  ProviderEnvironment environment;  // the last one that was installed
  Reporter reporter;
  std::uint64_t timer = 0;  // only the newest counts
  std::uint64_t polls = 0;
  inline static const char* name = "policy_poller";
};

PolicyPoller::behavior_type policy_poller(PolicyPoller::stateful_pointer<PolicyPollerState> self, GatewayClient gateway,
                                          RuntimePublisher publisher, AppliedSink session, PolicyPollerOptions options, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::supervisor::PolicyPollerOptions)
