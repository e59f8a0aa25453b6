// What introspection costs: many actors of which a tenth changes each second, once with a directory and once without. Prints JSON.
// Usage: bench_introspection ACTORS SECONDS
#include <sys/resource.h>

#include <caf/all.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "actors/introspection/directory.hpp"
#include "actors/introspection/reporter.hpp"
#include "actors/supervision/sleeping_scheduler.hpp"

namespace {

using namespace openshell;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using poke_atom = caf::atom_constant<caf::atom("poke")>;
using Worker = Introspectable::extend<caf::reacts_to<poke_atom>>;

struct WorkerState {
  Reporter reporter;
  std::uint64_t pokes = 0;
  [[maybe_unused]] inline static const char* name = "worker";
};

/// As large as a sandbox's entity is on a page.
Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, Directory directory, std::size_t number) {
  self->state.reporter =
      Reporter{std::move(directory), "sandbox_entity:00000000-0000-4000-8000-" + std::to_string(number), "sandbox_entity", "sandbox_index"};
  const auto snapshot = [self] {
    ActorSnapshot out;
    out.summary = "some-sandbox-name: ready, connected, policy " + std::to_string(self->state.pokes);
    return self->state.reporter.complete(out);
  };
  Worker::behavior_type handlers{
      [=](introspect_atom) { return snapshot(); },
      [=](poke_atom) { ++self->state.pokes; },
  };
  return self->state.reporter.watch(self, snapshot, std::move(handlers));
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// CPU per second while a tenth of the actors changes each second. `watched`: somebody asks every second what changed.
double measure(std::size_t count, int seconds, bool reports, bool watched, std::uint64_t& known) {
  SleepingScheduler config{2};
  caf::actor_system system{config};
  const auto dir = system.spawn(directory);
  std::vector<Worker> workers;
  for (std::size_t i = 0; i < count; ++i)
    workers.push_back(system.spawn(worker, reports ? caf::actor_cast<Directory>(dir) : Directory{}, i));
  std::this_thread::sleep_for(2s);  // their first reports are over
  caf::scoped_actor asker{system};
  std::uint64_t seq = 0;
  const auto ask = [&] {
    asker->request(dir, 10s, changes_atom::value, seq)
        .receive([&](const ActorChanges& changes) { seq = changes.seq, known += changes.actors.size(); }, [](const caf::error&) {});
  };
  ask();
  known = 0;
  const double begin = cpu_seconds();
  std::size_t next = 0;
  auto due = Clock::now();
  for (int tenth = 0; tenth < seconds * 10; ++tenth) {
    for (std::size_t i = 0; i < count / 100; ++i) caf::anon_send(workers[next++ % count], poke_atom::value);
    if (watched && tenth % 10 == 9) ask();
    std::this_thread::sleep_until(due += 100ms);
  }
  const double used = (cpu_seconds() - begin) / seconds;
  for (const auto& one : workers) caf::anon_send_exit(one, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(dir, caf::exit_reason::user_shutdown);
  workers.clear();
  return used;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 10'000;
  const int seconds = argc > 2 ? std::atoi(argv[2]) : 10;
  std::uint64_t none = 0, reported = 0;
  const double bare = measure(count, seconds, false, false, none);
  const double pushed = measure(count, seconds, true, false, none);
  const double watched = measure(count, seconds, true, true, reported);
  std::printf("{\"actors\":%zu,\"bare_percent\":%.4f,\"pushed_percent\":%.4f,\"watched_percent\":%.4f,\"changes_seen_per_second\":%.1f}\n",
              count, bare * 100, pushed * 100, watched * 100, static_cast<double>(reported) / seconds);
  return 0;
}
