#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <caf/typed_response_promise.hpp>

#include "actors/introspection/reporter.hpp"
#include "actors/sandbox/exec_ledger.hpp"
#include "messages/sandbox.hpp"

namespace openshell::sandbox {

/// An exited exec that nobody is attached to keeps its output so long.
inline constexpr std::chrono::seconds kReclaimAfter{60};

struct ProcessSurvey {
  std::vector<boundary::ProcessSummary> processes;
};

struct ExecRegistryDependencies {
  LauncherControl launcher;
  TreeControl tree;
  std::string generation;
  ExecLedger::Limits limits;
  std::function<std::uint64_t()> unix_ms;  ///< wall clock, against which an exec expires
};

struct ExecRegistryState {
  Reporter reporter;
  ExecRegistryDependencies with;
  std::unique_ptr<ExecLedger> ledger;
  std::map<std::string, std::vector<caf::typed_response_promise<Outcome>>> waiters;  // by process id
  inline static const char* name = "exec_registry";
};

ExecRegistry::behavior_type exec_registry(ExecRegistry::stateful_pointer<ExecRegistryState> self, ExecRegistryDependencies with,
                                          Directory directory);

}  // namespace openshell::sandbox
