#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "actors/introspection/reporter.hpp"
#include "isolation/process_tree.hpp"
#include "messages/sandbox.hpp"

namespace openshell::sandbox {

/// Between SIGTERM and SIGKILL of one exec: its caller is gone and nobody waits for a farewell.
inline constexpr std::chrono::milliseconds kExecGrace{0};

struct TreeControlState {
  Reporter reporter;
  std::shared_ptr<isolation::ProcessTree> tree;
  inline static const char* name = "tree_control";
};

/// Spawn detached.
TreeControl::behavior_type tree_control(TreeControl::stateful_pointer<TreeControlState> self, std::shared_ptr<isolation::ProcessTree> tree,
                                        Directory directory);

}  // namespace openshell::sandbox
