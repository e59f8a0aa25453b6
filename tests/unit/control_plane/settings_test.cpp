#include "actors/gateway/settings.hpp"

#include <gtest/gtest.h>

namespace openshell::gateway {
namespace {

openshell::sandbox::v1::SettingValue text(const std::string& value) {
  openshell::sandbox::v1::SettingValue out;
  out.set_string_value(value);
  return out;
}
openshell::sandbox::v1::SettingValue flag(bool value) {
  openshell::sandbox::v1::SettingValue out;
  out.set_bool_value(value);
  return out;
}

TEST(Settings, GW_UnknownKeysNameTheNearestAndValuesAreChecked) {
  EXPECT_NE(std::string{check_setting_key("network.denied_htp").message()}.find("Did you mean 'network.denied_http'?"), std::string::npos);
  EXPECT_EQ(std::string{check_setting_key("providers_v2_enabled").message()}.find("Did you mean"), std::string::npos);
  EXPECT_EQ(check_setting("proposal_approval_mode", text("yes")).message(),
            "setting 'proposal_approval_mode' expects one of [manual, auto]; got 'yes'");
  EXPECT_EQ(check_setting("ocsf_json_enabled", text("true")).message(), "setting 'ocsf_json_enabled' expects bool value");
  EXPECT_TRUE(check_setting("network.denied_http", text("explain")).ok());
  openshell::sandbox::v1::SettingValue bytes;
  bytes.set_bytes_value("x");
  EXPECT_EQ(check_setting("ocsf_json_enabled", bytes).message(),
            "setting 'ocsf_json_enabled' expects bool value; bytes are not supported for this key");
}

TEST(Settings, GW_ASaveThatChangesNothingTouchesNoClock) {
  records::SettingsRecord settings;
  EXPECT_TRUE(set_setting(settings, "ocsf_json_enabled", flag(true), "a", 1));
  EXPECT_FALSE(set_setting(settings, "ocsf_json_enabled", flag(true), "b", 2));
  EXPECT_EQ(settings.revision(), 1U);
  EXPECT_EQ(settings.change_clocks().at("ocsf_json_enabled").id(), "a");
  EXPECT_TRUE(delete_setting(settings, "ocsf_json_enabled", "c", 3));
  EXPECT_FALSE(delete_setting(settings, "ocsf_json_enabled", "d", 4));
  EXPECT_EQ(settings.change_clocks().at("ocsf_json_enabled").id(), "c") << "the clock stays after the value is gone";
}

TEST(Settings, GW_GlobalBeatsSandboxBeatsUnset) {
  records::SettingsRecord global, own;
  set_setting(own, "network.denied_http", text("explain"), "a", 1);
  set_setting(own, "ocsf_json_enabled", flag(true), "b", 1);
  set_setting(global, "ocsf_json_enabled", flag(false), "c", 1);
  const auto out = effective_settings(&global, &own);
  EXPECT_EQ(out.size(), 5U);
  EXPECT_EQ(out.at("network.denied_http").scope(), openshell::sandbox::v1::SETTING_SCOPE_SANDBOX);
  EXPECT_EQ(out.at("ocsf_json_enabled").scope(), openshell::sandbox::v1::SETTING_SCOPE_GLOBAL);
  EXPECT_FALSE(out.at("ocsf_json_enabled").value().bool_value());
  EXPECT_FALSE(out.at("ocsf_schema_version").has_value());
}

}  // namespace
}  // namespace openshell::gateway
