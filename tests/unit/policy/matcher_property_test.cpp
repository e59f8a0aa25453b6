// Random policies and requests: the compiled matcher answers as the plainly written rules do. A second engine of rules is compared in the
// same way, over evaluator_data and evaluator_input. (BIN-26, NET-58)
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "policy/evaluator_data.hpp"
#include "policy/evaluator_input.hpp"
#include "policy/glob.hpp"
#include "policy/matcher.hpp"
#include "policy/normalize.hpp"
#include "policy/serialize.hpp"
#include "tests/unit/policy/plain_rules.hpp"
#include "tests/unit/policy/random_policies.hpp"

namespace openshell::policy {
namespace {

using random_policies::Dice;
using random_policies::Maker;

using random_policies::rounds;

TEST(MatcherProperty, BIN_26_TheCompiledMatcherAnswersAsThePlainRules) {
  constexpr std::uint64_t kQuestionsAPolicy = 10;
  std::uint64_t allowed = 0, refused = 0;
  for (std::uint64_t seed = 0; seed * kQuestionsAPolicy < rounds(); ++seed) {
    Maker make{seed};
    const auto policy = make.policy();
    const auto matcher = Matcher::compile(policy);
    ASSERT_TRUE(matcher.ok()) << matcher.status() << policy.DebugString();
    for (std::uint64_t i = 0; i < kQuestionsAPolicy; ++i) {
      auto q = make.question();
      // Content goes only where somebody would have read it.
      const Destination destination{q.host, static_cast<std::uint16_t>(q.port), {q.binary, q.ancestors, {}}};
      const auto connection = (*matcher)->connect(destination);
      const auto* endpoint = connection.allowed ? connection.deciding_for(q.path) : nullptr;
      const auto protocol = endpoint != nullptr ? endpoint->protocol : Protocol::none;
      const bool rpc = protocol == Protocol::json_rpc || protocol == Protocol::mcp;
      if (protocol != Protocol::graphql && !(endpoint != nullptr && endpoint->graphql_messages && q.method == "WEBSOCKET_TEXT"))
        q.graphql = nullptr;
      if (!rpc) q.jsonrpc = nullptr;
      const auto expected = plain::answer(policy, q);
      const auto describe = [&] {
        const Request request{q.method, q.path, q.query, q.graphql, q.jsonrpc};
        return "seed " + std::to_string(seed) + "\n" + evaluator_input(destination, &request) + "\n" + evaluator_data(**matcher, true);
      };
      ASSERT_EQ(connection.allowed, expected.allow_network) << describe();
      if (!connection.allowed) {
        EXPECT_FALSE(connection.reason.empty());
        continue;
      }
      ASSERT_EQ(connection.policy, expected.matched) << describe();
      ASSERT_EQ(connection.exact_declared_host, expected.exact_host) << describe();
      ASSERT_EQ(connection.deciding != nullptr ? connection.deciding->id() : "", expected.connection_decides) << describe();
      ASSERT_EQ(endpoint != nullptr ? endpoint->id() : "", expected.request_decides) << describe();
      if (connection.inspection == Inspection::raw) continue;
      const auto decision = connection.request({q.method, q.path, q.query, q.graphql, q.jsonrpc});
      ASSERT_EQ(decision.verdict == Verdict::allow, expected.allow_request) << describe();
      ASSERT_EQ(decision.reason.empty(), decision.verdict == Verdict::allow) << describe();
      ++(decision.verdict == Verdict::allow ? allowed : refused);
    }
  }
  EXPECT_GT(allowed, rounds() / 100) << "the generator reaches both answers";
  EXPECT_GT(refused, rounds() / 100);
}

std::string joined(Dice& dice, const std::vector<const char*>& parts, char between, std::size_t most) {
  std::string out;
  const auto count = 1 + dice.below(most);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += between;
    out += parts[dice.below(parts.size())];
  }
  return out;
}

TEST(GlobProperty, L7_45_CompiledPatternsMatchAsTriedOnes) {
  Dice dice{7};
  std::uint64_t matches = 0, overlaps = 0;
  for (std::uint64_t i = 0; i < rounds(); ++i) {
    const auto pattern = "/" + joined(dice, {"a", "b", "ab", "*", "**", "a*", "*b", "**"}, '/', 5);
    const auto other = "/" + joined(dice, {"a", "b", "*", "**", "*b*"}, '/', 4);
    const auto text = "/" + joined(dice, {"a", "b", "ab", "aab"}, '/', 5) + (dice.chance(20) ? "/" : "");
    for (const auto kind : {GlobKind::path, GlobKind::binary}) {
      const auto glob = Glob::compile(pattern, kind);
      const auto second = Glob::compile(other, kind);
      ASSERT_TRUE(glob.ok() && second.ok()) << pattern << " " << other;
      ASSERT_EQ(glob->matches(text), plain::path_matches(pattern, text)) << pattern << " " << text;
      ASSERT_EQ(Glob::overlap(*glob, *second), Glob::overlap(*second, *glob)) << pattern << " " << other;
      if (!glob->matches(text)) continue;
      ++matches;
      if (!second->matches(text)) continue;
      ++overlaps;
      ASSERT_TRUE(Glob::overlap(*glob, *second)) << pattern << " and " << other << " both match " << text;
    }
    const auto host = joined(dice, {"a", "b", "ab"}, '.', 5);
    const auto host_pattern = std::string{dice.chance(30) ? "**." : dice.chance(30) ? "a*." : ""} + joined(dice, {"a", "b", "*"}, '.', 4);
    const auto hosts = Glob::compile(host_pattern, GlobKind::host);
    ASSERT_TRUE(hosts.ok()) << host_pattern;
    ASSERT_EQ(hosts->matches(host), plain::host_matches(host_pattern, host)) << host_pattern << " " << host;
    const auto name_pattern = joined(dice, {"a", "b", "*", "**", "ab"}, dice.chance(50) ? '.' : 'b', 4);
    const auto names = Glob::compile(name_pattern, GlobKind::dotted);
    ASSERT_TRUE(names.ok()) << name_pattern;
    ASSERT_EQ(names->matches(host), plain::name_matches(name_pattern, host)) << name_pattern << " " << host;
  }
  EXPECT_GT(matches, rounds() / 50);
  EXPECT_GT(overlaps, rounds() / 200);
}

}  // namespace
}  // namespace openshell::policy
