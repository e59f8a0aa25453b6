// The short notation of `policy update`: words of the command line to operations on a policy. Pure.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <string>
#include <vector>

#include "policy/merge.hpp"

namespace openshell::cli {

struct MergeWords {
  std::vector<std::string> add_endpoints;     ///< `host:port[:access[:protocol[:enforcement[:options]]]]`
  std::vector<std::string> remove_endpoints;  ///< `host:port`
  std::vector<std::string> remove_rules;
  std::vector<std::string> add_allow, add_deny;  ///< `host:port[,port...]:METHOD:path`
  std::vector<std::string> binaries;
  std::string rule_name;
  std::optional<std::string> endpoint_path;
  bool any_binary = false;
};

/// Appends the operations in the order in which they are sent. INVALID_ARGUMENT names the flag, the segment and the word.
absl::Status add_operations(const MergeWords& words, policy::MergeOperations& out);

}  // namespace openshell::cli
