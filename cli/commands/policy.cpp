#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <map>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/policy_wait.hpp"
#include "cli/policy_file.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"
#include "policy/serialize.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t kShownError = 40;

std::string status_name(v1::PolicyStatus status) {
  switch (status) {
    case v1::POLICY_STATUS_PENDING:
      return "Pending";
    case v1::POLICY_STATUS_LOADED:
      return "Loaded";
    case v1::POLICY_STATUS_FAILED:
      return "Failed";
    case v1::POLICY_STATUS_SUPERSEDED:
      return "Superseded";
    default:
      return "Unspecified";
  }
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

json::object revision_document(const v1::SandboxPolicyRevision& revision, const std::string& sandbox) {
  json::object out{{"scope", sandbox.empty() ? "global" : "sandbox"},
                   {"version", revision.version()},
                   {"hash", revision.policy_hash()},
                   {"status", lower(status_name(revision.status()))}};
  if (!sandbox.empty()) out["sandbox"] = sandbox;
  if (revision.has_created_time()) out["created_at_ms"] = epoch_ms(revision.created_time());
  if (revision.has_loaded_time()) out["loaded_at_ms"] = epoch_ms(revision.loaded_time());
  if (!revision.load_error().empty()) out["load_error"] = revision.load_error();
  if (!revision.provenance().empty()) {
    json::object provenance;
    for (const auto& [key, value] : revision.provenance()) provenance[key] = value;
    out["provenance"] = provenance;
  }
  return out;
}

// ---- set ----

struct SetOptions {
  std::string name, file;
  bool wait = false, global = false, yes = false;
  int timeout = 60;
};

absl::StatusOr<int> set_global(Context& context, const SetOptions& options) {
  if (options.wait)
    return absl::InvalidArgumentError("--wait is not supported for global policies; global policies are effective immediately");
  if (!options.yes) return absl::FailedPreconditionError("global setting updates require confirmation; pass --yes in non-interactive mode");
  auto policy = load_policy_file(options.file);
  if (!policy.ok()) return policy.status();
  v1::UpdateConfigRequest request;
  *request.mutable_policy() = **policy;
  request.set_global(true);
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto answer = (*client)->update_config(request);
  if (!answer.ok()) return answer.status();
  note(absl::StrCat(mark(kDone), " Global policy configured (hash: ", short_hash(answer->policy_hash()),
                    ", settings revision: ", answer->settings_revision(), ")"));
  return 0;
}

absl::StatusOr<int> set(Context& context, const SetOptions& options) {
  if (options.global) return set_global(context, options);
  auto policy = load_policy_file(options.file);
  if (!policy.ok()) return policy.status();
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::UpdateConfigRequest>();
  *request.mutable_policy() = **policy;
  return submit_policy(context, **client, *name, std::move(request), options.wait ? std::optional{options.timeout} : std::nullopt);
}

// ---- get ----

struct GetOptions {
  std::string name;
  std::uint32_t revision = 0;
  bool full = false, base = false, global = false;
  Format format = Format::table;
};

/// The policy without the entries that provider profiles contributed.
sandbox::v1::SandboxPolicy without_provider_layers(sandbox::v1::SandboxPolicy policy) {
  std::vector<std::string> layers;
  for (const auto& [key, rule] : policy.network_policies()) {
    if (key.starts_with("_provider_")) layers.push_back(key);
  }
  for (const auto& key : layers) policy.mutable_network_policies()->erase(key);
  return policy;
}

void print_metadata(std::uint32_t version, const std::string& hash, const std::string& status) {
  print(absl::StrCat("Version:      ", version));
  print("Hash:         " + hash);
  print("Status:       " + status);
}

absl::StatusOr<int> get_effective(Context& context, GatewayClient& client, const GetOptions& options, const std::string& name) {
  auto request = context.scoped<sandbox::v1::GetSandboxConfigRequest>();
  request.set_name(name);
  auto config = client.get_sandbox_config(request);
  if (!config.ok()) return config.status();
  if (!config->has_policy()) return absl::NotFoundError(absl::StrCat("no active policy configured for sandbox '", name, "'"));
  const auto shown = options.base ? without_provider_layers(config->policy()) : config->policy();
  const bool global = config->policy_source() == sandbox::v1::POLICY_SOURCE_GLOBAL;
  const auto* source = global ? "global" : config->policy_source() == sandbox::v1::POLICY_SOURCE_SANDBOX ? "sandbox" : "unspecified";
  if (options.format != Format::table) {
    json::object document{{"scope", "sandbox"},
                          {"sandbox", name},
                          {"version", config->version()},
                          {"active_version", config->version()},
                          {"hash", config->policy_hash()},
                          {"status", "effective"},
                          {"config_revision", config->config_revision()},
                          {"policy_source", source}};
    if (global) document["global_policy_version"] = config->global_policy_version();
    if (options.full || options.base) document["policy"] = policy_document(shown);
    print_document(document, options.format);
    return 0;
  }
  print_metadata(config->version(), config->policy_hash(), "Effective");
  print(absl::StrCat("Source:       ", source));
  print(absl::StrCat("Config rev:   ", config->config_revision()));
  if (global) print(absl::StrCat("Global:       ", config->global_policy_version()));
  if (options.full || options.base) {
    auto text = policy::to_yaml(shown);
    if (!text.ok()) return text.status();
    print(absl::StrCat("---\n", *text));
  }
  return 0;
}

absl::StatusOr<int> get(Context& context, const GetOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  std::string name;
  v1::GetSandboxPolicyStatusRequest request;
  if (options.global) {
    request.set_global(true);
  } else {
    auto found = context.sandbox_or_last(options.name);
    if (!found.ok()) return found.status();
    name = *found;
    if (options.revision == 0) return get_effective(context, **client, options, name);
    request = context.scoped<v1::GetSandboxPolicyStatusRequest>();
    request.set_sandbox(name);
  }
  request.set_version(options.revision);
  auto answer = (*client)->get_policy_status(request);
  if (!answer.ok()) return answer.status();
  if (!answer->has_revision() || answer->revision().version() == 0) {
    note(name.empty() ? "No global policy history found" : absl::StrCat("No policy history found for sandbox '", name, "'"));
    return 0;
  }
  const auto& revision = answer->revision();
  const auto shown = options.base ? without_provider_layers(revision.policy()) : revision.policy();
  if (options.format != Format::table) {
    auto document = revision_document(revision, name);
    if (!name.empty()) document["active_version"] = answer->active_version();
    if (options.full || options.base) document["policy"] = revision.has_policy() ? policy_document(shown) : json::value(nullptr);
    print_document(document, options.format);
    return 0;
  }
  print_metadata(revision.version(), revision.policy_hash(), status_name(revision.status()));
  if (!name.empty()) print(absl::StrCat("Active:       ", answer->active_version()));
  if (revision.has_created_time()) print("Created:      " + show_time(revision.created_time()));
  if (revision.has_loaded_time()) print("Loaded:       " + show_time(revision.loaded_time()));
  if (!revision.load_error().empty()) print("Error:        " + revision.load_error());
  if (!options.full && !options.base) return 0;
  if (!revision.has_policy()) {
    note("Policy payload not available for this version");
    return 0;
  }
  auto text = policy::to_yaml(shown);
  if (!text.ok()) return text.status();
  print(absl::StrCat("---\n", *text));
  return 0;
}

// ---- list ----

struct ListOptions {
  std::string name, page_token;
  int page_size = 20;
  bool global = false;
  Format format = Format::table;
};

absl::StatusOr<int> list(Context& context, const ListOptions& options) {
  v1::ListSandboxPoliciesRequest request;
  std::string name;
  if (options.global) {
    request.set_global(true);
  } else {
    auto found = context.sandbox_or_last(options.name);
    if (!found.ok()) return found.status();
    name = *found;
    request = context.scoped<v1::ListSandboxPoliciesRequest>();
    request.set_sandbox(name);
  }
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto answer = (*client)->list_policies(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    json::array items;
    for (const auto& revision : answer->revisions()) items.push_back(revision_document(revision, name));
    print_document(json::object{{"revisions", items}, {"next_page_token", answer->next_page_token()}}, options.format);
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"VERSION", "HASH", "STATUS", "CREATED", "ERROR"}};
  for (const auto& revision : answer->revisions()) {
    auto error = revision.load_error();
    if (error.size() > kShownError) error = error.substr(0, kShownError) + "...";
    rows.push_back({std::to_string(revision.version()), short_hash(revision.policy_hash()), status_name(revision.status()),
                    show_time(revision.created_time()), error});
  }
  std::fputs(to_table(rows).c_str(), stdout);
  note_next_page(answer->next_page_token());
  return 0;
}

}  // namespace

