#include "policy/rego/value.hpp"
#include "policy/rego/number.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace openshell::policy::rego {
namespace {

Value json(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : Value();
}

TEST(RegoValue, KindsSortInTheOrderOfTheLanguage) {
  const std::vector<Value> sorted = {Value::null(),
                                     Value::boolean(false),
                                     Value::boolean(true),
                                     json("-3"),
                                     json("0.5"),
                                     json("1"),
                                     json("1e30"),
                                     json("\"\""),
                                     json("\"a\""),
                                     json("\"a much longer text\""),
                                     json("\"b\""),
                                     json("[]"),
                                     json("[1]"),
                                     json("[1,2]"),
                                     json("[2]"),
                                     json("{\"a\":1}"),
                                     json("{\"b\":0}"),
                                     Value::set({}),
                                     Value::set({json("1")})};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      const int wanted = i < j ? -1 : i > j ? 1 : 0;
      EXPECT_EQ(Value::compare(sorted[i], sorted[j]), wanted) << to_rego(sorted[i]) << " and " << to_rego(sorted[j]);
      EXPECT_EQ(sorted[i] == sorted[j], i == j);
    }
  }
}

TEST(RegoValue, StringsOfEveryLengthKeepTheirBytes) {
  for (std::size_t length = 0; length < 40; ++length) {
    const std::string text(length, 'x');
    const Value value = Value::string(text);
    EXPECT_EQ(value.text(), text);
    const Value copy = value;
    EXPECT_EQ(copy, Value::string(text));
    EXPECT_EQ(copy.hash(), Value::string(text).hash());
  }
}

TEST(RegoValue, NumbersOfTheSameWorthAreEqualHoweverTheyAreSpelled) {
  for (const auto& [a, b] :
       {std::pair("1", "1.0"), {"100", "1e2"}, {"0.1", "1e-1"}, {"-0", "0"}, {"18446744073709551616", "18446744073709551616.0"}}) {
    EXPECT_EQ(json(a), json(b)) << a;
    EXPECT_EQ(json(a).hash(), json(b).hash()) << a;
  }
  EXPECT_NE(json("9007199254740993"), json("9007199254740992"));
}

TEST(RegoValue, IntegersHaveNoEnd) {
  const Value large = *multiply(json("9223372036854775807"), json("9223372036854775807"));
  EXPECT_EQ(to_json(large), "85070591730234615847396907784232501249");
  EXPECT_EQ(*divide(large, json("9223372036854775807")), json("9223372036854775807"));
  EXPECT_EQ(to_json(*subtract(json("-9223372036854775808"), json("1"))), "-9223372036854775809");
  EXPECT_EQ(to_json(*remainder(json("-7"), json("4"))), "-3");
  EXPECT_FALSE(divide(json("1"), json("0.0")).ok());
  EXPECT_FALSE(remainder(json("1"), json("0")).ok());
  EXPECT_FALSE(remainder(json("1.5"), json("1")).ok());
}

TEST(RegoValue, DecimalsShowTheFewestDigits) {
  EXPECT_EQ(to_json(*add(json("0.1"), json("0.2"))), "0.3");
  EXPECT_EQ(to_json(*divide(json("10"), json("4"))), "2.5");
  EXPECT_EQ(to_json(*multiply(json("2.0"), json("3"))), "6");
}

TEST(RegoValue, AProductOfTooManyBitsIsRefused) {
  Value value = json("2");
  absl::Status last;
  for (int i = 0; i < 20 && last.ok(); ++i) {
    const auto next = multiply(value, value);
    last = next.status();
    if (next.ok()) value = *next;
  }
  EXPECT_EQ(last.code(), absl::StatusCode::kResourceExhausted);
}

TEST(RegoValue, SetsAndObjectsAreSortedAndHoldEverythingOnce) {
  const Value set = Value::set({json("3"), json("1"), json("1.0"), json("2")});
  EXPECT_EQ(to_rego(set), "{1, 2, 3}");
  EXPECT_NE(set.find(json("2.0")), nullptr);
  EXPECT_EQ(set.find(json("4")), nullptr);
  EXPECT_EQ(to_rego(Value::set({})), "set()");
  EXPECT_EQ(to_json(Value::object({{json("\"b\""), json("1")}, {json("\"a\""), json("2")}, {json("\"b\""), json("3")}})),
            R"({"a":2,"b":3})");
  EXPECT_EQ(to_json(Value::object({{json("[1]"), json("1")}})), R"({"[1]":1})");
}

TEST(RegoValue, JsonIsReadAndWrittenBack) {
  for (const std::string text : {R"({"a":[1,2.5,{"b":null}],"c":"\"\\\n\u0001ü"})", "[]", "{}", "1e400", "\"\""})
    EXPECT_EQ(to_json(json(text)), text);
  EXPECT_EQ(json(R"("\ud83d\ude00")").text(), "\xF0\x9F\x98\x80");
  EXPECT_EQ(json(R"("\ud83d")").text(), "\xEF\xBF\xBD");
  EXPECT_EQ(to_json(json(R"("<&>")"), true), R"("\u003c\u0026\u003e")");
  for (const std::string text : {"", "[1,]", "{\"a\"}", "01", "1.", "tru", "[1] 2", "\"\n\"", "\"\\x\"", "{1:2}", "nan", "-"}) {
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
  EXPECT_TRUE(parse_json(std::string(1000, '[') + std::string(1000, ']')).ok());
  EXPECT_FALSE(parse_json(std::string(1002, '[') + std::string(1002, ']')).ok());
}

}  // namespace
}  // namespace openshell::policy::rego
