// The map as the operator interface gives it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "api/operator/actor_map.hpp"

namespace openshell::api {

/// Bytes of a whole answer; actors beyond it are counted in `left_out` of their process.
inline constexpr std::size_t kMaxActorsJson = 8U << 20U;

/// `GET /actors`, and the event `snapshot`. `epoch`: 16 hex digits.
[[nodiscard]] std::string actors_json(const ActorMap& map, const std::string& epoch, ActorMap::Time now);
/// The event `change`: processes that changed after `since`, whole, and `gone`. Empty: that is too long ago, and all has to be sent.
[[nodiscard]] std::string changes_json(const ActorMap& map, const std::string& epoch, std::uint64_t since, ActorMap::Time now);
/// One actor, as in `actors`.
[[nodiscard]] std::string actor_json(const ActorSnapshot& actor);

}  // namespace openshell::api
