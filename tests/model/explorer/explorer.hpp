// Schedules by the thousand: each from its seed, checked to its end; one that breaks an invariant is made as small as it goes and drawn.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/model/explorer/stage.hpp"

namespace openshell::model {

/// One kind of world: plays one schedule.
struct World {
  std::string name;
  std::function<std::optional<Violation>(Stage&, Choices&)> play;
};

/// "status": poller, publisher, outbox, journal, aggregator, reporter and session of a supervisor; "exec": the exec registry.
[[nodiscard]] const std::vector<World>& worlds();
[[nodiscard]] const World* find_world(const std::string& name);

struct Failure {
  std::string world;
  std::uint64_t seed = 0;
  Violation violation;
  std::vector<std::uint32_t> choices;  ///< the smallest schedule that was found
  std::string chart;                   ///< of that one
  [[nodiscard]] std::string text() const;
};

/// One seed. The failure is shrunk with at most `shrink_runs` further schedules.
std::optional<Failure> explore(const World& world, Stage& stage, std::uint64_t seed, std::size_t shrink_runs);
/// A recorded schedule, drawn.
std::optional<Failure> replay(const World& world, Stage& stage, std::vector<std::uint32_t> choices);

struct Share {
  std::uint64_t first_seed = 1;
  std::uint64_t schedules = 0;        ///< 0: as many as the time allows
  std::chrono::milliseconds time{0};  ///< 0: as long as the schedules take
  std::size_t shrink_runs = 3'000;
};
struct Outcome {
  std::uint64_t schedules = 0;
  std::chrono::milliseconds took{0};
  std::optional<Failure> failure;  ///< the first
};
Outcome explore(const World& world, const Share& share);

}  // namespace openshell::model
