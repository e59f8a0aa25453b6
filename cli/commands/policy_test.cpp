// `policy test`: a table of questions with the answers that a policy must give.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "cli/commands/policy_questions.hpp"
#include "cli/terminal.hpp"
#include "cli/text_source.hpp"
#include "policy/decision_tests.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

struct Options {
  std::vector<std::string> words;  // [NAME] TESTS...
  std::string file;
  bool relaxed = false, json_output = false;
};

struct Tally {
  std::size_t passed = 0, failed = 0;
  json::array lines;
};

absl::StatusOr<std::vector<policy::DecisionTest>> load_tests(const std::vector<std::string>& files) {
  std::vector<policy::DecisionTest> out;
  if (std::count(files.begin(), files.end(), "-") > 1) return absl::InvalidArgumentError("stdin ('-') can be read once");
  for (const auto& file : files) {
    const auto text = read_text_source(file, policy::ParseLimits{}.bytes, "test file");
    if (!text.ok()) return text.status();
    auto tests = policy::parse_decision_tests(*text, source_name(file));
    if (!tests.ok()) return tests.status();
    for (auto& test : *tests) out.push_back(std::move(test));
  }
  return out;
}

void take(const policy::DecisionTest& test, const policy::TestOutcome& outcome, bool json_output, Tally& tally) {
  ++(outcome.ok ? tally.passed : tally.failed);
  if (!json_output) {
    print(outcome.ok ? absl::StrCat("ok    ", test.name) : absl::StrCat("FAIL  ", test.name, ": ", outcome.failure));
    return;
  }
  const auto& got = outcome.judgement;
  tally.lines.push_back(json::object{{"name", test.name},
                                     {"ok", outcome.ok},
                                     {"expect", to_json_string(policy::to_string(test.expect))},
                                     {"decision", to_json_string(policy::to_string(got.decision))},
                                     {"rule", text_or_null(got.rule)},
                                     {"reason", text_or_null(got.reason)}});
}

absl::StatusOr<int> run(Context& context, const Options& options) {
  auto files = options.words;
  std::string name;
  if (options.file.empty()) {
    if (files.size() < 2)
      return absl::InvalidArgumentError(
          "say which policy is tested: --policy FILE TESTS..., or the name of a sandbox before the test files");
    name = files.front();
    files.erase(files.begin());
  }
  auto tests = load_tests(files);
  if (!tests.ok()) return tests.status();
  const auto policy = chosen_policy(context, name, options.file);
  if (!policy.ok()) return policy.status();
  const auto matcher = policy::Matcher::compile(**policy, policy::options_for(options.relaxed));
  if (!matcher.ok()) return matcher.status();
  Tally tally;
  for (auto& test : *tests) {
    test.question.relaxed = options.relaxed;
    take(test, policy::run_test(**matcher, test), options.json_output, tally);
  }
  if (options.json_output) {
    print_document(json::object{{"passed", tally.passed}, {"failed", tally.failed}, {"tests", tally.lines}}, Format::json);
  } else {
    print(absl::StrCat(tally.passed, " passed, ", tally.failed, " failed"));
  }
  return tally.failed == 0 ? kYes : kNo;
}

}  // namespace

void add_policy_test(CLI::App& policy, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = policy.add_subcommand("test", "Ask a policy a table of questions, and compare its answers");
  command->add_option("tests", o->words, "[SANDBOX] TEST FILES; `-` is stdin")->required();
  command->add_option("--policy", o->file, "Policy file; needs no gateway");
  command->add_flag("--relaxed", o->relaxed, "Programs do not matter");
  add_text_or_json(*command, o->json_output);
  command->callback([&chosen, o] { chosen = [o](Context& c) { return answer_or_invalid(run(c, *o)); }; });
}

}  // namespace openshell::cli
