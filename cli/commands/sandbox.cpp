#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <map>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/delete_each.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"
#include "policy/serialize.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;

constexpr int kDeleteAllPage = 1'000;

// ---- list ----

struct ListOptions {
  int page_size = 100;
  std::string page_token, selector;
  bool ids = false, names = false, all_workspaces = false;
  Format format = Format::table;
};

void print_sandbox_table(const v1::ListSandboxesResponse& answer, const ListOptions& options) {
  if (answer.sandboxes().empty()) {
    if (!options.ids && !options.names) print("No sandboxes found.");
    return;
  }
  std::vector<std::vector<std::string>> rows{{"NAME", "CREATED", "PHASE"}};
  if (options.all_workspaces) rows[0].insert(rows[0].begin(), "WORKSPACE");
  for (const auto& sandbox : answer.sandboxes()) {
    const auto& meta = sandbox.metadata();
    if (options.ids) {
      print(meta.id());
    } else if (options.names) {
      print(options.all_workspaces ? meta.workspace() + "/" + meta.name() : meta.name());
    } else {
      rows.push_back({meta.name(), show_time(meta.created_time()), phase_name(sandbox.status().phase())});
      if (options.all_workspaces) rows.back().insert(rows.back().begin(), meta.workspace());
    }
  }
  if (rows.size() > 1) std::fputs(to_table(rows).c_str(), stdout);
}

absl::StatusOr<int> list(Context& context, const ListOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::ListSandboxesRequest>(options.all_workspaces);
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  request.set_label_selector(options.selector);
  auto answer = (*client)->list_sandboxes(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    json::array items;
    for (const auto& sandbox : answer->sandboxes()) items.push_back(sandbox_document(sandbox));
    print_document(json::object{{"sandboxes", items}, {"next_page_token", answer->next_page_token()}}, options.format);
    return 0;
  }
  print_sandbox_table(*answer, options);
  note_next_page(answer->next_page_token());
  return 0;
}

// ---- get ----

struct GetOptions {
  std::string name;
  bool policy_only = false;
  Format format = Format::table;
};

std::string restart_policy_name(v1::SandboxRestartPolicy policy) {
  switch (policy) {
    case v1::SANDBOX_RESTART_POLICY_ON_FAILURE:
      return "on-failure";
    case v1::SANDBOX_RESTART_POLICY_ALWAYS:
      return "always";
    default:
      return "never";
  }
}

/// The effective configuration's part of `sandbox get -o json`.
void add_configuration(json::object& document, const sandbox::v1::GetSandboxConfigResponse& config) {
  const bool global = config.policy_source() == sandbox::v1::POLICY_SOURCE_GLOBAL;
  const auto revision = global && config.global_policy_version() > 0 ? config.global_policy_version() : config.version();
  document["policy_source"] = global ? "global" : "sandbox";
  document["revision"] = revision == 0 ? json::value(nullptr) : json::value(revision);
  document["policy"] = config.has_policy() ? policy_document(config.policy()) : json::value(nullptr);
}

void add_lifecycle(json::object& document, const v1::Sandbox& sandbox) {
  const auto& status = sandbox.status();
  document["restart_policy"] = restart_policy_name(sandbox.spec().restart_policy());
  document["main_process_instance_id"] = status.main_process_instance_id();
  document["restart_count"] = status.restart_count();
  document["next_restart_at_ms"] =
      status.has_next_restart_time() ? json::value(epoch_ms(status.next_restart_time())) : json::value(nullptr);
  document["main_process_started_at_ms"] =
      status.has_main_process_started_time() ? json::value(epoch_ms(status.main_process_started_time())) : json::value(nullptr);
}

void print_labels(const char* title, const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.empty()) return;
  print(absl::StrCat("  ", title, ":"));
  for (const auto& [key, value] : std::map<std::string, std::string>(labels.begin(), labels.end()))
    print(absl::StrCat("    ", key, ": ", value));
}

void print_sandbox(const v1::Sandbox& sandbox) {
  const auto& meta = sandbox.metadata();
  const auto& status = sandbox.status();
  print("Sandbox:");
  print("  Id: " + meta.id());
  print("  Name: " + meta.name());
  print("  Phase: " + phase_name(status.phase()));
  for (const auto& condition : status.conditions()) {
    if (condition.type().ends_with("ConfigurationReady") && condition.status() == "False")
      print("  Configuration: " + condition.reason() + ": " + condition.message());
  }
  if (status.has_exit_code()) print(absl::StrCat("  Exit Code: ", status.exit_code()));
  print(absl::StrCat("  Resource version: ", meta.resource_version()));
  print("  Restart policy: " + restart_policy_name(sandbox.spec().restart_policy()));
  if (!status.main_process_instance_id().empty()) print("  Main process instance: " + status.main_process_instance_id());
  print(absl::StrCat("  Restart count: ", status.restart_count()));
  print_labels("Labels", meta.labels());
  print_labels("Annotations", meta.annotations());
  if (!status.conditions().empty()) print("  Conditions:");
  for (const auto& condition : status.conditions()) {
    print(absl::StrCat("    - ", condition.type(), ": ", condition.status(), " (", condition.reason(), ") - ", condition.message()));
    print("      Last transition: " + show_time(condition.transition_time()));
  }
}

