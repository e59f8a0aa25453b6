#include "cli/settings_keys.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <vector>

#include "policy/diagnostic.hpp"
#include "sandbox.pb.h"

namespace openshell::cli {
namespace {

struct Key {
  std::string_view name;
  bool is_bool;
  std::vector<std::string_view> words;  // what a text may be; empty: anything
};

const std::vector<Key>& keys() {
  static const std::vector<Key> all{{"ocsf_json_enabled", true, {}},
                                    {"ocsf_schema_version", false, {}},
                                    {"agent_policy_proposals_enabled", true, {}},
                                    {"proposal_approval_mode", false, {"manual", "auto"}},
                                    {"network.denied_http", false, {"refuse", "explain"}}};
  return all;
}

const Key* find(const std::string& name) {
  const auto found = std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.name == name; });
  return found == keys().end() ? nullptr : &*found;
}

}  // namespace

absl::Status check_setting_key(const std::string& key) {
  if (find(key) != nullptr) return absl::OkStatus();
  std::vector<std::string_view> names;
  std::string allowed;
  for (const auto& each : keys()) {
    names.push_back(each.name);
    allowed += (allowed.empty() ? "" : ", ") + std::string{each.name};
  }
  const std::string near{policy::nearest(key, names)};
  return absl::InvalidArgumentError(absl::StrCat("unknown setting key '", key, "'. Allowed keys: ", allowed,
                                                 near.empty() ? "" : absl::StrCat(". Did you mean '", near, "'?")));
}

absl::StatusOr<sandbox::v1::SettingValue> parse_setting(const std::string& key, const std::string& text) {
  if (auto known = check_setting_key(key); !known.ok()) return known;
  const auto& rule = *find(key);
  sandbox::v1::SettingValue value;
  if (rule.is_bool) {
    static constexpr std::array<std::string_view, 5> kTrue{"1", "true", "yes", "y", "on"}, kFalse{"0", "false", "no", "n", "off"};
    const auto word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
    const bool yes = std::find(kTrue.begin(), kTrue.end(), word) != kTrue.end();
    if (!yes && std::find(kFalse.begin(), kFalse.end(), word) == kFalse.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("invalid bool value '", text, "' for key '", key, "'; expected one of: true,false,yes,no,1,0"));
    }
    value.set_bool_value(yes);
    return value;
  }
  if (!rule.words.empty() && std::find(rule.words.begin(), rule.words.end(), text) == rule.words.end()) {
    std::string words;
    for (const auto word : rule.words) words += (words.empty() ? "" : ", ") + std::string{word};
    return absl::InvalidArgumentError(absl::StrCat("invalid value '", text, "' for key '", key, "'; expected one of: ", words));
  }
  value.set_string_value(text);
  return value;
}

std::string show_setting(const sandbox::v1::SettingValue& value) {
  switch (value.value_case()) {
    case sandbox::v1::SettingValue::kStringValue:
      return value.string_value();
    case sandbox::v1::SettingValue::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case sandbox::v1::SettingValue::kIntValue:
      return std::to_string(value.int_value());
    case sandbox::v1::SettingValue::kBytesValue:
      return absl::StrCat("<bytes:", value.bytes_value().size(), ">");
    default:
      return "<unset>";
  }
}

}  // namespace openshell::cli
