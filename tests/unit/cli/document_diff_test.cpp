#include "cli/document_diff.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace openshell::cli {
namespace {

using testing::ElementsAre;

std::vector<std::string> diff(const char* before, const char* after) {
  std::vector<std::string> out;
  for (const auto& found : differences(boost::json::parse(before), boost::json::parse(after))) {
    const auto text = [](const auto& value) { return value ? std::string(boost::json::serialize(*value)) : std::string{"-"}; };
    out.push_back(found.path + ": " + text(found.before) + " > " + text(found.after));
  }
  return out;
}

TEST(DocumentDiff, EntriesByKeyAndElementsByValueThenByPlace) {
  EXPECT_THAT(diff(R"({"a": 1, "b": [1, 2, 3]})", R"({"a": 1, "b": [3, 1, 2]})"), ElementsAre()) << "moved is not changed";
  EXPECT_THAT(diff(R"({"a": 1})", R"({"b": 2})"), ElementsAre("a: 1 > -", "b: - > 2"));
  EXPECT_THAT(diff(R"({"e": [{"port": 443, "host": "x"}]})", R"({"e": [{"port": 8443, "host": "x"}, 7]})"),
              ElementsAre("e[0].port: 443 > 8443", "e[1]: - > 7"));
  EXPECT_THAT(diff(R"({"e": [1, 2]})", R"({"e": []})"), ElementsAre("e[0]: 1 > -", "e[1]: 2 > -"));
}

}  // namespace
}  // namespace openshell::cli
