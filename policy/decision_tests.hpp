// A table of questions with the answers that a policy must give, and what became of it. Read as strictly as a policy. Pure, any thread.
//
//   tests:
//     - name: post is refused
//       input: {network: {host: api.test, port: 443}, exec: {path: /usr/bin/curl}, request: {method: POST, path: /v1}}
//       expect: deny                     # allow, deny or audit
//       rule: api                        # optional: the rule that holds the answer
//       reason: not permitted by policy  # optional: a part of the reason
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/judgement.hpp"

namespace openshell::policy {

/// Tests of one file.
inline constexpr std::size_t kMaxDecisionTests = 10'000;

struct DecisionTest {
  std::string name;
  Question question;
  Decision expect = Decision::deny;
  std::optional<std::string> rule, reason;
};

/// INVALID_ARGUMENT: one line a fault, with file, line and column. At least one test; every name once.
absl::StatusOr<std::vector<DecisionTest>> parse_decision_tests(std::string_view text, std::string_view file);

struct TestOutcome {
  bool ok = false;
  Judgement judgement;
  std::string failure;  ///< what was expected and what came; empty when ok
};

[[nodiscard]] TestOutcome run_test(const Matcher& matcher, const DecisionTest& test);

}  // namespace openshell::policy
