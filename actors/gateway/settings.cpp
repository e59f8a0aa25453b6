#include "actors/gateway/settings.hpp"

#include <algorithm>
#include <numeric>
#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

namespace sb = openshell::sandbox::v1;

const std::vector<SettingKey>& keys() {
  static const std::vector<SettingKey> all = {
      {"agent_policy_proposals_enabled", SettingType::boolean, {}},
      {"network.denied_http", SettingType::text, {"refuse", "explain"}},
      {"ocsf_json_enabled", SettingType::boolean, {}},
      {"ocsf_schema_version", SettingType::text, {}},
      {"proposal_approval_mode", SettingType::text, {"manual", "auto"}},
  };
  return all;
}

const SettingKey* find(std::string_view key) {
  for (const auto& known : keys()) {
    if (known.name == key) return &known;
  }
  return nullptr;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string join(const std::vector<std::string_view>& words) {
  std::string out;
  for (auto word : words) out += cat(out.empty() ? "" : ", ", word);
  return out;
}

bool same(const sb::SettingValue& a, const sb::SettingValue& b) { return a.SerializeAsString() == b.SerializeAsString(); }

}  // namespace

std::span<const SettingKey> registered_settings() { return keys(); }

absl::Status check_setting_key(const std::string& key) {
  if (find(key) != nullptr) return absl::OkStatus();
  std::string text =
      cat("unknown setting key '", key.substr(0, 128), "'. Allowed keys: ",
          "ocsf_json_enabled, ocsf_schema_version, agent_policy_proposals_enabled, proposal_approval_mode, network.denied_http");
  const SettingKey* nearest = nullptr;
  std::size_t best = 4;  // further away it is no typing error any more
  for (const auto& known : keys()) {
    if (key.size() > 64) break;
    if (const auto distance = edit_distance(key, known.name); distance < best) {
      best = distance;
      nearest = &known;
    }
  }
  if (nearest != nullptr) text += cat(". Did you mean '", nearest->name, "'?");
  return absl::InvalidArgumentError(text);
}

absl::Status check_setting(const std::string& key, const sb::SettingValue& value) {
  if (auto known = check_setting_key(key); !known.ok()) return known;
  const auto& wanted = *find(key);
  if (value.value_case() == sb::SettingValue::VALUE_NOT_SET) return absl::InvalidArgumentError("setting_value.value is required");
  const auto* type = wanted.type == SettingType::boolean ? "bool" : "string";
  if (value.value_case() == sb::SettingValue::kBytesValue) {
    return absl::InvalidArgumentError(cat("setting '", key, "' expects ", type, " value; bytes are not supported for this key"));
  }
  const bool fits = wanted.type == SettingType::boolean ? value.has_bool_value() : value.has_string_value();
  if (!fits) return absl::InvalidArgumentError(cat("setting '", key, "' expects ", type, " value"));
  if (!wanted.values.empty() && std::find(wanted.values.begin(), wanted.values.end(), value.string_value()) == wanted.values.end()) {
    return absl::InvalidArgumentError(
        cat("setting '", key, "' expects one of [", join(wanted.values), "]; got '", value.string_value().substr(0, 128), "'"));
  }
  return absl::OkStatus();
}

void touch_setting(records::SettingsRecord& settings, const std::string& key, const std::string& change_id, Millis now) {
  settings.set_revision(settings.revision() + 1);
  auto& clock = (*settings.mutable_change_clocks())[key];
  clock.set_id(change_id);
  set_millis(clock.mutable_committed_time(), now);
}

bool set_setting(records::SettingsRecord& settings, const std::string& key, const sb::SettingValue& value, const std::string& change_id,
                 Millis now) {
  const auto it = settings.settings().find(key);
  if (it != settings.settings().end() && same(it->second, value)) return false;
  (*settings.mutable_settings())[key] = value;
  touch_setting(settings, key, change_id, now);
  return true;
}

bool delete_setting(records::SettingsRecord& settings, const std::string& key, const std::string& change_id, Millis now) {
  if (settings.mutable_settings()->erase(key) == 0) return false;
  touch_setting(settings, key, change_id, now);
  return true;
}

std::map<std::string, sb::EffectiveSetting> effective_settings(const records::SettingsRecord* global,
                                                               const records::SettingsRecord* sandbox) {
  std::map<std::string, sb::EffectiveSetting> out;
  for (const auto& key : keys()) {
    const std::string name{key.name};
    auto& entry = out[name];
    const auto take = [&](const records::SettingsRecord* from, sb::SettingScope scope) {
      if (from == nullptr || entry.has_value()) return;
      const auto it = from->settings().find(name);
      if (it == from->settings().end()) return;
      *entry.mutable_value() = it->second;
      entry.set_scope(scope);
    };
    take(global, sb::SETTING_SCOPE_GLOBAL);
    take(sandbox, sb::SETTING_SCOPE_SANDBOX);
  }
  return out;
}

}  // namespace openshell::gateway
