// sandbox provider list, attach, detach, status.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/provider_readiness.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

struct Options {
  std::string sandbox, provider, receipt;
  ReadinessOptions readiness;
  int page_size = 100;
  std::string page_token;
  bool document = false;  ///< -o was given
};

bool wants_document(const Options& options) { return options.readiness.wait || options.document; }

/// A lost race is said in the words that scripts know.
absl::Status attachment_error(const absl::Status& status, const char* verb) {
  if (!absl::IsAborted(status)) return status;
  note(absl::StrCat("Failed to ", verb, " provider: sandbox was modified by another operation."));
  note("Please retry the command.");
  return status;
}

absl::StatusOr<std::uint64_t> version_of(Context& context, GatewayClient& client, const std::string& sandbox) {
  auto request = context.scoped<v1::GetSandboxRequest>();
  request.set_name(sandbox);
  auto answer = client.get_sandbox(request);
  if (!answer.ok()) return answer.status();
  return answer->sandbox().metadata().resource_version();
}

absl::StatusOr<int> attach(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto version = version_of(context, **client, options.sandbox);
  if (!version.ok()) return version.status();
  auto request = context.scoped<v1::AttachSandboxProviderRequest>();
  request.set_sandbox(options.sandbox);
  request.set_provider(options.provider);
  request.set_expected_resource_version(*version);
  auto answer = (*client)->attach_provider(request);
  if (!answer.ok()) return attachment_error(answer.status(), "attach");
  const auto line = absl::StrCat(mark(kDone), answer->attached() ? " Attached provider " : " Already attached: provider ", options.provider,
                                 " to sandbox ", options.sandbox);
  options.document ? note(line) : print(line);
  if (!wants_document(options)) return 0;
  return report_readiness(**client, answer->receipt().mutation_id(), {target_of(answer->receipt())}, options.readiness);
}

absl::StatusOr<int> detach(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto version = version_of(context, **client, options.sandbox);
  if (!version.ok()) return version.status();
  auto request = context.scoped<v1::DetachSandboxProviderRequest>();
  request.set_sandbox(options.sandbox);
  request.set_provider(options.provider);
  request.set_expected_resource_version(*version);
  auto answer = (*client)->detach_provider(request);
  if (!answer.ok()) return attachment_error(answer.status(), "detach");
  const auto line = absl::StrCat(mark(kDone), answer->detached() ? " Detached provider " : " Not attached: provider ", options.provider,
                                 " from sandbox ", options.sandbox);
  options.document ? note(line) : print(line);
  if (!wants_document(options)) return 0;
  return report_readiness(**client, answer->receipt().mutation_id(), {target_of(answer->receipt())}, options.readiness);
}

absl::StatusOr<int> status(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::GetSandboxProviderStatusRequest>();
  request.set_sandbox(options.sandbox);
  request.set_provider(options.provider);
  request.set_receipt_id(options.receipt);
  auto answer = (*client)->get_provider_status(request);
  if (!answer.ok()) return answer.status();
  auto target = target_of(answer->status().receipt());
  target.status = answer->status();
  return report_readiness(**client, target.receipt.mutation_id(), {target}, options.readiness);
}

template <class Map>
json::array keys_of(const Map& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return json::array(keys.begin(), keys.end());
}

absl::StatusOr<int> list(Context& context, const Options& options) {
  auto name = context.sandbox_or_last(options.sandbox);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::ListSandboxProvidersRequest>();
  request.set_sandbox(*name);
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  auto answer = (*client)->list_sandbox_providers(request);
  if (!answer.ok()) return answer.status();
  if (options.readiness.format != Format::table) {
    json::array items;
    for (const auto& each : answer->providers()) {
      items.push_back(json::object{{"name", each.metadata().name()},
                                   {"type", each.type()},
                                   {"credential_keys", keys_of(each.credentials())},
                                   {"config_keys", keys_of(each.config())}});
    }
    print_document(json::object{{"providers", items}, {"next_page_token", answer->next_page_token()}}, options.readiness.format);
    return 0;
  }
  if (answer->providers().empty()) {
    print(absl::StrCat("No providers attached to sandbox ", *name, "."));
  } else {
    std::vector<std::vector<std::string>> rows{{"NAME", "TYPE", "CREDENTIAL_KEYS", "CONFIG_KEYS"}};
    for (const auto& each : answer->providers())
      rows.push_back(
          {each.metadata().name(), each.type(), std::to_string(each.credentials().size()), std::to_string(each.config().size())});
    std::fputs(to_table(rows).c_str(), stdout);
  }
  note_next_page(answer->next_page_token());
  return 0;
}

}  // namespace

void add_sandbox_provider(CLI::App& sandbox, Action& chosen) {
  auto* provider = sandbox.add_subcommand("provider", "The providers of a sandbox");
  const auto add = [&](const char* verb, const char* text, auto run) {
    auto options = std::make_shared<Options>();
    auto* command = provider->add_subcommand(verb, text);
    command->add_option("sandbox", options->sandbox)->required();
    command->add_option("provider", options->provider)->required();
    command->add_flag("--wait", options->readiness.wait, "Until the sandbox runs with the change");
    command->add_option("--timeout", options->readiness.timeout_seconds, "Seconds that --wait takes at most")->check(CLI::Range(1, 3600));
    add_output_option(*command, options->readiness.format);
    auto* output = command->get_option("--output");
    command->callback([&chosen, options, run, output] {
      options->document = output->count() > 0;
      chosen = [options, run](Context& c) { return run(c, *options); };
    });
    return std::pair{command, options};
  };
  add("attach", "Give a running sandbox a provider", attach);
  add("detach", "Take a provider away from a sandbox", detach);
  {
    auto [command, options] = add("status", "What became of a provider's credentials in a sandbox", status);
    command->add_option("--receipt", options->receipt, "Of one change, by the id of its receipt");
  }
  {
    auto options = std::make_shared<Options>();
    auto* command = provider->add_subcommand("list", "The providers that a sandbox has");
    command->add_option("sandbox", options->sandbox);
    add_paging(*command, options->page_size, options->page_token);
    add_output_option(*command, options->readiness.format);
    command->callback([&chosen, options] { chosen = [options](Context& c) { return list(c, *options); }; });
  }
  provider->require_subcommand(1);
}

}  // namespace openshell::cli
