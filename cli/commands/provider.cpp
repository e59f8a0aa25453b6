#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

template <class Map>
std::vector<std::string> sorted_keys(const Map& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// Values are never part of it: only their keys are.
json::object provider_document(const datamodel::v1::Provider& provider) {
  const auto credentials = sorted_keys(provider.credentials());
  const auto config = sorted_keys(provider.config());
  json::object out{{"id", provider.metadata().id()},
                   {"name", provider.metadata().name()},
                   {"workspace", provider.metadata().workspace()},
                   {"type", provider.type()},
                   {"credential_keys", json::array(credentials.begin(), credentials.end())},
                   {"resource_version", provider.metadata().resource_version()},
                   {"created_at", show_time(provider.metadata().created_time())}};
  if (!config.empty()) out["config_keys"] = json::array(config.begin(), config.end());
  return out;
}

struct CreateOptions {
  std::string name, type;
  std::vector<std::string> credentials, config;
};

absl::Status fill_credentials(const std::vector<std::string>& given, datamodel::v1::Provider& provider) {
  for (const auto& each : given) {
    const auto equals = each.find('=');
    const auto key = each.substr(0, equals);
    if (key.empty()) return absl::InvalidArgumentError("--credential expects KEY or KEY=VALUE");
    if (equals != std::string::npos) {
      (*provider.mutable_credentials())[key] = each.substr(equals + 1);
      continue;
    }
    const char* value = std::getenv(key.c_str());
    if (value == nullptr || *value == '\0') {
      return absl::InvalidArgumentError(
          absl::StrCat("--credential ", key, " requires local env var '", key, "' to be set to a non-empty value"));
    }
    (*provider.mutable_credentials())[key] = value;
  }
  return absl::OkStatus();
}

absl::StatusOr<int> create(Context& context, const CreateOptions& options) {
  auto request = context.scoped<v1::CreateProviderRequest>();
  auto& provider = *request.mutable_provider();
  provider.mutable_metadata()->set_name(options.name);
  provider.set_type(options.type);
  if (auto filled = fill_credentials(options.credentials, provider); !filled.ok()) return filled;
  for (const auto& each : options.config) {
    const auto equals = each.find('=');
    if (equals == std::string::npos || equals == 0)
      return absl::InvalidArgumentError(absl::StrCat("--config expects KEY=VALUE, got '", each, "'"));
    (*provider.mutable_config())[each.substr(0, equals)] = each.substr(equals + 1);
  }
  if (provider.credentials().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no credentials resolved for provider type '", options.type, "'. Give them with --credential KEY[=VALUE]"));
  }
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (options.type != "generic") {  // the gateway's profiles are the only list of types
    auto ask = context.scoped<v1::GetProviderProfileRequest>();
    ask.set_id(options.type);
    if (auto profile = (*client)->get_provider_profile(ask); !profile.ok()) return profile.status();
  }
  if (auto created = (*client)->create_provider(request); !created.ok()) return created.status();
  print(absl::StrCat(mark(kDone), " Created provider ", options.name));
  return 0;
}

absl::StatusOr<int> get(Context& context, const std::string& name, Format format) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::GetProviderRequest>();
  request.set_name(name);
  auto answer = (*client)->get_provider(request);
  if (!answer.ok()) return answer.status();
  const auto& provider = answer->provider();
  if (format != Format::table) {
    print_document(provider_document(provider), format);
    return 0;
  }
  const auto keys = [](const auto& map) { return map.empty() ? std::string{"<none>"} : absl::StrJoin(sorted_keys(map), ", "); };
  print("Id: " + provider.metadata().id());
  print("Name: " + provider.metadata().name());
  print("Type: " + provider.type());
  print(absl::StrCat("Resource version: ", provider.metadata().resource_version()));
  print("Credential keys: " + keys(provider.credentials()));
  print("Config keys: " + keys(provider.config()));
  return 0;
}

struct ListOptions {
  int page_size = 100;
  std::string page_token;
  bool names = false;
  bool all_workspaces = false;
  Format format = Format::table;
};

