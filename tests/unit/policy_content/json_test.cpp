#include "policy/content/json.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace openshell::policy {
namespace {

std::string fault_of(std::string_view text) {
  JsonReader json{text};
  if (json.skip() && json.finish()) return "";
  EXPECT_FALSE(json.error().empty());
  return std::string{json.error()};
}

TEST(Json, ValuesOfEveryKind) {
  for (const auto* text : {"null", "true", "false", "0", "-0", "1.5e+3", "\"\"", "[]", "{}", " [1, \"a\", {\"b\": [null]}] \r\n\t",
                           "\"\\u00e9\\ud83d\\ude00\\n\\/\"", "\"\xC3\xA9\xF0\x9F\x98\x80\""}) {
    EXPECT_EQ(fault_of(text), "") << text;
  }
}

TEST(Json, WhatIsNoJson) {
  for (const std::string text : {"",
                                 " ",
                                 "nul",
                                 "True",
                                 "01",
                                 "1.",
                                 ".5",
                                 "+1",
                                 "1e",
                                 "0x1",
                                 "'a'",
                                 "\"a",
                                 "\"\\x\"",
                                 "\"\\u12\"",
                                 "\"\t\"",
                                 "[1,]",
                                 "[1 2]",
                                 "{\"a\"}",
                                 "{\"a\":}",
                                 "{\"a\":1,}",
                                 "{a:1}",
                                 "{\"a\":1 \"b\":2}",
                                 "[",
                                 "{",
                                 "]",
                                 "1 2",
                                 "{}x",
                                 "\"\\ud83d\"",
                                 "\"\\ud83d\\u0041\"",
                                 "\"\\ude00\"",
                                 "\"\xC3\"",
                                 "\"\xC0\x80\"",
                                 "\"\xED\xA0\x80\"",
                                 "\"\xF4\x90\x80\x80\"",
                                 "\"\xE0\x80\xAF\"",
                                 "\xEF\xBB\xBF{}",
                                 "NaN",
                                 "// a\n1"}) {
    EXPECT_EQ(fault_of(text), "invalid JSON") << text;
  }
  EXPECT_EQ(fault_of(std::string{"\"a\0b\"", 5}), "invalid JSON");
}

TEST(Json, D47f_AKeyTwiceIsRefusedHoweverItIsWritten) {
  EXPECT_EQ(fault_of(R"({"a":1,"a":1})"), "duplicate key in JSON object");
  EXPECT_EQ(fault_of(R"({"a":1,"\u0061":2})"), "duplicate key in JSON object");
  EXPECT_EQ(fault_of(R"([{"x":{"k":1,"b":[],"k":2}}])"), "duplicate key in JSON object");
  EXPECT_EQ(fault_of(R"({"a":{"a":{"a":1}},"b":{"a":1}})"), "") << "the same key in another object is another key";
}

TEST(Json, BoundsHoldAtTheirBorder) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(fault_of(nested(kMaxJsonDepth)), "");
  EXPECT_EQ(fault_of(nested(kMaxJsonDepth + 1)), "JSON is nested too deeply");
  EXPECT_EQ(fault_of(std::string(1'000'000, '[')), "JSON is nested too deeply");
  const auto object = [](std::size_t keys) {
    std::string out = "{";
    for (std::size_t i = 0; i < keys; ++i) out += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
    return out + "}";
  };
  EXPECT_EQ(fault_of(object(kMaxJsonKeys)), "");
  EXPECT_EQ(fault_of(object(kMaxJsonKeys + 1)), "JSON object has too many keys");
  const auto key = [](std::size_t bytes) { return "{\"" + std::string(bytes, 'k') + "\":0}"; };
  EXPECT_EQ(fault_of(key(kMaxJsonKeyBytes)), "");
  EXPECT_EQ(fault_of(key(kMaxJsonKeyBytes + 1)), "JSON object has too many keys");
  // Objects inside each other count together, so that a small text cannot hold much memory.
  std::string open;
  for (std::size_t level = 0; level < kMaxJsonOpenKeys / kMaxJsonKeys + 1; ++level) {
    auto one = object(kMaxJsonKeys - 1);
    one.back() = ',';
    open += one + "\"next\":";
  }
  EXPECT_EQ(fault_of(open), "JSON object has too many keys");
}

TEST(Json, MembersElementsAndRawText) {
  JsonReader json{R"( {"a": "x\ty", "list": [1, 2], "raw": {"k" : 1} } )"};
  std::string a;
  std::vector<std::string> list;
  std::string_view raw;
  ASSERT_TRUE(json.object([&](std::string_view key) {
    if (key == "a") return json.string(a);
    if (key == "raw") return json.raw(raw);
    return json.array([&] {
      std::string_view item;
      const bool ok = json.peek() == JsonKind::number && json.raw(item);
      list.emplace_back(item);
      return ok;
    });
  }));
  EXPECT_TRUE(json.finish());
  EXPECT_EQ(a, "x\ty");
  EXPECT_EQ(list, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(raw, R"({"k" : 1})");
}

TEST(Json, AnErrorEndsTheReading) {
  JsonReader json{R"({"a":tru, "b":1})"};
  EXPECT_FALSE(json.skip());
  EXPECT_EQ(json.peek(), JsonKind::none);
  EXPECT_FALSE(json.skip());
  EXPECT_FALSE(json.finish());
}

}  // namespace
}  // namespace openshell::policy
