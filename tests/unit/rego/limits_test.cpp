// Each bound of the evaluator, at the limit and beyond it.
#include "policy/rego/lexer.hpp"
#include "policy/rego/workspace.hpp"
#include "policy/text.hpp"

#include <gtest/gtest.h>

#include <string>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

std::string outcome(const std::string& module, const std::string& query, Limits limits = {}) {
  Workspace workspace;
  if (!module.empty()) {
    if (const auto error = workspace.add_module("m.rego", module)) return error->code + " " + error->message;
  }
  if (const auto errors = workspace.compile(); !errors.empty()) return errors[0].code + " " + errors[0].message;
  QueryOptions options;
  options.limits = limits;
  const auto answers = workspace.query(query, {}, options);
  if (const auto* errors = std::get_if<Errors>(&answers)) return errors->front().code + " " + errors->front().message;
  return cat("answers ", std::get<std::vector<Answer>>(answers).size());
}

TEST(RegoLimits, StepsEndAQueryAndAreNotHiddenByNot) {
  const std::string loop =
      "package a\nxs := [1,2,3,4,5,6,7,8,9,10]\np if { some a in xs; some b in xs; some c in xs; some d in xs; a + b + c + d == 99 }\nq if "
      "not p\n";
  Limits limits;
  limits.steps = 2'000;
  EXPECT_EQ(outcome(loop, "data.a.p", limits), "eval_limit_error limit exceeded: steps");
  EXPECT_EQ(outcome(loop, "data.a.q", limits), "eval_limit_error limit exceeded: steps");
  EXPECT_EQ(outcome(loop, "data.a.q"), "answers 1");
}

TEST(RegoLimits, ElementsOfOneCollectionAreBounded) {
  const std::string module =
      "package a\nxs := [1,2,3,4]\np := [1 | some a in xs; some b in xs]\nq contains [a, b] if { some a in xs; some b in xs }\n";
  Limits limits;
  limits.elements = 16;
  EXPECT_EQ(outcome(module, "data.a.p", limits), "answers 1");
  EXPECT_EQ(outcome(module, "data.a.q", limits), "answers 1");
  limits.elements = 15;
  EXPECT_EQ(outcome(module, "data.a.p", limits), "eval_limit_error limit exceeded: elements");
  EXPECT_EQ(outcome(module, "data.a.q", limits), "eval_limit_error limit exceeded: elements");
}

TEST(RegoLimits, ASourceHasAtMostItsBytes) {
  const std::string head = "package a\n#";
  EXPECT_EQ(outcome(head + std::string(kMaxSourceBytes - head.size(), 'x'), "1"), "answers 1");
  EXPECT_TRUE(outcome(head + std::string(kMaxSourceBytes - head.size() + 1, 'x'), "1").starts_with("load_limit_error "));
}

TEST(RegoLimits, NestingIsBoundedInEveryForm) {
  for (const auto& [open, close] : {std::pair("[", "]"), {"(", ")"}, {"{1:", "}"}, {"[x|x:=", "]"}, {"f(", ")"}, {"a[", "]"}}) {
    std::string deep;
    for (int i = 0; i < 1000; ++i) deep += open;
    deep += "1";
    for (int i = 0; i < 1000; ++i) deep += close;
    EXPECT_TRUE(outcome("", deep).starts_with("load_limit_error ")) << open << ": " << outcome("", deep);
  }
  std::string fine;
  for (int i = 0; i < 50; ++i) fine += "[";
  fine += "1";
  for (int i = 0; i < 50; ++i) fine += "]";
  EXPECT_EQ(outcome("", fine), "answers 1");
}

TEST(RegoLimits, LongChainsOfRulesEndInAnErrorNotInTheStack) {
  for (const int length : {300, 20'000}) {
    std::string module = "package a\nr0 := 1\n";
    for (int i = 1; i <= length; ++i) module += cat("r", i, " := r", i - 1, "\n");
    const auto got = outcome(module, cat("data.a.r", length));
    EXPECT_EQ(got, length == 300 ? "answers 1" : "eval_limit_error limit exceeded: rules inside one another");
  }
}

TEST(RegoLimits, ALongSumOrElseChainDoesNotOverflow) {
  std::string sum = "1";
  for (int i = 0; i < 100; ++i) sum += " + 1";
  EXPECT_EQ(outcome("", sum), "answers 1");
  std::string module = "package a\np := 1 if false";
  for (int i = 0; i < 1000; ++i) module += " else := 1 if false";
  EXPECT_TRUE(outcome(module, "data.a.p").starts_with("load_limit_error "));
}

}  // namespace
}  // namespace openshell::policy::rego
