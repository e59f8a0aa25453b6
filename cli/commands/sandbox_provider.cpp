#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

struct Names {
  std::string sandbox, provider;
};

absl::StatusOr<int> attach(Context& context, const Names& names) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::AttachSandboxProviderRequest>();
  request.set_sandbox(names.sandbox);
  request.set_provider(names.provider);
  auto answer = (*client)->attach_provider(request);
  if (!answer.ok()) return answer.status();
  print(absl::StrCat(mark(kDone), answer->attached() ? " Attached provider " : " Already attached: provider ", names.provider,
                     " to sandbox ", names.sandbox));
  return 0;
}

absl::StatusOr<int> detach(Context& context, const Names& names) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::DetachSandboxProviderRequest>();
  request.set_sandbox(names.sandbox);
  request.set_provider(names.provider);
  auto answer = (*client)->detach_provider(request);
  if (!answer.ok()) return answer.status();
  print(absl::StrCat(mark(kDone), answer->detached() ? " Detached provider " : " Not attached: provider ", names.provider, " from sandbox ",
                     names.sandbox));
  return 0;
}

}  // namespace

void add_sandbox_provider(CLI::App& sandbox, Action& chosen) {
  auto* provider = sandbox.add_subcommand("provider", "The providers of a sandbox");
  const auto add = [&](const char* verb, const char* text, auto run) {
    auto names = std::make_shared<Names>();
    auto* command = provider->add_subcommand(verb, text);
    command->add_option("sandbox", names->sandbox)->required();
    command->add_option("provider", names->provider)->required();
    command->callback([&chosen, names, run] { chosen = [names, run](Context& c) { return run(c, *names); }; });
  };
  add("attach", "Give a running sandbox a provider", attach);
  add("detach", "Take a provider away from a sandbox", detach);
  provider->require_subcommand(1);
}

}  // namespace openshell::cli
