// openshell_model: explores schedules of the actors in virtual time, on every core.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <thread>

#include "tests/model/explorer/explorer.hpp"
#include "tests/model/explorer/mutant.hpp"

namespace {

using namespace openshell::model;

std::vector<std::uint32_t> parse(const std::string& text) {
  std::vector<std::uint32_t> out;
  std::istringstream in{text};
  for (std::string number; std::getline(in, number, ',');) out.push_back(static_cast<std::uint32_t>(std::stoul(number)));
  return out;
}

/// Each thread has seeds of its own, the same ones whatever the number of threads is not: a seed alone repeats a schedule.
bool run(const World& world, Share share, unsigned threads) {
  std::mutex mutex;
  std::uint64_t schedules = 0;
  std::chrono::milliseconds took{0};
  bool failed = false;
  std::vector<std::thread> running;
  const auto all = share.schedules;
  for (unsigned i = 0; i < threads; ++i) {
    running.emplace_back([&, i, share]() mutable {
      share.first_seed += i * 1'000'000'000ULL;
      if (all > 0) share.schedules = all / threads + (i < all % threads ? 1 : 0);
      if (all > 0 && share.schedules == 0) return;
      const auto outcome = explore(world, share);
      const std::lock_guard lock{mutex};
      schedules += outcome.schedules;
      took = std::max(took, outcome.took);
      if (outcome.failure) {
        failed = true;
        std::printf("%s\n", outcome.failure->text().c_str());
      }
    });
  }
  for (auto& thread : running) thread.join();
  std::printf("%s: %llu schedules in %.1f s, %.0f a second, %s\n", world.name.c_str(), static_cast<unsigned long long>(schedules),
              static_cast<double>(took.count()) / 1'000,
              static_cast<double>(schedules) * 1'000 / static_cast<double>(std::max<long>(1, took.count())),
              failed ? "FAILED" : "no invariant broken");
  return !failed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Explores schedules of the actors in virtual time and checks the history of each."};
  std::string only, script;
  Share share;
  std::uint64_t seconds = 0;
  unsigned threads = std::thread::hardware_concurrency();
  int mutant = 0;
  bool quiet = false;
  app.add_option("--world", only, "status or exec; else both");
  app.add_option("--seed", share.first_seed, "the first seed");
  app.add_option("--schedules", share.schedules, "how many, of each world");
  app.add_option("--seconds", seconds, "how long, for each world");
  app.add_option("--threads", threads, "schedules at once");
  app.add_option("--replay", script, "a recorded schedule: numbers with commas; drawn");
  app.add_option("--mutant", mutant, "switches a mutation on (openshell_model_mutants only)");
  app.add_flag("--quiet", quiet, "no shrinking, no chart");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::off);
  set_mutant(mutant);
  share.time = std::chrono::seconds{seconds};
  if (quiet) share.shrink_runs = 0;
  if (share.schedules == 0 && seconds == 0) share.schedules = 10'000;

  if (!script.empty()) {
    const auto* world = find_world(only.empty() ? "status" : only);
    if (world == nullptr) return 2;
    Stage stage;
    const auto failure = replay(*world, stage, parse(script == "-" ? "" : script));
    std::printf("%s\n", failure ? failure->text().c_str() : "no invariant broken");
    return failure ? 1 : 0;
  }
  bool good = true;
  for (const auto& world : worlds()) {
    if (only.empty() || world.name == only) good = run(world, share, std::max(1U, threads)) && good;
  }
  return good ? 0 : 1;
}
