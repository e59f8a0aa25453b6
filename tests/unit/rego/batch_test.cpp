#include "policy/rego/batch.hpp"

#include <gtest/gtest.h>

#include <string>

namespace openshell::policy::rego {
namespace {

TEST(RegoBatch, AnswersHaveTheirBindingsAlways) {
  EXPECT_EQ(answer_case(R"({"id":"a","modules":[],"query":"1 + 1"})"),
            R"({"id":"a","result":[{"bindings":{},"expressions":[{"value":2}]}]})");
  EXPECT_EQ(answer_case(R"({"id":7,"modules":[],"query":"x = {3,1}"})"),
            R"({"id":7,"result":[{"bindings":{"x":[1,3]},"expressions":[{"value":true}]}]})");
}

TEST(RegoBatch, AnUndefinedQueryIsAnEmptyList) {
  EXPECT_EQ(answer_case(R"({"id":"a","modules":[],"query":"input.x"})"), R"({"id":"a","result":[]})");
}

TEST(RegoBatch, WrongLinesAreInputErrorsWithTheIdWhereThereIsOne) {
  for (const std::string line : {"", "[]", "nonsense", R"({"modules":[],"query":"1"})"}) {
    EXPECT_TRUE(answer_case(line).starts_with(R"({"error":{"code":"input_error")")) << line;
    EXPECT_TRUE(answer_case(line).ends_with(R"("id":null})")) << line;
  }
  for (const std::string rest :
       {R"("modules":[])", R"("query":1)", R"("query":"1","modules":1)", R"("query":"1","modules":[1])", R"("query":"1","data":[])",
        R"("query":"1","v0":1)", R"("query":"1","strict_builtin_errors":"x")", R"("query":"1","other":1)"}) {
    const auto answer = answer_case("{\"id\":\"me\"," + rest + "}");
    EXPECT_TRUE(answer.starts_with(R"({"error":{"code":"input_error")")) << rest;
    EXPECT_TRUE(answer.ends_with(R"("id":"me"})")) << rest;
  }
}

TEST(RegoBatch, ErrorsNameTheModuleAndThePlace) {
  const auto answer = answer_case(R"({"id":1,"modules":["package a","package b\np := x"],"query":"1"})");
  EXPECT_EQ(answer, R"({"error":{"code":"rego_unsafe_var_error","message":"module1.rego:2:6: var x is unsafe"},"id":1})");
}

TEST(RegoBatch, StrictErrorsOfBuiltinsEndTheQuery) {
  EXPECT_EQ(answer_case(R"({"id":1,"modules":[],"query":"not 1 / 0"})"),
            R"({"id":1,"result":[{"bindings":{},"expressions":[{"value":true}]}]})");
  EXPECT_EQ(answer_case(R"({"id":1,"modules":[],"query":"not 1 / 0","strict_builtin_errors":true})"),
            R"({"error":{"code":"eval_builtin_error","message":"1:5: div: divide by zero"},"id":1})");
}

}  // namespace
}  // namespace openshell::policy::rego
