#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/program_path.hpp"
#include "cli/ssh/attach.hpp"
#include "cli/ssh/config_file.hpp"
#include "cli/ssh/remote.hpp"
#include "cli/ssh/ssh_program.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

struct Options {
  std::string name, editor;
};

absl::StatusOr<v1::Sandbox> find(Context& context, const std::string& name) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::GetSandboxRequest>();
  request.set_name(name);
  auto answer = (*client)->get_sandbox(request);
  if (!answer.ok()) return answer.status();
  return answer->sandbox();
}

absl::StatusOr<std::string> block_for(Context& context, const std::string& name) {
  auto target = context.target();
  if (!target.ok()) return target.status();
  return host_block(own_path(), target->name, name, context.flags().workspace);
}

absl::StatusOr<int> ssh_config(Context& context, const Options& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto block = block_for(context, *name);
  if (!block.ok()) return block.status();
  std::fputs(block->c_str(), stdout);
  return 0;
}

absl::StatusOr<std::string> program_of(const std::string& editor) {
  const std::string binary = editor == "vscode" ? "code" : "cursor";
  if (auto program = find_program(binary)) return *std::move(program);
  return absl::NotFoundError(absl::StrCat(binary, " is not installed or not on PATH"));
}

absl::StatusOr<int> open_editor(Context& context, const std::string& name, const std::string& editor) {
  auto program = program_of(editor);
  if (!program.ok()) return program.status();
  auto session = create_session(context, name);
  if (!session.ok()) return session.status();
  auto root = remote_workspace(*session);
  revoke_session(context, *session);  // the editor's connections get their own, by the Host block
  if (!root.ok()) return root.status();
  auto block = block_for(context, name);
  if (!block.ok()) return block.status();
  const char* home = std::getenv("HOME");
  if (home == nullptr) return absl::FailedPreconditionError("HOME is not set: there is no ~/.ssh/config to write");
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const auto folder =
      (config != nullptr && *config != '\0' ? std::filesystem::path{config} : std::filesystem::path{home} / ".config") / "openshell";
  const auto alias = host_alias(name, context.flags().workspace);
  if (auto status = install_block(home, folder, alias, *block); !status.ok()) return status;
  std::string flag = "--remote", host = absl::StrCat("ssh-remote+", alias);
  char* words[] = {program->data(), flag.data(), host.data(), root->data(), nullptr};
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t child = -1;
  const int failed = ::posix_spawn(&child, program->c_str(), nullptr, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return absl::InternalError(absl::StrCat("cannot start ", *program));
  return 0;
}

absl::StatusOr<int> connect(Context& context, const Options& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto sandbox = find(context, *name);
  if (!sandbox.ok()) return sandbox.status();
  context.remember(*name);
  if (!options.editor.empty()) return open_editor(context, *name, options.editor);
  return attach_main(context, *name, !sandbox->has_spec() || sandbox->spec().tty());
}

}  // namespace

void add_sandbox_connect(CLI::App& sandbox, Action& chosen) {
  {
    auto o = std::make_shared<Options>();
    auto* command = sandbox.add_subcommand("connect", "Attach to the main process; Ctrl-P Ctrl-Q leaves it running");
    command->add_option("name", o->name, "Default: the one last used");
    command->add_option("--editor", o->editor, "Open the workspace in an editor instead")->check(CLI::IsMember({"vscode", "cursor"}));
    command->callback([&chosen, o] { chosen = [o](Context& c) { return connect(c, *o); }; });
  }
  {
    auto o = std::make_shared<Options>();
    auto* command = sandbox.add_subcommand("ssh-config", "Print a Host block for ~/.ssh/config");
    command->add_option("name", o->name, "Default: the one last used");
    command->callback([&chosen, o] { chosen = [o](Context& c) { return ssh_config(c, *o); }; });
  }
}

}  // namespace openshell::cli
