// The user's page lists the built-ins that there are: no more, no fewer.
#include "policy/rego/builtins.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace openshell::policy::rego {
namespace {

/// Names in backquotes in the table of the section.
std::set<std::string> listed_names() {
  std::ifstream file(OPENSHELL_SOURCE_DIR "/docs/rego.md");
  std::set<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == "## Built-in functions";
    if (!inside || !line.starts_with("|")) continue;
    std::stringstream cells(line);
    std::string piece;
    for (bool is_name = false; std::getline(cells, piece, '`'); is_name = !is_name) {
      if (is_name) names.insert(piece);
    }
  }
  return names;
}

TEST(RegoPage, ListsTheBuiltinsThatThereAre) {
  std::set<std::string> there;
  for (const auto* builtin : all_builtins()) there.insert(std::string(builtin->name));
  ASSERT_GT(there.size(), 150U);
  const auto listed = listed_names();
  for (const auto& name : there) EXPECT_TRUE(listed.contains(name)) << name << " is not in docs/rego.md";
  for (const auto& name : listed) EXPECT_TRUE(there.contains(name)) << name << " is in docs/rego.md and not there";
}

TEST(RegoPage, WhatReadsMoreThanItsArgumentsIsMarked) {
  std::set<std::string> marked;
  for (const auto* builtin : all_builtins()) {
    if (builtin->nondeterministic) marked.insert(std::string(builtin->name));
  }
  EXPECT_EQ(marked, (std::set<std::string>{"io.jwt.decode_verify", "json.match_schema", "json.verify_schema", "opa.runtime", "rand.intn",
                                           "time.now_ns", "uuid.rfc4122"}));
}

TEST(RegoPage, NothingReachesOut) {
  for (const auto* name : {"http.send", "net.lookup_ip_addr", "providers.aws.sign_req", "io.jwt.encode_sign"})
    EXPECT_EQ(find_builtin(name), nullptr) << name;
}

}  // namespace
}  // namespace openshell::policy::rego
