// The language: cases as data, one a line: modules, query, data, input, and what `rego batch` has to say: `want`, the answers, or `code`,
// the error.
#include "policy/rego/batch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace openshell::policy::rego {
namespace {

Value without(const Value& object, std::string_view a, std::string_view b) {
  std::vector<Member> members;
  for (const auto& member : object.members()) {
    if (member.key.text() != a && member.key.text() != b) members.push_back(member);
  }
  members.push_back({Value::string("id"), Value::integer(1)});
  return Value::object(std::move(members));
}

/// Empty where the case comes out as it should.
std::string difference(const std::string& line) {
  const auto parsed = parse_json(line);
  if (!parsed.ok()) return "no JSON";
  const auto answer = parse_json(answer_case(to_json(without(*parsed, "want", "code"))));
  if (!answer.ok()) return "the answer is no JSON";
  if (const Value* code = parsed->find("code")) {
    const Value* error = answer->find("error");
    if (error != nullptr && *error->find("code") == *code) return "";
  } else {
    const Value* result = answer->find("result");
    if (result != nullptr && *result == *parsed->find("want")) return "";
  }
  return "got " + to_json(*answer);
}

TEST(RegoLanguage, EveryCaseHasTheAnswerOfTheLanguage) {
  std::size_t count = 0;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(OPENSHELL_SOURCE_DIR "/tests/unit/rego/cases"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path);
    std::string line;
    for (int row = 1; std::getline(file, line); ++row) {
      ++count;
      EXPECT_EQ(difference(line), "") << path << ":" << row << ": " << line;
    }
  }
  EXPECT_GT(count, 100U);
}

}  // namespace
}  // namespace openshell::policy::rego
