// Actors as Prometheus metrics, summed by kind of process and kind of actor. No label holds an id, and nothing that a sandbox says of
// itself is counted.
#pragma once

#include <string>

#include "api/operator/actor_map.hpp"

namespace openshell::api {

/// Kinds of actors of one kind of process that have a label of their own; what a supervisor says beyond that counts as `other`.
inline constexpr std::size_t kMaxMetricKinds = 64;

/// Text of `/metrics`, version 0.0.4. Counters of actors that are gone stay counted.
[[nodiscard]] std::string actor_metrics(const ActorMap& map, ActorMap::Time now);

}  // namespace openshell::api
