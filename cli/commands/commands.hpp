// The commands of `openshell`. Each function adds its part of the command tree; the command that the user typed leaves its action behind.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>

#include "cli/context.hpp"

namespace CLI {
class App;
}

namespace openshell::cli {

/// Runs the command; the exit code, or an error that becomes exit 1.
using Action = std::function<absl::StatusOr<int>(Context&)>;

void add_gateway_commands(CLI::App& root, Action& chosen);   // gateway, status, whoami
void add_sandbox_commands(CLI::App& root, Action& chosen);   // sandbox create, get, list, delete, exec, provider
void add_log_commands(CLI::App& root, Action& chosen);       // logs
void add_policy_commands(CLI::App& root, Action& chosen);    // policy set, update, get, list, delete
void add_rule_commands(CLI::App& root, Action& chosen);      // rule get, approve, reject, approve-all, undo, clear, history
void add_settings_commands(CLI::App& root, Action& chosen);  // settings get, set, delete
void add_provider_commands(CLI::App& root, Action& chosen);  // provider create, get, list, delete
void add_forward_commands(CLI::App& root, Action& chosen);   // forward start, stop, list, service
void add_ssh_proxy(CLI::App& root, Action& chosen);          // ssh-proxy, and what ssh itself runs beside it

// Parts of `gateway`.
void add_login_commands(CLI::App& gateway, Action& chosen);
/// Gets a token for a gateway of auth_mode `oidc` and keeps it.
absl::StatusOr<int> log_in_and_store(Context& context, const Registration& gateway);

// Parts of `sandbox`, in files of their own.
void add_sandbox_create(CLI::App& sandbox, Action& chosen);
void add_sandbox_exec(CLI::App& sandbox, Action& chosen);
void add_sandbox_lifecycle(CLI::App& sandbox, Action& chosen);  // stop, start, wait
void add_sandbox_provider(CLI::App& sandbox, Action& chosen);
void add_sandbox_template(CLI::App& sandbox, Action& chosen);
void add_sandbox_watch(CLI::App& sandbox, Action& chosen);
// And of `policy`.
void add_policy_update(CLI::App& policy, Action& chosen);
void add_policy_questions(CLI::App& policy, Action& chosen);   // explain, diff
void add_sandbox_connect(CLI::App& sandbox, Action& chosen);   // connect, ssh-config
void add_sandbox_transfer(CLI::App& sandbox, Action& chosen);  // upload, download
void add_forward_service(CLI::App& forward, Action& chosen);

/// Ends the background forwards of a sandbox that is being stopped or deleted, one line for each on stderr.
void stop_forwards(Context& context, const std::string& sandbox);

/// -o, --output table|yaml|json into `format`, and `-o` alone for table.
void add_output_option(CLI::App& command, Format& format);
/// --page-size and --page-token.
void add_paging(CLI::App& command, int& size, std::string& token);
/// The token goes to stderr beside a table, never into it.
void note_next_page(const std::string& token);

}  // namespace openshell::cli
