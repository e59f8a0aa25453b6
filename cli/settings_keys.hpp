#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace openshell::sandbox::v1 {
class SettingValue;
}

namespace openshell::cli {

/// The value of a registered setting from its text. INVALID_ARGUMENT for a key that is not registered (naming the nearest one that is) and
/// for a value that the key does not take.
absl::StatusOr<sandbox::v1::SettingValue> parse_setting(const std::string& key, const std::string& text);
/// OK for a registered key.
absl::Status check_setting_key(const std::string& key);
std::string show_setting(const sandbox::v1::SettingValue& value);

}  // namespace openshell::cli