absl::StatusOr<int> list(Context& context, const ListOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::ListProvidersRequest>(options.all_workspaces);
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  auto answer = (*client)->list_providers(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    json::array items;
    for (const auto& provider : answer->providers()) items.push_back(provider_document(provider));
    print_document(json::object{{"providers", items}, {"next_page_token", answer->next_page_token()}}, options.format);
    return 0;
  }
  if (options.names) {
    for (const auto& provider : answer->providers()) print(provider.metadata().name());
  } else if (answer->providers().empty()) {
    print("No providers found.");
  } else {
    std::vector<std::vector<std::string>> rows{{"NAME", "TYPE", "CREDENTIAL_KEYS", "CONFIG_KEYS"}};
    for (const auto& each : answer->providers()) {
      rows.push_back(
          {each.metadata().name(), each.type(), std::to_string(each.credentials().size()), std::to_string(each.config().size())});
    }
    if (options.all_workspaces) {
      rows[0].insert(rows[0].begin(), "WORKSPACE");
      for (int i = 0; i < answer->providers_size(); ++i)
        rows[i + 1].insert(rows[i + 1].begin(), answer->providers(i).metadata().workspace());
    }
    std::fputs(to_table(rows).c_str(), stdout);
  }
  note_next_page(answer->next_page_token());
  return 0;
}

absl::StatusOr<int> remove(Context& context, const std::vector<std::string>& names) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  std::vector<std::string> failed;
  for (const auto& name : names) {
    auto request = context.scoped<v1::DeleteProviderRequest>();
    request.set_name(name);
    request.set_allow_missing(true);
    auto answer = (*client)->delete_provider(request);
    if (!answer.ok()) {
      note(absl::StrCat(mark(kWarning), " Failed to delete provider ", name, ": ", describe(answer.status())));
      failed.push_back(name);
    } else if (answer->outcome() == v1::DELETION_OUTCOME_ALREADY_ABSENT) {
      print(absl::StrCat(mark(kWarning), " Provider ", name, " not found"));
    } else {
      print(absl::StrCat(mark(kDone), " Deleted provider ", name));
    }
  }
  if (failed.empty()) return 0;
  return absl::InternalError(
      absl::StrCat("failed to delete ", failed.size(), failed.size() == 1 ? " provider: " : " providers: ", absl::StrJoin(failed, ", ")));
}

}  // namespace

void add_provider_commands(CLI::App& root, Action& chosen) {
  auto* provider = root.add_subcommand("provider", "Credentials that stay on the gateway");
  {
    auto o = std::make_shared<CreateOptions>();
    auto* command = provider->add_subcommand("create", "Create a provider");
    command->add_option("--name", o->name)->required();
    command->add_option("--type", o->type, "generic, or the id of a provider profile")->required();
    command->add_option("--credential", o->credentials, "KEY reads the variable KEY, KEY=VALUE gives it; repeatable")
        ->take_all()
        ->allow_extra_args(false);
    command->add_option("--config", o->config, "KEY=VALUE; repeatable")->take_all()->allow_extra_args(false);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return create(c, *o); }; });
  }
  {
    auto name = std::make_shared<std::string>();
    auto format = std::make_shared<Format>(Format::table);
    auto* command = provider->add_subcommand("get", "Show a provider; never its values");
    command->add_option("name", *name)->required();
    add_output_option(*command, *format);
    command->callback([&chosen, name, format] { chosen = [name, format](Context& c) { return get(c, *name, *format); }; });
  }
  {
    auto o = std::make_shared<ListOptions>();
    auto* command = provider->add_subcommand("list", "List providers");
    add_paging(*command, o->page_size, o->page_token);
    command->add_flag("--names", o->names);
    command->add_flag("--all-workspaces", o->all_workspaces);
    add_output_option(*command, o->format);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return list(c, *o); }; });
  }
  {
    auto names = std::make_shared<std::vector<std::string>>();
    auto* command = provider->add_subcommand("delete", "Delete providers");
    command->add_option("names", *names)->required();
    command->callback([&chosen, names] { chosen = [names](Context& c) { return remove(c, *names); }; });
  }
}

}  // namespace openshell::cli
