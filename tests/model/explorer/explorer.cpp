#include "tests/model/explorer/explorer.hpp"

#include <algorithm>

#include "tests/model/explorer/exec_world.hpp"
#include "tests/model/explorer/status_world.hpp"

namespace openshell::model {
namespace {

using Script = std::vector<std::uint32_t>;

template <class W>
std::optional<Violation> play(Stage& stage, Choices& choices) {
  W world{stage, choices};
  return world.run();
}

/// Plays a script: how much of it was used, if it still breaks the same invariant.
std::optional<std::size_t> still_fails(const World& world, Stage& stage, const Script& script, const std::string& invariant) {
  Choices choices{script};
  stage.begin(nullptr);
  const auto violation = world.play(stage, choices);
  stage.end();
  if (!violation || violation->invariant != invariant) return std::nullopt;
  return std::min(script.size(), choices.taken().size());
}

/// Leaves out pieces, longest first, and makes numbers smaller, until nothing more can go.
Script shrink(const World& world, Stage& stage, Script best, const std::string& invariant, std::size_t runs) {
  const auto attempt = [&](Script candidate) {
    if (runs == 0) return false;
    --runs;
    const auto used = still_fails(world, stage, candidate, invariant);
    if (!used) return false;
    candidate.resize(*used);
    if (candidate.size() > best.size() || (candidate.size() == best.size() && !(candidate < best))) return false;
    best = std::move(candidate);
    return true;
  };
  bool progress = true;
  while (progress && runs > 0) {
    progress = false;
    for (std::size_t length = std::max<std::size_t>(best.size() / 2, 1);; length /= 2) {
      for (std::size_t at = 0; at + length <= best.size() && runs > 0;) {
        auto without = best;
        without.erase(without.begin() + static_cast<std::ptrdiff_t>(at), without.begin() + static_cast<std::ptrdiff_t>(at + length));
        if (attempt(std::move(without))) {
          progress = true;
          continue;
        }
        at += length;
      }
      if (length <= 1) break;
    }
    for (std::size_t at = 0; at < best.size() && runs > 0; ++at) {
      for (const std::uint32_t smaller : {0U, best[at] / 2, best[at] - 1}) {
        if (at >= best.size() || smaller >= best[at]) continue;
        auto with = best;
        with[at] = smaller;
        if (attempt(std::move(with))) progress = true;
      }
    }
  }
  return best;
}

}  // namespace

const std::vector<World>& worlds() {
  static const std::vector<World> all = {{"status", play<StatusWorld>}, {"exec", play<ExecWorld>}};
  return all;
}

const World* find_world(const std::string& name) {
  for (const auto& world : worlds()) {
    if (world.name == name) return &world;
  }
  return nullptr;
}

std::string Failure::text() const {
  std::string out = "the invariant '" + violation.invariant + "' is broken: " + violation.what + "\n";
  out += "  found by   openshell_model --world " + world + " --seed " + std::to_string(seed) + " --schedules 1\n";
  out += "  smallest   openshell_model --world " + world + " --replay ";
  for (std::size_t i = 0; i < choices.size(); ++i) out += (i ? "," : "") + std::to_string(choices[i]);
  return out + "\n\n" + chart;
}

std::optional<Failure> replay(const World& world, Stage& stage, Script script) {
  Choices choices{script};
  Chart chart;
  stage.begin(&chart);
  auto violation = world.play(stage, choices);
  stage.end();
  if (!violation) return std::nullopt;
  return Failure{world.name, 0, *std::move(violation), std::move(script), chart.draw()};
}

std::optional<Failure> explore(const World& world, Stage& stage, std::uint64_t seed, std::size_t shrink_runs) {
  Choices choices{seed};
  stage.begin(nullptr);
  auto violation = world.play(stage, choices);
  stage.end();
  if (!violation) return std::nullopt;
  const auto smallest = shrink(world, stage, choices.taken(), violation->invariant, shrink_runs);
  auto drawn = replay(world, stage, smallest);
  if (!drawn) return Failure{world.name, seed, *std::move(violation), choices.taken(), "(not the same when played again)\n"};
  drawn->seed = seed;
  return drawn;
}

Outcome explore(const World& world, const Share& share) {
  const auto start = std::chrono::steady_clock::now();
  const auto took = [&] { return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start); };
  Outcome out;
  Stage stage;
  for (auto seed = share.first_seed;; ++seed) {
    if (share.schedules > 0 && out.schedules >= share.schedules) break;
    if (share.time.count() > 0 && out.schedules % 16 == 0 && took() >= share.time) break;
    out.failure = explore(world, stage, seed, share.shrink_runs);
    ++out.schedules;
    if (out.failure) break;
  }
  out.took = took();
  return out;
}

}  // namespace openshell::model
