// The answer of a policy to one question, by the very matcher of the supervisor. Pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "policy/matcher.hpp"
#include "policy/question.hpp"

namespace openshell::policy {

enum class Decision : std::uint8_t { allow, audit, deny };
[[nodiscard]] std::string_view to_string(Decision decision);
/// nullopt: none of the three words.
[[nodiscard]] std::optional<Decision> parse_decision(std::string_view word);
/// What a verdict comes to: what is unsupported is refused.
[[nodiscard]] Decision decision_of(Verdict verdict);

struct Judgement {
  Decision decision = Decision::deny;
  std::string rule;                       ///< key of the rule that holds the answer; empty where no rule admits the connection
  std::optional<std::uint32_t> endpoint;  ///< its index
  std::string handling;                   ///< protocol and enforcement of that endpoint, for people
  std::string reason;                     ///< empty when allowed
};

/// `question.relaxed` must be what the matcher was compiled for (options_for).
[[nodiscard]] Judgement judge(const Matcher& matcher, const Question& question);

/// How a matcher is compiled that is asked such questions.
[[nodiscard]] MatcherOptions options_for(bool relaxed);

/// The request as the matcher takes it; borrows from `http`.
[[nodiscard]] Request request_of(const Question::Http& http);

/// The place that is asked about, as people write it: `POST api.test:443/v1`, `[2001:db8::1]:443`.
[[nodiscard]] std::string describe(const Question& question);

}  // namespace openshell::policy
