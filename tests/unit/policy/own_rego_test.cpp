// The default rules, run by the evaluator of this tree, decide as the compiled matcher: random policies and questions, through the way that
// rules of somebody's own go. (BIN-26, NP-07)
#include <gtest/gtest.h>

#include "policy/matcher.hpp"
#include "policy/rules_file.hpp"
#include "policy/text.hpp"
#include "tests/unit/policy/random_policies.hpp"

namespace openshell::policy {
namespace {

using random_policies::Maker;
using text::cat;

constexpr std::uint64_t kQuestionsAPolicy = 20;

TEST(OwnRego, BIN_26_NP_07_TheDefaultRulesAnswerAsTheCompiledMatcher) {
  const auto questions = random_policies::rounds(20'000);
  std::uint64_t asked = 0, allowed = 0;
  for (std::uint64_t seed = 0; asked < questions; ++seed) {
    Maker make{seed + 2'000'000};
    MatcherOptions options;
    options.require_binary_identity = seed % 7 != 0;
    const auto policy = make.policy();
    const auto compiled = Matcher::compile(policy, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    auto arbiter = load_rules_file(default_rules(), "sandbox-policy.rego", **compiled);
    ASSERT_TRUE(arbiter.ok()) << arbiter.status();
    options.arbiter = *std::move(arbiter);
    const auto ruled = Matcher::compile(policy, options);
    ASSERT_TRUE(ruled.ok()) << ruled.status();
    for (std::uint64_t i = 0; i < kQuestionsAPolicy; ++i, ++asked) {
      auto q = make.question();
      if (seed % 3 == 0) q.graphql = nullptr;
      if (seed % 3 == 1) q.jsonrpc = nullptr;
      const Destination destination{q.host, static_cast<std::uint16_t>(q.port), {q.binary, q.ancestors, {}}};
      const Request request{q.method, q.path, q.query, q.graphql, q.jsonrpc};
      const auto one = (*compiled)->connect(destination), other = (*ruled)->connect(destination);
      const auto where = cat("seed ", seed, ", question ", i, ": ", q.host, ":", q.port, " ", q.method, " ", q.path);
      ASSERT_EQ(one.allowed, other.allowed) << where << "\n" << one.reason << "\n" << other.reason;
      ASSERT_EQ(one.reason, other.reason) << where;
      ASSERT_EQ(one.policy, other.policy) << where;
      ASSERT_EQ(one.inspection, other.inspection) << where;
      ASSERT_EQ(one.exact_declared_host, other.exact_declared_host) << where;
      ASSERT_EQ(one.deciding != nullptr ? one.deciding->id() : "", other.deciding != nullptr ? other.deciding->id() : "") << where;
      const auto first = one.request(request), second = other.request(request);
      ASSERT_EQ(first.verdict, second.verdict) << where << "\n" << first.reason << "\n" << second.reason;
      ASSERT_EQ(first.reason, second.reason) << where;
      allowed += first.verdict == Verdict::allow ? 1 : 0;
    }
  }
  EXPECT_GT(allowed, asked / 100);
}

}  // namespace
}  // namespace openshell::policy
