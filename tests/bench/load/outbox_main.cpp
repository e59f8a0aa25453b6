// How much the outbox costs beside bare CAF: round trips of a ping-pong, statuses through the outbox in memory, and through its journal.
// Prints one JSON object. Arguments: COUNT DIRECTORY (for the journal).
#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "actors/outbox/journal_writer.hpp"
#include "actors/outbox/outbox.hpp"
#include "actors/outbox/posix_journal_disk.hpp"
#include "actors/supervision/sleeping_scheduler.hpp"

namespace {

using namespace openshell;
using namespace openshell::supervisor;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kAhead = 32'768;  // statuses in memory; at twice as many the outbox would begin to drop

using ping_atom = caf::atom_constant<caf::atom("ping")>;
using Pong = caf::typed_actor<caf::replies_to<ping_atom, std::uint64_t>::with<std::uint64_t>>;

double rate(std::uint64_t count, Clock::time_point start) {
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - start).count();
}

void ping(caf::event_based_actor* self, const Pong& pong, std::uint64_t left, std::promise<void>* done) {
  if (left == 0) return done->set_value();
  self->request(pong, caf::infinite, ping_atom::value, left).then([=](std::uint64_t) { ping(self, pong, left - 1, done); });
}

double ping_pong(caf::actor_system& system, std::uint64_t count) {
  std::promise<void> done;
  auto pong = system.spawn([](Pong::pointer) -> Pong::behavior_type { return {[](ping_atom, std::uint64_t value) { return value; }}; });
  const auto start = Clock::now();
  system.spawn([&, pong](caf::event_based_actor* self) { ping(self, pong, count, &done); });
  done.get_future().wait();
  const auto out = rate(count, start);
  caf::anon_send_exit(pong, caf::exit_reason::user_shutdown);
  return out;
}

/// A gateway that takes every status at once.
GatewayClient::behavior_type gateway(GatewayClient::pointer, std::uint64_t count, std::promise<void>* done) {
  return {
      [](config_atom) { return ConfigSnapshot{}; },
      [](environ_atom) { return ProviderEnvironment{}; },
      [](submit_atom, const PolicyUpload&) -> caf::result<void> { return {}; },
      [seen = std::uint64_t{0}, count, done](reported_atom, const PolicyStatus&) mutable -> caf::result<void> {
        if (++seen == count) done->set_value();
        return {};
      },
      [](admit_atom, const AdmissionReport&) -> caf::result<void> { return {}; },
      [](ready_atom, const ReadinessReport&) { return ReadinessAccepted{}; },
      [](endpoint_atom, const EndpointReport&) -> caf::result<void> { return {}; },
      [](analyse_atom, const DenialBatch&) -> caf::result<void> { return {}; },
      [](exited_atom, std::int32_t) -> caf::result<void> { return {}; },
      [](finalize_atom) -> caf::result<void> { return {}; },
      [](renew_atom) -> caf::result<void> { return {}; },
      [](run_atom, const Completion&) {},
  };
}

/// Every status pushed at once by another thread, as a burst of policy changes would; until the gateway has the last.
double through_outbox(caf::actor_system& system, std::uint64_t count, const std::string& directory) {
  std::promise<void> done;
  auto client = system.spawn(gateway, count, &done);
  std::shared_ptr<JournalFiles> files;
  auto journal = std::make_shared<StatusJournal>();
  JournalWriter writer;
  if (!directory.empty()) {
    files = std::make_shared<JournalFiles>(posix_journal_disk(directory), "sandbox", "generation");
    journal = open_journal(*files);
    writer = system.spawn<caf::detached>(journal_writer, files, Reporter{});
  }
  auto outbox = system.spawn(status_outbox, journal, client, Reporter{});
  if (writer) caf::anon_send(outbox, install_atom::value, writer);
  const auto start = Clock::now();
  for (std::uint64_t version = 1; version <= count; ++version) {
    while (version % 1'024 == 0 && journal->with([](const OutboxQueue& queue) { return queue.in_memory(); }) > kAhead)
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    journal->push({Revision{version}, PolicyOutcome::loaded, {}, Acknowledgement::reloaded});
  }
  done.get_future().wait();
  const auto out = rate(count, start);
  journal->on_push(nullptr);
  caf::anon_send_exit(outbox, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(client, caf::exit_reason::user_shutdown);
  if (writer) caf::anon_send_exit(writer, caf::exit_reason::user_shutdown);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  spdlog::set_level(spdlog::level::off);
  const auto count = std::strtoull(argv[1], nullptr, 10);
  SleepingScheduler config{2};
  caf::actor_system system{config};
  ping_pong(system, count / 10);  // warm
  const auto bare = ping_pong(system, count);
  const auto memory = through_outbox(system, count, {});
  const auto disk = through_outbox(system, count, argv[2]);
  std::printf("{\"ping_pong\": %.0f, \"memory\": %.0f, \"disk\": %.0f}\n", bare, memory, disk);
  std::fflush(stdout);
  std::_Exit(0);
}
