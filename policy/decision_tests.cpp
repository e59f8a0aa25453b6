#include "policy/decision_tests.hpp"

#include <array>
#include <map>

#include "policy/parse.hpp"
#include "policy/question_document.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::array<std::string_view, 1> kTop{"tests"};
constexpr std::array<std::string_view, 5> kTest{"name", "input", "expect", "rule", "reason"};

// As a policy's, but for the number of nodes: a test has a dozen and more.
constexpr ParseLimits limits() {
  ParseLimits out;
  out.nodes = 1'000'000;
  out.events = 3'000'000;
  return out;
}

class TestsReader : private ValueReader {
 public:
  TestsReader(SourceMap& places, Diagnostics& diagnostics) : ValueReader{places, diagnostics, {"invalid test file: ", "test file"}} {}

  std::vector<DecisionTest> read(const YamlNode& root) {
    std::vector<DecisionTest> out;
    bool seen = false;
    each_key(root, "", kTop, [&](std::string_view, const YamlNode& node, const std::string& path) {
      seen = true;
      each_element(node, path, [&](const YamlNode& item, const std::string& at) { test(item, at, out.emplace_back()); });
      if (node.kind == YamlNode::Kind::sequence && node.items.empty()) error(node.place, path, "a test file has at least one test");
    });
    if (!seen && root.kind == YamlNode::Kind::mapping) missing(root, "", "tests", "add `tests:` with a list");
    return out;
  }

 private:
  void test(const YamlNode& node, const std::string& path, DecisionTest& out) {
    bool name_seen = false, input_seen = false, expect_seen = false;
    each_key(node, path, kTest, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "input") {
        input_seen = true;
        read_question(value, at, out.question, places_, diagnostics_);
        return;
      }
      std::string text;
      if (!string(value, at, text)) return;
      if (key == "name") {
        name_seen = true;
        name(value, at, text);
        out.name = std::move(text);
      } else if (key == "expect") {
        expect_seen = true;
        const auto word = parse_decision(text);
        if (!word) error(value.place, at, cat("expect is allow, deny or audit, not '", shorten(text, 64), "'"));
        out.expect = word.value_or(Decision::deny);
      } else {
        (key == "rule" ? out.rule : out.reason) = std::move(text);
      }
    });
    if (node.kind != YamlNode::Kind::mapping) return;
    if (!name_seen) missing(node, path, "name", "give the test a name of its own");
    if (!input_seen) missing(node, path, "input", "say what is asked");
    if (!expect_seen) missing(node, path, "expect", "add `expect: allow`, `deny` or `audit`");
  }

  void name(const YamlNode& node, const std::string& path, const std::string& name) {
    if (name.empty()) error(node.place, path, "a test has a name that is not empty");
    const auto [earlier, fresh] = names_.emplace(name, node.place);
    if (!fresh) error(node.place, path, cat("two tests are named '", shorten(name, 64), "'; the first is at line ", earlier->second.line));
  }

  std::map<std::string, Place> names_;
};

}  // namespace

absl::StatusOr<std::vector<DecisionTest>> parse_decision_tests(std::string_view text, std::string_view file) {
  Diagnostics diagnostics;
  SourceMap places;
  std::vector<DecisionTest> tests;
  static_assert(limits().elements == kMaxDecisionTests, "one list holds all tests of a file");
  const auto root = read_yaml(text, limits(), diagnostics);
  if (root != nullptr) tests = TestsReader{places, diagnostics}.read(*root);
  diagnostics.locate(places, file);
  if (diagnostics.has_errors()) return absl::InvalidArgumentError(std::string{text::trim(diagnostics.render())});
  return tests;
}

TestOutcome run_test(const Matcher& matcher, const DecisionTest& test) {
  TestOutcome out;
  out.judgement = judge(matcher, test.question);
  const auto& got = out.judgement;
  const auto by = cat(" (", got.rule.empty() ? "no rule" : cat("rule ", got.rule), ")");
  if (got.decision != test.expect) {
    out.failure = cat("expected ", to_string(test.expect), ", got ", to_string(got.decision), by);
  } else if (test.rule && *test.rule != got.rule) {
    out.failure = cat("expected rule ", *test.rule, ", got ", to_string(got.decision), by);
  } else if (test.reason && got.reason.find(*test.reason) == std::string::npos) {
    out.failure = cat("expected a reason with '", *test.reason, "', got '", got.reason, "'");
  }
  out.ok = out.failure.empty();
  return out;
}

}  // namespace openshell::policy
