#pragma once

#include <caf/stateful_actor.hpp>

#include <chrono>
#include <memory>

#include "actors/denial_aggregator/denial_queue.hpp"
#include "actors/denial_aggregator/denial_window.hpp"
#include "actors/introspection/reporter.hpp"

namespace openshell::supervisor {

struct DenialAggregatorState {
  DenialWindow window;
  Reporter reporter;
  std::shared_ptr<DenialQueue> queue;
  bool submitting = false;
  std::uint64_t submitted = 0;  // summaries
  inline static const char* name = "denial_aggregator";
};

/// `interval`: between two submissions; the first event of an interval does not shorten it.
DenialAggregator::behavior_type denial_aggregator(DenialAggregator::stateful_pointer<DenialAggregatorState> self,
                                                  std::shared_ptr<DenialQueue> queue, GatewayClient gateway, std::chrono::seconds interval,
                                                  Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<openshell::supervisor::DenialQueue>)
