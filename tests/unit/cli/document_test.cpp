#include "cli/document.hpp"

#include <google/protobuf/timestamp.pb.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace openshell::cli {
namespace {

namespace json = boost::json;

TEST(Document, JsonIsSortedIndentedAndEndsInANewline) {
  const json::value document{{"b", json::array{1, "x\"y"}}, {"a", nullptr}, {"empty", json::object{}}, {"none", json::array{}}};
  EXPECT_EQ(to_json_text(document), "{\n  \"a\": null,\n  \"b\": [\n    1,\n    \"x\\\"y\"\n  ],\n  \"empty\": {},\n  \"none\": []\n}\n");
}

TEST(Document, YamlQuotesTextSoThatNoneReadsAsAnotherType) {
  const json::value document{{"version", "1"}, {"flag", true}, {"list", json::array{"no", nullptr}}};
  EXPECT_EQ(to_yaml_text(document), "flag: true\nlist:\n  - \"no\"\n  - ~\nversion: \"1\"\n");
}

TEST(Document, TableColumnsAreSeparatedByTwoBlanksWithoutTrailingOnes) {
  EXPECT_EQ(to_table({{"NAME", "PHASE"}, {"a-long-name", "Ready"}, {"b", ""}}), "NAME         PHASE\na-long-name  Ready\nb\n");
}

TEST(Document, TimesAreUtcAndAbsentBefore1970) {
  google::protobuf::Timestamp time;
  EXPECT_EQ(show_time(time), "-");
  EXPECT_EQ(rfc3339(time), "");
  time.set_seconds(-5);
  EXPECT_EQ(show_time(time), "-");
  time.set_seconds(1'756'000'000);
  time.set_nanos(42'000'000);
  EXPECT_EQ(show_time(time), "2025-08-24 01:46:40");
  EXPECT_EQ(rfc3339(time), "2025-08-24T01:46:40.042Z");
  EXPECT_EQ(epoch_ms(time), 1'756'000'000'042);
}

}  // namespace
}  // namespace openshell::cli
