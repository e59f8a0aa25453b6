// Everything that is known of the actors of gateway, supervisors and sandboxes, at one place and under one number that grows. Pure: the
// caller gives the time. [ACT-37, ACT-39]
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "messages/directory.hpp"

namespace openshell::api {

inline constexpr std::size_t kMaxMapProcesses = 8'192;          ///< two for each sandbox; more are left out
inline constexpr std::chrono::seconds kProcessStale{15};        ///< without a sign of life the pages show it as stale
inline constexpr std::chrono::seconds kProcessForgotten{60};    ///< after the end of its session its entry stays so long
inline constexpr std::chrono::milliseconds kRatesValid{2'500};  ///< an actor with traffic reports every second

enum class ProcessKind : std::uint8_t { gateway, supervisor, sandbox };
[[nodiscard]] std::string_view kind_name(ProcessKind kind);

struct ShownActor {
  ActorSnapshot snapshot;
  std::chrono::steady_clock::time_point reported;               ///< when it became what it is
  std::optional<std::chrono::steady_clock::time_point> failed;  ///< when `failed` rose last while somebody looked
};

/// Whether what it had waiting when it reported still waits, and grows older with every second it says nothing.
[[nodiscard]] bool goes_on_waiting(const ActorSnapshot& actor);

struct ShownProcess {
  std::string id;
  ProcessKind kind = ProcessKind::gateway;
  std::string sandbox;  ///< "<workspace>/<name>", empty: the gateway
  std::map<std::string, ShownActor> actors;
  std::uint32_t left_out = 0;
  std::string note;
  std::uint64_t own_stale_ms = 0;  ///< age of the content when the last message was made
  std::uint64_t epoch = 0;         ///< of the supervisor process; another one: everything is new
  std::chrono::steady_clock::time_point heard;
  std::optional<std::chrono::steady_clock::time_point> ended;  ///< the session's end
  bool stale = false;
  std::uint64_t seq = 0;  ///< of its last change

  [[nodiscard]] std::uint64_t stale_ms(std::chrono::steady_clock::time_point now) const;
};

/// Totals of actors that are gone, so that a counter never falls.
struct RetiredCounts {
  std::uint64_t handled = 0, failed = 0, restarts = 0;
};

class ActorMap {
 public:
  using Time = std::chrono::steady_clock::time_point;

  [[nodiscard]] std::uint64_t seq() const { return seq_; }
  [[nodiscard]] const std::map<std::string, ShownProcess>& processes() const { return processes_; }
  /// By kind of process and kind of actor.
  [[nodiscard]] const std::map<std::pair<ProcessKind, std::string>, RetiredCounts>& retired() const { return retired_; }

  /// An entry, if need be an empty one. Null: there are kMaxMapProcesses.
  ShownProcess* ensure(const std::string& id, ProcessKind kind, const std::string& sandbox, Time now);
  /// What changed; `whole`: the rest is gone.
  void apply(ShownProcess& process, const ActorChanges& changes, Time now);
  /// A sign of life without content.
  void heard(ShownProcess& process, std::uint64_t own_stale_ms, Time now);
  void say(ShownProcess& process, const std::string& note, std::uint32_t left_out);
  /// Its session ended; a new one may come within kProcessForgotten.
  void ended(const std::string& id, Time now);
  void remove(const std::string& id);
  /// What time brings: rates that are over, processes that are stale or forgotten.
  void sweep(Time now);

  /// Ids of processes that were removed after `since`; nullopt: that is too long ago to know.
  [[nodiscard]] std::optional<std::vector<std::string>> gone_since(std::uint64_t since) const;

 private:
  struct Gone {
    std::uint64_t seq;
    std::string id;
  };
  void changed(ShownProcess& process) { process.seq = ++seq_; }
  void retire(ProcessKind kind, const ActorSnapshot& actor);

  std::map<std::string, ShownProcess> processes_;
  std::map<std::pair<ProcessKind, std::string>, RetiredCounts> retired_;
  std::deque<Gone> gone_;
  std::uint64_t forgotten_before_ = 0;
  std::uint64_t seq_ = 0;
};

}  // namespace openshell::api
