// `policy update`: a policy changed by a few words instead of a file.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/policy_wait.hpp"
#include "cli/merge_words.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"
#include "policy/merge.hpp"
#include "policy/serialize.hpp"
#include "policy/validate.hpp"

namespace openshell::cli {
namespace {

struct Options {
  std::string name;
  MergeWords words;
  std::string endpoint_path;
  bool dry_run = false, wait = false;
  int timeout = 60;
};

absl::StatusOr<int> preview(const sandbox::v1::SandboxPolicy& current, const v1::UpdateConfigRequest& request) {
  note(absl::StrCat("Dry run preview for ", request.merge_operations_size(), " incremental policy operation(s)"));
  auto merged = policy::merge(current, request.merge_operations());
  if (!merged.ok()) return merged.status();
  for (const auto& warning : merged->warnings) note(absl::StrCat(mark(kWarning), " ", warning));
  if (auto status = policy::admit(merged->policy, policy::Provenance::keep); !status.ok()) return status;
  auto text = policy::to_yaml(merged->policy);
  if (!text.ok()) return text.status();
  std::fputs(text->c_str(), stdout);
  return 0;
}

absl::StatusOr<int> update(Context& context, const Options& options) {
  if (options.wait && options.dry_run) return absl::InvalidArgumentError("--wait cannot be combined with --dry-run");
  auto request = context.scoped<v1::UpdateConfigRequest>();
  if (auto status = add_operations(options.words, *request.mutable_merge_operations()); !status.ok()) return status;
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto config_request = context.scoped<sandbox::v1::GetSandboxConfigRequest>();
  config_request.set_name(*name);
  auto config = (*client)->get_sandbox_config(config_request);
  if (!config.ok()) return config.status();
  if (config->policy_source() == sandbox::v1::POLICY_SOURCE_GLOBAL) {
    return absl::FailedPreconditionError("policy is managed globally; delete the global policy before using `openshell policy update`");
  }
  if (options.dry_run) return preview(config->policy(), request);
  return submit_policy(context, **client, *name, std::move(request), options.wait ? std::optional{options.timeout} : std::nullopt);
}

absl::StatusOr<int> remove_global(Context& context, bool global, bool yes) {
  if (!global) {
    return absl::InvalidArgumentError("sandbox policy delete is not supported; use --global to remove global policy lock");
  }
  if (!yes) return absl::FailedPreconditionError("global setting deletes require confirmation; pass --yes in non-interactive mode");
  v1::UpdateConfigRequest request;
  request.set_global(true);
  request.set_setting_key("policy");
  request.set_delete_setting(true);
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto answer = (*client)->update_config(request);
  if (!answer.ok()) return answer.status();
  if (!answer->deleted()) {
    note(absl::StrCat(mark(kWarning), " Global setting policy not found"));
    return 0;
  }
  note(absl::StrCat(mark(kDone), " Deleted global setting policy (revision ", answer->settings_revision(), ")"));
  return 0;
}

}  // namespace

void add_policy_update(CLI::App& policy, Action& chosen) {
  {
    auto o = std::make_shared<Options>();
    auto& words = o->words;
    auto* command = policy.add_subcommand("update", "Change the policy by single operations");
    command->add_option("name", o->name, "Default: the sandbox last used");
    const auto list = [&](const char* flag, std::vector<std::string>& into, const char* text) {
      command->add_option(flag, into, text)->take_all()->allow_extra_args(false);
    };
    list("--add-endpoint", words.add_endpoints, "host:port[:access[:protocol[:enforcement[:options]]]]");
    list("--remove-endpoint", words.remove_endpoints, "host:port");
    list("--remove-rule", words.remove_rules, "Key of the rule");
    list("--add-allow", words.add_allow, "host:port[,port...]:METHOD:path_glob");
    list("--add-deny", words.add_deny, "host:port[,port...]:METHOD:path_glob");
    list("--binary", words.binaries, "Programs of the added endpoints, or the complete list of the rule that is added to");
    command->add_flag("--any-binary", words.any_binary, "The rule that is added to holds for any program");
    command->add_option("--rule-name", words.rule_name, "Key of the rule");
    auto* path = command->add_option("--endpoint-path", o->endpoint_path, "Exact path of the endpoint; \"\": the one without");
    command->add_flag("--dry-run", o->dry_run, "Show the outcome, change nothing");
    command->add_flag("--wait", o->wait, "Until the supervisor has loaded it");
    command->add_option("--timeout", o->timeout, "Seconds to wait")->check(CLI::NonNegativeNumber);
    command->callback([&chosen, o, path] {
      if (path->count() > 0) o->words.endpoint_path = o->endpoint_path;
      chosen = [o](Context& c) { return update(c, *o); };
    });
  }
  {
    struct Flags {
      bool global = false, yes = false;
      std::string name;
    };
    auto o = std::make_shared<Flags>();
    auto* command = policy.add_subcommand("delete", "Take the global policy away; every sandbox has its own again");
    command->add_option("name", o->name);
    command->add_flag("--global", o->global);
    command->add_flag("--yes", o->yes);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return remove_global(c, o->global, o->yes); }; });
  }
}

}  // namespace openshell::cli
