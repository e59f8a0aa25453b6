#include "actors/supervisor/settings.hpp"

#include <spdlog/spdlog.h>

namespace openshell::supervisor {
namespace {

bool flag(const Settings& settings, const char* key) {
  const auto found = settings.find(key);
  const auto* value = found == settings.end() ? nullptr : std::get_if<bool>(&found->second);
  return value != nullptr && *value;
}

constexpr const char* kUnset = "<unset>";

}  // namespace

RuntimeSettings read_settings(const Settings& settings) {
  RuntimeSettings out;
  if (const auto found = settings.find("network.denied_http"); found != settings.end()) {
    const auto* text = std::get_if<std::string>(&found->second);
    out.explain_denied_http = text != nullptr && *text == "explain";
  }
  out.agent_proposals = flag(settings, "agent_policy_proposals_enabled");
  out.ocsf_json = flag(settings, "ocsf_json_enabled");
  return out;
}

std::string render(const SettingValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  return "<bytes>";
}

void log_setting_changes(const Settings& before, const Settings& after) {
  for (const auto& [key, value] : after) {
    const auto old = before.find(key);
    if (old == before.end()) {
      spdlog::info("Setting changed [key:{} old:{} new:{}]", key, kUnset, render(value));
    } else if (old->second != value) {
      spdlog::info("Setting changed [key:{} old:{} new:{}]", key, render(old->second), render(value));
    }
  }
  for (const auto& [key, value] : before) {
    if (after.count(key) == 0) spdlog::info("Setting changed [key:{} old:{} new:{}]", key, render(value), kUnset);
  }
}

}  // namespace openshell::supervisor
