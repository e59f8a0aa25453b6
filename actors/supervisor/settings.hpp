#pragma once

#include <map>
#include <string>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

using Settings = std::map<std::string, SettingValue>;

/// The settings that this process knows, with their defaults.
struct RuntimeSettings {
  bool explain_denied_http = false;  ///< `network.denied_http` = explain; anything but that is refuse
  bool agent_proposals = false;      ///< `agent_policy_proposals_enabled`
  bool ocsf_json = false;            ///< `ocsf_json_enabled`
};
[[nodiscard]] RuntimeSettings read_settings(const Settings& settings);

/// A value for a log line; bytes are not shown.
[[nodiscard]] std::string render(const SettingValue& value);

/// `Setting changed [key:K old:O new:N]`, one line each.
void log_setting_changes(const Settings& before, const Settings& after);

}  // namespace openshell::supervisor
