#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>

#include "actors/introspection/reporter.hpp"
#include "actors/sandbox/managed_process.hpp"
#include "actors/sandbox/workload_spec.hpp"
#include "isolation/launcher.hpp"
#include "messages/sandbox.hpp"

namespace openshell::sandbox {

/// One process to be made. `request` holds a StartAgent or an Exec.
struct ProcessOrder {
  std::string process_id;
  std::shared_ptr<const CallRequest> request;
  std::function<void(std::shared_ptr<ManagedProcess>)> on_exit;  ///< reaper's thread; after ManagedProcess::exited
};

struct LauncherDependencies {
  isolation::Launcher* launcher = nullptr;
  boost::asio::io_context* io = nullptr;  ///< runs the processes' pipes
  isolation::LandlockFeatures landlock;
  WorkloadFrame frame;  ///< image and user environment, directories; the rest is filled when main starts
  ManagedProcess::Limits limits;
  std::string root = "/";
};

struct LauncherControlState {
  Reporter reporter;
  LauncherDependencies with;
  std::uint64_t launched = 0;
  std::uint64_t provider_generation = 0;
  std::uint64_t provider_revision = 0;
  inline static const char* name = "launcher_control";
};

/// Spawn detached.
LauncherControl::behavior_type launcher_control(LauncherControl::stateful_pointer<LauncherControlState> self, LauncherDependencies with,
                                                Directory directory);

}  // namespace openshell::sandbox
