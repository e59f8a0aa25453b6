#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <map>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/settings_keys.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

struct Options {
  std::string name, key, value;
  bool global = false, yes = false, json_output = false;
};

std::string scope_name(sandbox::v1::SettingScope scope) {
  switch (scope) {
    case sandbox::v1::SETTING_SCOPE_SANDBOX:
      return "sandbox";
    case sandbox::v1::SETTING_SCOPE_GLOBAL:
      return "global";
    default:
      return "unset";
  }
}

absl::StatusOr<int> get_global(Context& context, const Options& options) {
  if (!options.name.empty()) return absl::InvalidArgumentError("settings get --global does not accept a sandbox name");
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto config = (*client)->get_gateway_config({});
  if (!config.ok()) return config.status();
  std::map<std::string, std::string> settings;
  for (const auto& [key, value] : config->settings()) settings[key] = show_setting(value);
  if (options.json_output) {
    json::object values;
    for (const auto& [key, value] : settings) values[key] = value;
    print_document(json::object{{"scope", "global"}, {"settings_revision", config->settings_revision()}, {"settings", values}},
                   Format::json);
    return 0;
  }
  print("Scope:         global");
  print(absl::StrCat("Settings Rev:  ", config->settings_revision()));
  print("Settings:");
  for (const auto& [key, value] : settings) print(absl::StrCat("  ", key, " = ", value));
  return 0;
}

absl::StatusOr<int> get(Context& context, const Options& options) {
  if (options.global) return get_global(context, options);
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<sandbox::v1::GetSandboxConfigRequest>();
  request.set_name(*name);
  auto config = (*client)->get_sandbox_config(request);
  if (!config.ok()) return config.status();
  std::map<std::string, const sandbox::v1::EffectiveSetting*> settings;
  for (const auto& [key, setting] : config->settings()) settings[key] = &setting;
  const auto* source = config->policy_source() == sandbox::v1::POLICY_SOURCE_GLOBAL ? "global" : "sandbox";
  if (options.json_output) {
    json::object values;
    for (const auto& [key, setting] : settings)
      values[key] = json::object{{"value", show_setting(setting->value())}, {"scope", scope_name(setting->scope())}};
    print_document(json::object{{"sandbox", *name},
                                {"workspace", context.flags().workspace},
                                {"config_revision", config->config_revision()},
                                {"policy_source", source},
                                {"policy_hash", config->policy_hash()},
                                {"settings", values}},
                   Format::json);
    return 0;
  }
  print("Sandbox:       " + *name);
  print(absl::StrCat("Config Rev:    ", config->config_revision()));
  print(absl::StrCat("Policy Source: ", source));
  print("Policy Hash:   " + config->policy_hash());
  print("Settings:");
  for (const auto& [key, setting] : settings)
    print(absl::StrCat("  ", key, " = ", show_setting(setting->value()), " (", scope_name(setting->scope()), ")"));
  return 0;
}

absl::StatusOr<v1::UpdateConfigRequest> make_request(Context& context, const Options& options, std::string& sandbox) {
  v1::UpdateConfigRequest request;
  if (options.global) {
    request.set_global(true);
  } else {
    auto name = context.sandbox_or_last(options.name);
    if (!name.ok()) return name.status();
    sandbox = *name;
    request = context.scoped<v1::UpdateConfigRequest>();
    request.set_sandbox(*name);
  }
  request.set_setting_key(options.key);
  return request;
}

absl::StatusOr<int> set(Context& context, const Options& options) {
  auto value = parse_setting(options.key, options.value);
  if (!value.ok()) return value.status();
  if (options.global && !options.yes)
    return absl::FailedPreconditionError("global setting updates require confirmation; pass --yes in non-interactive mode");
  std::string sandbox;
  auto request = make_request(context, options, sandbox);
  if (!request.ok()) return request.status();
  *request->mutable_setting_value() = *value;
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto answer = (*client)->update_config(*request);
  if (!answer.ok()) return answer.status();
  const auto assignment = absl::StrCat(options.key, "=", show_setting(*value));
  print(options.global ? absl::StrCat(mark(kDone), " Set global setting ", assignment, " (revision ", answer->settings_revision(), ")")
                       : absl::StrCat(mark(kDone), " Set sandbox setting ", assignment, " for ", sandbox, " (revision ",
                                      answer->settings_revision(), ")"));
  return 0;
}

absl::StatusOr<int> remove(Context& context, const Options& options) {
  if (auto known = check_setting_key(options.key); !known.ok()) return known;
  if (options.global && !options.yes)
    return absl::FailedPreconditionError("global setting deletes require confirmation; pass --yes in non-interactive mode");
  std::string sandbox;
  auto request = make_request(context, options, sandbox);
  if (!request.ok()) return request.status();
  request->set_delete_setting(true);
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto answer = (*client)->update_config(*request);
  if (!answer.ok()) return answer.status();
  const auto what =
      options.global ? absl::StrCat("global setting ", options.key) : absl::StrCat("sandbox setting ", options.key, " for ", sandbox);
  if (answer->deleted()) {
    print(absl::StrCat(mark(kDone), " Deleted ", what, " (revision ", answer->settings_revision(), ")"));
  } else {
    print(absl::StrCat(mark(kWarning), " ", what, " not found"));
  }
  return 0;
}

}  // namespace

void add_settings_commands(CLI::App& root, Action& chosen) {
  auto* settings = root.add_subcommand("settings", "Settings of the gateway and of sandboxes");
  const auto add = [&](const char* verb, const char* text, auto run) {
    auto o = std::make_shared<Options>();
    auto* command = settings->add_subcommand(verb, text);
    command->add_option("name", o->name, "Default: the sandbox last used");
    command->add_flag("--global", o->global);
    command->callback([&chosen, o, run] { chosen = [o, run](Context& c) { return run(c, *o); }; });
    return std::pair{command, o};
  };
  auto [show, show_options] = add("get", "Show the settings in effect", get);
  show->add_flag("--json", show_options->json_output);
  auto [change, change_options] = add("set", "Change a setting", set);
  change->add_option("--key", change_options->key)->required();
  change->add_option("--value", change_options->value)->required();
  change->add_flag("--yes", change_options->yes);
  auto [drop, drop_options] = add("delete", "Delete a setting", remove);
  drop->add_option("--key", drop_options->key)->required();
  drop->add_flag("--yes", drop_options->yes);
}

}  // namespace openshell::cli
