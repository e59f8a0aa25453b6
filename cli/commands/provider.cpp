#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/delete_each.hpp"
#include "cli/key_value.hpp"
#include "cli/provider_readiness.hpp"
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
  json::object expirations;
  for (const auto& key : sorted_keys(provider.credential_expiration_times()))
    expirations[key] = epoch_ms(provider.credential_expiration_times().at(key));
  if (!expirations.empty()) out["credential_expires_at_ms"] = std::move(expirations);
  if (!config.empty()) out["config_keys"] = json::array(config.begin(), config.end());
  return out;
}

struct CreateOptions {
  std::string name, type;
  std::vector<std::string> credentials, config;
  bool from_existing = false, runtime_credentials = false, global_profile = false;
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

absl::Status fill_config(const std::vector<std::string>& given, datamodel::v1::Provider& provider) {
  for (const auto& each : given) {
    auto pair = key_value(each);
    if (!pair) return absl::InvalidArgumentError(absl::StrCat("--config expects KEY=VALUE, got '", each, "'"));
    (*provider.mutable_config())[pair->first] = std::move(pair->second);
  }
  return absl::OkStatus();
}

/// The profile of a type; the gateway's profiles are the only list of types.
absl::StatusOr<v1::ProviderProfile> profile_of(Context& context, GatewayClient& client, const std::string& type, bool global) {
  auto ask = global ? v1::GetProviderProfileRequest{} : context.scoped<v1::GetProviderProfileRequest>();
  ask.set_id(type);
  auto answer = client.get_provider_profile(ask);
  if (answer.ok()) return answer->profile();
  if (absl::IsNotFound(answer.status()))
    return absl::NotFoundError(
        absl::StrCat("provider profile '", type, "' not found; import a matching profile before using this provider type"));
  if (absl::IsPermissionDenied(answer.status()))
    return absl::PermissionDeniedError(
        "provider profile lookup denied (PERMISSION_DENIED): verify workspace membership and required permissions");
  return answer.status();
}

/// What this environment holds of the credentials that the profile names for discovery; other variables are never read. Given values win.
absl::Status discover(const v1::ProviderProfile& profile, const std::string& type, datamodel::v1::Provider& provider) {
  bool found = false;
  for (const auto& credential : profile.credentials()) {
    const auto& names = profile.discovery().credentials();
    if (std::find(names.begin(), names.end(), credential.name()) == names.end()) continue;
    for (const auto& variable : credential.env_vars()) {
      const char* value = std::getenv(variable.c_str());
      if (value == nullptr || *value == '\0') continue;
      found = true;
      provider.mutable_credentials()->insert({variable, value});
      break;
    }
  }
  if (found || !provider.credentials().empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no existing local credentials/config found for provider type '", type, "'"));
}

bool comes_at_runtime(const v1::ProviderProfile& profile) {
  const auto later = [&](const v1::ProviderProfileCredential& credential) {
    using namespace v1;
    const auto strategy = credential.refresh().strategy();
    return credential.has_token_grant() ||
           (credential.has_refresh() && strategy != PROVIDER_CREDENTIAL_REFRESH_STRATEGY_UNSPECIFIED &&
            strategy != PROVIDER_CREDENTIAL_REFRESH_STRATEGY_STATIC && strategy != PROVIDER_CREDENTIAL_REFRESH_STRATEGY_EXTERNAL);
  };
  const auto& all = profile.credentials();
  return std::any_of(all.begin(), all.end(), later) &&
         std::all_of(all.begin(), all.end(), [&](const auto& one) { return !one.required() || later(one); });
}

absl::StatusOr<int> create(Context& context, const CreateOptions& options) {
  auto request = context.scoped<v1::CreateProviderRequest>();
  auto& provider = *request.mutable_provider();
  provider.mutable_metadata()->set_name(options.name);
  if (auto filled = fill_credentials(options.credentials, provider); !filled.ok()) return filled;
  if (auto filled = fill_config(options.config, provider); !filled.ok()) return filled;
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto profile = profile_of(context, **client, options.type, options.global_profile);
  if (!profile.ok()) return profile.status();
  provider.set_type(profile->id());
  if (!options.global_profile) provider.set_profile_workspace(context.flags().workspace);
  if (options.from_existing) {
    if (auto found = discover(*profile, options.type, provider); !found.ok()) return found;
  }
  if (options.runtime_credentials && !comes_at_runtime(*profile))
    return absl::InvalidArgumentError(
        "--runtime-credentials is only valid for provider profiles whose required credentials are resolved at runtime");
  const auto required = [](const auto& credential) { return credential.required(); };
  const bool needed = profile->id() == "generic" || std::any_of(profile->credentials().begin(), profile->credentials().end(), required);
  if (provider.credentials().empty() && needed && !options.runtime_credentials) {
    return absl::InvalidArgumentError(
        absl::StrCat("no credentials resolved for provider type '", options.type, "'. Give them with --credential KEY[=VALUE]"));
  }
  if (auto created = (*client)->create_provider(request); !created.ok()) return created.status();
  print(absl::StrCat(mark(kDone), " Created provider ", options.name));
  return 0;
}

struct UpdateOptions {
  std::string name;
  std::vector<std::string> credentials, config, expirations;
  bool from_existing = false, document = false;
  ReadinessOptions readiness;
};

/// `KEY=<epoch milliseconds or RFC 3339>`; 0 takes the expiration away.
absl::Status fill_expirations(const std::vector<std::string>& given, v1::UpdateProviderRequest& request) {
  for (const auto& each : given) {
    const auto pair = key_value(each);
    if (!pair) return absl::InvalidArgumentError("--credential-expires-at expects KEY=TIMESTAMP");
    const auto& [key, text] = *pair;
    const auto wrong = [&](const char* what) {
      return absl::InvalidArgumentError(absl::StrCat("--credential-expires-at value for '", key, "' ", what));
    };
    if (text.empty()) return wrong("cannot be empty");
    std::int64_t ms = 0;
    absl::Time time;
    std::string fault;
    if (absl::SimpleAtoi(text, &ms)) {
      if (ms < 0) return wrong("must be greater than or equal to 0");
    } else if (absl::ParseTime(absl::RFC3339_full, text, &time, &fault)) {
      ms = absl::ToUnixMillis(time);
      if (ms < 0) return wrong("must be greater than or equal to 0");
    } else {
      return wrong("must be a Unix epoch millisecond timestamp or RFC3339 timestamp");
    }
    if (ms == 0) {
      request.add_clear_credential_expiration_keys(key);
      continue;
    }
    auto& at = (*request.mutable_credential_expiration_times())[key];
    at.set_seconds(ms / 1000);
    at.set_nanos(static_cast<std::int32_t>(ms % 1000) * 1'000'000);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> update(Context& context, const UpdateOptions& options) {
  auto request = context.scoped<v1::UpdateProviderRequest>();
  auto& provider = *request.mutable_provider();
  provider.mutable_metadata()->set_name(options.name);
  if (auto filled = fill_credentials(options.credentials, provider); !filled.ok()) return filled;
  if (auto filled = fill_config(options.config, provider); !filled.ok()) return filled;
  if (auto filled = fill_expirations(options.expirations, request); !filled.ok()) return filled;
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (options.from_existing) {
    auto ask = context.scoped<v1::GetProviderRequest>();
    ask.set_name(options.name);
    auto stored = (*client)->get_provider(ask);
    if (!stored.ok()) return stored.status();
    auto profile = profile_of(context, **client, stored->provider().type(), stored->provider().profile_workspace().empty());
    if (!profile.ok()) return profile.status();
    if (auto found = discover(*profile, profile->id(), provider); !found.ok()) return found;
  }
  auto answer = (*client)->update_provider(request);
  if (!answer.ok()) return answer.status();
  const auto line = absl::StrCat(mark(kDone), " Updated provider ", options.name);
  options.document ? note(line) : print(line);
  if (!options.document && !options.readiness.wait) return 0;
  std::vector<ReadinessTarget> targets;
  for (const auto& receipt : answer->target_receipts()) targets.push_back(target_of(receipt));
  return report_readiness(**client, answer->mutation_id(), std::move(targets), options.readiness);
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
  return delete_each(names, "provider", "providers", [&](const std::string& name) {
    auto request = context.scoped<v1::DeleteProviderRequest>();
    request.set_name(name);
    request.set_allow_missing(true);
    auto answer = (*client)->delete_provider(request);
    if (!answer.ok()) return answer.status();
    const bool absent = answer->outcome() == v1::DELETION_OUTCOME_ALREADY_ABSENT;
    print(absent ? absl::StrCat(mark(kWarning), " Provider ", name, " not found") : absl::StrCat(mark(kDone), " Deleted provider ", name));
    return absl::OkStatus();
  });
}

}  // namespace

void add_provider_commands(CLI::App& root, Action& chosen) {
  auto* provider = root.add_subcommand("provider", "Credentials that stay on the gateway");
  {
    auto o = std::make_shared<CreateOptions>();
    auto* command = provider->add_subcommand("create", "Create a provider");
    command->add_option("--name", o->name)->required();
    command->add_option("--type", o->type, "generic, or the id of a provider profile")->required();
    auto* given = command->add_option("--credential", o->credentials, "KEY reads the variable KEY, KEY=VALUE gives it; repeatable")
                      ->take_all()
                      ->allow_extra_args(false);
    auto* existing = command->add_flag("--from-existing", o->from_existing, "From the variables that the profile names for discovery");
    auto* later = command->add_flag("--runtime-credentials", o->runtime_credentials, "None now: they are resolved at run time");
    later->excludes(given)->excludes(existing);
    command->add_flag("--global-profile", o->global_profile, "The platform's profile, whatever the workspace has");
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
    auto o = std::make_shared<UpdateOptions>();
    auto* command = provider->add_subcommand("update", "Change credentials and settings of a provider");
    command->add_option("name", o->name)->required();
    command->add_option("--credential", o->credentials, "KEY or KEY=VALUE; `KEY=` takes it away; repeatable")
        ->take_all()
        ->allow_extra_args(false);
    command->add_flag("--from-existing", o->from_existing, "From the variables that the profile names for discovery");
    command->add_option("--config", o->config, "KEY=VALUE; `KEY=` takes it away; repeatable")->take_all()->allow_extra_args(false);
    command->add_option("--credential-expires-at", o->expirations, "KEY=epoch milliseconds or RFC 3339; 0: never; repeatable")
        ->take_all()
        ->allow_extra_args(false);
    command->add_flag("--wait", o->readiness.wait, "Until every sandbox that has it runs with the change");
    command->add_option("--timeout", o->readiness.timeout_seconds, "Seconds that --wait takes at most")->check(CLI::Range(1, 3600));
    add_output_option(*command, o->readiness.format);
    auto* output = command->get_option("--output");
    command->callback([&chosen, o, output] {
      o->document = output->count() > 0;
      chosen = [o](Context& c) { return update(c, *o); };
    });
  }
  add_profile_commands(*provider, chosen);
  {
    auto names = std::make_shared<std::vector<std::string>>();
    auto* command = provider->add_subcommand("delete", "Delete providers");
    command->add_option("names", *names)->required();
    command->callback([&chosen, names] { chosen = [names](Context& c) { return remove(c, *names); }; });
  }
}

}  // namespace openshell::cli
