#include "cli/settings_keys.hpp"

#include <gtest/gtest.h>

#include "sandbox.pb.h"

namespace openshell::cli {
namespace {

TEST(Settings, TextBecomesTheTypeOfTheKey) {
  for (const char* yes : {"1", "true", "YES", " on ", "y"}) EXPECT_TRUE(parse_setting("ocsf_json_enabled", yes)->bool_value()) << yes;
  for (const char* no : {"0", "False", "off", "n"}) {
    const auto value = parse_setting("ocsf_json_enabled", no);
    ASSERT_TRUE(value.ok()) << no;
    EXPECT_TRUE(value->has_bool_value());
    EXPECT_FALSE(value->bool_value());
  }
  EXPECT_EQ(parse_setting("network.denied_http", "explain")->string_value(), "explain");
}

TEST(Settings, AWrongKeyNamesTheNearestAndAWrongValueTheRightOnes) {
  const auto key = parse_setting("ocsf_json_enable", "1").status();
  EXPECT_EQ(key.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string{key.message()}.find("Did you mean 'ocsf_json_enabled'?"), std::string::npos) << key;
  const auto value = parse_setting("proposal_approval_mode", "never").status();
  EXPECT_NE(std::string{value.message()}.find("expected one of: manual, auto"), std::string::npos) << value;
  EXPECT_FALSE(parse_setting("ocsf_json_enabled", "maybe").ok());
}

TEST(Settings, WhatIsUnsetOrBytesIsShownWithoutContent) {
  sandbox::v1::SettingValue value;
  EXPECT_EQ(show_setting(value), "<unset>");
  value.set_bytes_value("secret");
  EXPECT_EQ(show_setting(value), "<bytes:6>");
}

}  // namespace
}  // namespace openshell::cli
