#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/introspection/reporter.hpp"
#include "actors/sandbox/boundary_machine.hpp"
#include "messages/sandbox.hpp"

namespace openshell::sandbox {

/// Exit codes of openshell-sandbox that the boundary decides.
inline constexpr int kExitTerminated = 0;
inline constexpr int kExitNeverConfirmed = 6;
inline constexpr int kExitRecoveryExpired = 7;
inline constexpr int kExitSignalBeforeConfirm = 8;
inline constexpr int kExitInternal = 70;

struct BoundaryDependencies {
  ExecRegistry registry;
  LauncherControl launcher;
  TreeControl tree;
  BrokerControl broker;
  MediationLease lease;
  Directory directory;
  BoundaryMachine::Options machine;
  std::string generation;
  std::function<boundary::Response(const std::string& supervisor)>
      measure;  ///< a Confirmed, or an Error when a fact no longer holds; takes < 1 ms
  std::function<void(ConnectionNumber)> close_connection;
  std::function<void(std::shared_ptr<Call>)> loopback_connect;
  std::function<void(std::shared_ptr<Call>)> resolve_links;
  std::function<void(int code)> exit;  ///< once; the process ends soon after
  std::function<std::int64_t()> unix_seconds;
  std::chrono::milliseconds recovery_window{30'000};  ///< frozen so long, then everything ends
  std::chrono::milliseconds first_confirm{300'000};   ///< from the start of listening
  std::chrono::milliseconds staged_confirm{30'000};   ///< an attached connection must confirm
  std::uint32_t stop_grace_secs = 10;                 ///< SIGTERM to SIGKILL
};

struct BoundaryState {
  Reporter reporter;
  BoundaryDependencies with;
  std::unique_ptr<BoundaryMachine> machine;
  std::map<std::string, std::vector<std::shared_ptr<Call>>> joined;  // by request id: the same request, asked again while it runs
  std::vector<std::shared_ptr<Call>> deferred;                       // confirms that came while the freeze was still going on
  std::vector<std::shared_ptr<Call>> terminations;                   // terminate_boundary calls to answer
  std::set<ConnectionNumber> bearer_timers;
  bool freezing = false;
  bool ending = false;
  bool last_words_said = false;  // boundary_terminated was answered
  bool exited = false;
  std::uint64_t freezes = 0;
  bool introspecting = false;
  std::chrono::steady_clock::time_point last_introspection{};
  std::uint64_t introspections = 0;
  inline static const char* name = "boundary";
};

Boundary::behavior_type boundary_actor(Boundary::stateful_pointer<BoundaryState> self, BoundaryDependencies with);

}  // namespace openshell::sandbox