absl::StatusOr<int> get(Context& context, const GetOptions& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::GetSandboxRequest>();
  request.set_name(*name);
  auto answer = (*client)->get_sandbox(request);
  if (!answer.ok()) return answer.status();
  auto ask = context.scoped<sandbox::v1::GetSandboxConfigRequest>();
  ask.set_name(*name);
  auto config = (*client)->get_sandbox_config(ask);
  const auto& found = answer->sandbox();
  // A sandbox whose configuration was rejected must stay inspectable.
  if (!config.ok() && (options.policy_only || found.status().configuration_admission().error().empty())) return config.status();
  if (options.policy_only) {
    if (!config->has_policy()) return absl::NotFoundError("no active policy configured for this sandbox");
    auto text = policy::to_yaml(config->policy());
    if (!text.ok()) return text.status();
    std::fputs(text->c_str(), stdout);
    return 0;
  }
  if (options.format != Format::table) {
    auto document = sandbox_document(found);
    add_lifecycle(document, found);
    if (config.ok()) add_configuration(document, *config);
    print_document(document, options.format);
    return 0;
  }
  print_sandbox(found);
  if (config.ok() && config->has_policy()) {
    print(absl::StrCat("  Policy: revision ", config->version(), ", hash ", short_hash(config->policy_hash())));
    if (auto text = policy::to_yaml(config->policy()); text.ok()) print(absl::StrCat("---\n", *text));
  }
  return 0;
}

// ---- delete ----

struct DeleteOptions {
  std::vector<std::string> names;
  bool all = false;
};

absl::StatusOr<std::vector<std::string>> all_names(Context& context, GatewayClient& client) {
  std::vector<std::string> names;
  auto request = context.scoped<v1::ListSandboxesRequest>();
  request.set_page_size(kDeleteAllPage);
  do {
    auto page = client.list_sandboxes(request);
    if (!page.ok()) return page.status();
    for (const auto& sandbox : page->sandboxes()) names.push_back(sandbox.metadata().name());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return names;
}

absl::Status delete_one(Context& context, GatewayClient& client, const std::string& name) {
  stop_forwards(context, name);
  auto request = context.scoped<v1::DeleteSandboxRequest>();
  request.set_name(name);
  request.set_allow_missing(true);
  auto answer = client.delete_sandbox(request);
  if (!answer.ok()) return answer.status();
  context.forget(name);
  switch (answer->outcome()) {
    case v1::DELETION_OUTCOME_ACCEPTED:
      print(absl::StrCat(mark(kDone), " Sandbox ", name, " deletion accepted; cleanup is pending"));
      break;
    case v1::DELETION_OUTCOME_ALREADY_ABSENT:
      print(absl::StrCat(mark(kDone), " Sandbox ", name, " already deleted"));
      break;
    default:
      print(absl::StrCat(mark(kDone), " Deleted sandbox ", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> remove(Context& context, const DeleteOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto names = options.names;
  if (options.all) {
    auto found = all_names(context, **client);
    if (!found.ok()) return found.status();
    names = *std::move(found);
    if (names.empty()) print("No sandboxes to delete.");
  }
  return delete_each(names, "sandbox", "sandboxes", [&](const std::string& name) { return delete_one(context, **client, name); });
}

}  // namespace

void add_sandbox_commands(CLI::App& root, Action& chosen) {
  auto* sandbox = root.add_subcommand("sandbox", "Create and use sandboxes")->alias("sb");
  add_sandbox_create(*sandbox, chosen);
  {
    auto o = std::make_shared<GetOptions>();
    auto* command = sandbox->add_subcommand("get", "Show one sandbox");
    command->add_option("name", o->name, "Default: the one last used");
    auto* only = command->add_flag("--policy-only", o->policy_only, "Print the effective policy alone, as YAML");
    add_output_option(*command, o->format);
    only->excludes("--output");
    command->callback([&chosen, o] { chosen = [o](Context& c) { return get(c, *o); }; });
  }
  {
    auto o = std::make_shared<ListOptions>();
    auto* command = sandbox->add_subcommand("list", "List sandboxes");
    add_paging(*command, o->page_size, o->page_token);
    auto* ids = command->add_flag("--ids", o->ids, "Ids only");
    auto* names = command->add_flag("--names", o->names, "Names only");
    command->add_option("--selector", o->selector, "Labels: K=V,K2=V2");
    command->add_flag("--all-workspaces", o->all_workspaces);
    add_output_option(*command, o->format);
    ids->excludes(names)->excludes("--output");
    names->excludes("--output");
    command->callback([&chosen, o] { chosen = [o](Context& c) { return list(c, *o); }; });
  }
  {
    auto o = std::make_shared<DeleteOptions>();
    auto* command = sandbox->add_subcommand("delete", "Delete sandboxes and what they hold");
    auto* names = command->add_option("names", o->names);
    auto* all = command->add_flag("--all", o->all, "Every sandbox of the workspace")->excludes(names);
    command->callback([&chosen, o, all] {
      if (o->names.empty() && all->count() == 0) throw CLI::RequiredError("NAME or --all");
      chosen = [o](Context& c) { return remove(c, *o); };
    });
  }
  add_sandbox_lifecycle(*sandbox, chosen);
  add_sandbox_watch(*sandbox, chosen);
  add_sandbox_exec(*sandbox, chosen);
  add_sandbox_provider(*sandbox, chosen);
  add_sandbox_template(*sandbox, chosen);
  add_sandbox_connect(*sandbox, chosen);
  add_sandbox_transfer(*sandbox, chosen);
}

}  // namespace openshell::cli
