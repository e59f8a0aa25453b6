#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/introspection/actor_frames.hpp"
#include "egress/stream.hpp"
#include "messages/directory.hpp"
#include "programs/supervisor/serial_queue.hpp"
#include "programs/supervisor/timer_thread.hpp"

namespace openshell::supervisor {

/// Where the relay reads. None of these waits for an actor but `inquire`, and nothing here delays one.
struct ActorSources {
  template <class T>
  using Then = std::function<void(absl::StatusOr<T>)>;
  struct Runtime {
    std::vector<ActorSnapshot> actors;
    std::uint32_t left_out = 0;
  };

  std::uint64_t epoch = 0;                         ///< random, of this process
  std::function<void(Then<ActorChanges>)> actors;  ///< all of this process, as last reported
  std::function<void(Then<Runtime>)> runtime;      ///< of the sandbox, untrusted; INVALID_ARGUMENT: it has none, do not ask again
  std::function<void(const std::string& id, Then<ActorSnapshot>)> inquire;  ///< one of this process, asked itself
};

/// One watcher at the gateway: after its `Watch`, whole snapshots as soon as something changed, at most one a second, and a sign of life
/// every 10 s. A snapshot that the relay has not taken yet is followed by the newest only, so a slow reader costs one message and blocks
/// nobody. Any thread. [ACT-39]
class ActorsRelay : public std::enable_shared_from_this<ActorsRelay> {
 public:
  static constexpr std::size_t kMaxAtOnce = 2;

  struct Limits {
    std::chrono::milliseconds pace{1'000};
    std::chrono::milliseconds sign_of_life{10'000};
    std::chrono::milliseconds watch_deadline{10'000};
    std::chrono::milliseconds stale_runtime{5'000};  ///< after so long without an answer of the sandbox its entry has a note
  };

  ActorsRelay(std::shared_ptr<egress::ByteStream> relay, ActorSources sources, std::shared_ptr<TimerThread> timers, Limits limits,
              std::function<void()> ended)
      : relay_{std::move(relay)}, sources_{std::move(sources)}, timers_{std::move(timers)}, limits_{limits}, ended_{std::move(ended)} {}

  void run();
  /// The gateway closed the relay.
  void abort();

 private:
  using Time = std::chrono::steady_clock::time_point;

  void post(std::function<void()> work);
  void read();
  void received(absl::StatusOr<std::string> bytes);
  bool take(const actors_wire::ToSupervisor& message);
  void inspect(const actors_wire::Inspect& request);
  void inspected(std::uint64_t request, const absl::StatusOr<ActorSnapshot>& answer);
  void tick();
  void ask_runtime();
  void changed(absl::StatusOr<ActorChanges> all);
  actors_wire::Process runtime_process() const;
  void send(std::string frame);
  void write();
  void close();

  const std::shared_ptr<egress::ByteStream> relay_;
  const ActorSources sources_;
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;
  std::function<void()> ended_;
  SerialQueue serial_;  // everything below is touched by it only
  ActorsFrameDecoder in_{kMaxActorsRequest};
  std::deque<std::string> out_;  // the front is being written
  std::string shown_;            // what was sent last, without ages
  std::uint64_t seq_ = 0;
  Time last_sent_{};
  ActorSources::Runtime runtime_;
  std::string runtime_note_ = "not asked yet";
  Time runtime_at_{};
  bool want_runtime_ = false;
  bool runtime_asked_ = false;
  bool watching_ = false;
  bool inspecting_ = false;
  Time last_inspect_{};
  bool closed_ = false;
};

}  // namespace openshell::supervisor