void add_policy_commands(CLI::App& root, Action& chosen) {
  auto* policy = root.add_subcommand("policy", "What sandboxes may do")->alias("pol");
  {
    auto o = std::make_shared<SetOptions>();
    auto* command = policy->add_subcommand("set", "Give a sandbox a new policy");
    command->add_option("name", o->name, "Default: the sandbox last used");
    command->add_option("--policy", o->file, "Policy file, YAML or JSON")->required();
    command->add_flag("--wait", o->wait, "Until the supervisor has loaded it");
    command->add_option("--timeout", o->timeout, "Seconds to wait")->check(CLI::NonNegativeNumber);
    command->add_flag("--global", o->global, "For every sandbox, in place of its own policy");
    command->add_flag("--yes", o->yes);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return set(c, *o); }; });
  }
  add_policy_update(*policy, chosen);
  add_policy_questions(*policy, chosen);
  {
    auto o = std::make_shared<GetOptions>();
    auto* command = policy->add_subcommand("get", "Show the effective policy, or a stored revision");
    command->add_option("name", o->name, "Default: the sandbox last used");
    command->add_option("--rev", o->revision, "A stored revision; 0: the effective one");
    auto* full = command->add_flag("--full", o->full, "With the policy itself");
    command->add_flag("--base", o->base, "With the policy, without what providers contribute")->excludes(full);
    command->add_flag("--global", o->global);
    auto format = std::make_shared<std::string>("table");
    command->add_option("-o,--output", *format, "table or json")->check(CLI::IsMember({"table", "json"}));
    command->callback([&chosen, o, format] {
      o->format = *format == "json" ? Format::json : Format::table;
      chosen = [o](Context& c) { return get(c, *o); };
    });
  }
  {
    auto o = std::make_shared<ListOptions>();
    auto* command = policy->add_subcommand("list", "Revisions, newest first");
    command->add_option("name", o->name, "Default: the sandbox last used");
    add_paging(*command, o->page_size, o->page_token);
    command->add_flag("--global", o->global);
    add_output_option(*command, o->format);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return list(c, *o); }; });
  }
}

}  // namespace openshell::cli
