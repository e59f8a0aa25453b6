// The registered settings, their types, and which scope wins. Pure.
#pragma once

#include <absl/status/status.h>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/times.hpp"
#include "records.pb.h"

namespace openshell::gateway {

namespace records = openshell::internal::records::v1;

enum class SettingType { text, boolean };

struct SettingKey {
  std::string_view name;
  SettingType type;
  std::vector<std::string_view> values;  ///< of a text; empty: any
};

/// All keys, sorted by name.
std::span<const SettingKey> registered_settings();

/// INVALID_ARGUMENT: unknown key (names the nearest one), wrong type, a value that is not one of the listed.
absl::Status check_setting_key(const std::string& key);
absl::Status check_setting(const std::string& key, const openshell::sandbox::v1::SettingValue& value);

/// Writes a key; false where it already has that value: then nothing changed, no clock either.
bool set_setting(records::SettingsRecord& settings, const std::string& key, const openshell::sandbox::v1::SettingValue& value,
                 const std::string& change_id, Millis now);
/// Deletes a key; false where it had no value.
bool delete_setting(records::SettingsRecord& settings, const std::string& key, const std::string& change_id, Millis now);
/// The clock of a key (`policy` for the global policy) and the revision; called by the two above.
void touch_setting(records::SettingsRecord& settings, const std::string& key, const std::string& change_id, Millis now);

/// Every registered key with the value that holds: global over sandbox over unset. Either may be null.
std::map<std::string, openshell::sandbox::v1::EffectiveSetting> effective_settings(const records::SettingsRecord* global,
                                                                                   const records::SettingsRecord* sandbox);

}  // namespace openshell::gateway
