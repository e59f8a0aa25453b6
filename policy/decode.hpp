// The schema of an authored policy: a YAML tree to the message, every key known, every type exact. Internal to the parser.
#pragma once

#include "policy/diagnostic.hpp"
#include "policy/proto_fwd.hpp"
#include "policy/yaml_tree.hpp"

namespace openshell::policy {

/// Fills `policy` from `root`; what is wrong goes to `diagnostics`, where each key stood to `places`.
void decode_policy(const YamlNode& root, pb::SandboxPolicy& policy, SourceMap& places, Diagnostics& diagnostics);

/// Every key of the language by the path of the mapping it stands in (`endpoints[]`, `mcp`...), in the order of the tables; for the test
/// that compares parser and descriptors.
[[nodiscard]] std::vector<std::pair<std::string, std::vector<std::string>>> known_keys();

}  // namespace openshell::policy
