#include "cli/app.hpp"

#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/exec_words.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

constexpr const char* kVersion = "openshell 0.1.5 (" OPENSHELL_VERSION ")";
constexpr int kUsageError = 2;

ColorChoice color_choice(const std::string& word) {
  if (word == "always") return ColorChoice::always;
  return word == "never" ? ColorChoice::never : ColorChoice::automatic;
}

/// Global flags go before or after any subcommand, so every subcommand falls through to its parent.
void fall_through(CLI::App& app) {
  app.fallthrough();
  for (auto* child : app.get_subcommands([](CLI::App*) { return true; })) fall_through(*child);
}

void add_global_flags(CLI::App& app, GlobalFlags& flags) {
  app.add_option("-g,--gateway", flags.gateway, "Gateway by its registered name")->envname("OPENSHELL_GATEWAY")->group("GATEWAY FLAGS");
  app.add_option("--gateway-endpoint", flags.endpoint, "Gateway by its URL")->envname("OPENSHELL_GATEWAY_ENDPOINT")->group("GATEWAY FLAGS");
  app.add_flag("--gateway-insecure", flags.insecure, "Do not verify the gateway's certificate")
      ->envname("OPENSHELL_GATEWAY_INSECURE")
      ->group("GATEWAY FLAGS");
  app.add_option("--workspace", flags.workspace, "Workspace of sandboxes and providers")
      ->envname("OPENSHELL_WORKSPACE")
      ->group("GLOBAL FLAGS");
  app.add_option("--color", flags.color)
      ->envname("OPENSHELL_COLOR")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("GLOBAL FLAGS");
  app.add_flag("-v,--verbose", flags.verbosity, "Repeat for more")->group("GLOBAL FLAGS");
}

bool takes_command(const CLI::App& app) {
  for (const auto* chosen : app.get_subcommands()) return takes_command(*chosen);
  return app.get_name() == "exec" || app.get_name() == "create";
}

/// A group without a subcommand shows its own help.
bool show_group_help(const CLI::App& app) {
  for (const auto* chosen : app.get_subcommands()) return show_group_help(*chosen);
  if (app.get_subcommands([](const CLI::App*) { return true; }).empty()) return false;
  std::fputs(app.help("", CLI::AppFormatMode::Normal).c_str(), stdout);
  return true;
}

}  // namespace

int run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  GlobalFlags flags;
  Action chosen;
  CLI::App app{"Autonomous agents at work, without the keys to the house."};
  app.name("openshell");
  app.set_version_flag("-V,--version", kVersion);
  add_global_flags(app, flags);
  add_sandbox_commands(app, chosen);
  add_log_commands(app, chosen);
  add_policy_commands(app, chosen);
  add_rule_commands(app, chosen);
  add_settings_commands(app, chosen);
  add_provider_commands(app, chosen);
  add_forward_commands(app, chosen);
  add_ssh_proxy(app, chosen);
  add_gateway_commands(app, chosen);
  fall_through(app);
  // The parser would mix the words after `--` with the positionals before it, so it never sees them.
  int parsed = 0;
  while (parsed < argc && std::string_view{argv[parsed]} != "--") ++parsed;
  if (const auto command = older_exec_command({argv, static_cast<std::size_t>(argc)})) {
    parsed = static_cast<int>(*command);
    flags.trailing.emplace(argv + parsed, argv + argc);
  } else if (parsed < argc) {
    flags.trailing.emplace(argv + parsed + 1, argv + argc);
  }
  try {
    app.parse(parsed, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    app.exit(e);
    return kUsageError;
  }
  choose_color(color_choice(flags.color));
  if (!chosen) return show_group_help(app) ? 0 : kUsageError;
  if (flags.trailing && !takes_command(app)) {
    note("`--` starts the command of `sandbox exec` and `sandbox create`; this command takes none");
    return kUsageError;
  }
  Context context{flags};
  const auto code = chosen(context);
  std::fflush(stdout);
  if (code.ok()) return *code;
  print_error(code.status());
  return 1;
}

void add_output_option(CLI::App& command, Format& format) {
  static const std::map<std::string, Format> names{{"table", Format::table}, {"yaml", Format::yaml}, {"json", Format::json}};
  command.add_option("-o,--output", format, "table, yaml or json")
      ->transform(CLI::CheckedTransformer(names, CLI::ignore_case).description(""));
}

void add_paging(CLI::App& command, int& size, std::string& token) {
  command.add_option("--page-size", size, "Rows of one page");
  command.add_option("--page-token", token, "Where an earlier page ended");
}

void note_next_page(const std::string& token) {
  if (!token.empty()) note("Next page token: " + token);
}

}  // namespace openshell::cli
