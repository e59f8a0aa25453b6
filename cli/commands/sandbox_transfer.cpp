// `sandbox upload` and `sandbox download`: tar over ssh.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/commands/commands.hpp"
#include "cli/ssh/download_plan.hpp"
#include "cli/ssh/remote.hpp"
#include "cli/ssh/ssh_program.hpp"
#include "cli/ssh/tar.hpp"
#include "cli/ssh/upload_plan.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 4;
constexpr std::chrono::seconds kBetweenAttempts{2};

struct Options {
  std::string name, from, to;
  bool no_git_ignore = false;
};

/// Again after a failure of the transport, which Aborted stands for here.
absl::Status with_attempts(Context& context, const std::string& name, const std::function<absl::Status(const SshSession&)>& work) {
  for (int attempt = 1;; ++attempt) {
    auto session = create_session(context, name);
    if (!session.ok()) return session.status();
    const auto status = work(*session);
    revoke_session(context, *session);
    if (!absl::IsAborted(status) || attempt == kAttempts) return status;
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

absl::Status transport(const char* what) { return absl::AbortedError(absl::StrCat("the ssh connection failed while ", what)); }

absl::Status send(const SshSession& session, UploadPlan plan) {
  std::optional<std::string> probed;
  bool was_directory = false;
  if (plan.file_target) {
    probed = plan.file_target;
    auto type = run_remote(session, type_command(*plan.file_target));
    if (!type.ok()) return type.status();
    if (type->code == kTransportFailed) return transport("looking at the destination");
    was_directory = type->output == "dir";
    if (!was_directory) {
      auto target = split_target(*plan.file_target);
      plan.directory = std::move(target.directory);
      plan.entries.front().name = std::move(target.name);
    }
  }
  auto code =
      feed_remote(session, extract_command(plan.directory, probed, was_directory), [&plan](int fd) { return write_tar(fd, plan.entries); });
  if (!code.ok()) return code.status();
  if (*code == 0) return absl::OkStatus();
  if (*code == kTransportFailed) return transport("sending the archive");
  if (*code == kChangedType) return absl::FailedPreconditionError("upload destination changed type before extraction; retry the upload");
  return absl::InternalError(absl::StrCat("ssh tar extract exited with status ", *code));
}

absl::StatusOr<int> upload(Context& context, const Options& options) {
  auto plan = plan_upload(options.from, options.to, options.no_git_ignore);
  if (!plan.ok()) return plan.status();
  if (auto ssh = find_ssh_program(); !ssh.ok()) return ssh.status();
  if (!plan->warning.empty()) note(plan->warning);
  note(absl::StrCat("Uploading ", options.from, " -> sandbox:", options.to.empty() ? "~" : options.to));
  const auto status = with_attempts(context, options.name, [&](const SshSession& session) { return send(session, *plan); });
  if (!status.ok()) return status;
  context.remember(options.name);
  note(absl::StrCat(mark(kDone), " Upload complete", plan->filtered ? "" : absl::StrCat(": ", options.from)));
  return 0;
}

absl::Status receive(const SshSession& session, const Options& options) {
  auto answer = run_remote(session, resolve_command(options.from));
  if (!answer.ok()) return answer.status();
  if (answer->code == kTransportFailed) return transport("looking at the source");
  auto source = check_source(options.from, answer->output, answer->code);
  if (!source.ok()) return source.status();
  auto type = run_remote(session, type_command(*source));
  if (!type.ok()) return type.status();
  if (type->code == kTransportFailed) return transport("looking at the source");
  auto target = check_destination(options.from, options.to, *source, type->output);
  if (!target.ok()) return target.status();
  auto code = read_remote(session, archive_command(*source, target->directory), [&target](int fd) {
    return target->directory ? extract_tree(fd, target->path) : extract_file(fd, target->path);
  });
  if (!code.ok()) return code.status();
  if (*code == kTransportFailed) return transport("receiving the archive");
  return *code == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("ssh tar create exited with status ", *code));
}

absl::StatusOr<int> download(Context& context, const Options& options) {
  if (auto ssh = find_ssh_program(); !ssh.ok()) return ssh.status();
  note(absl::StrCat("Downloading sandbox:", options.from, " -> ", options.to));
  const auto status = with_attempts(context, options.name, [&](const SshSession& session) { return receive(session, options); });
  if (!status.ok()) return status;
  context.remember(options.name);
  note("Download complete");
  return 0;
}

}  // namespace

void add_sandbox_transfer(CLI::App& sandbox, Action& chosen) {
  {
    auto o = std::make_shared<Options>();
    auto* command = sandbox.add_subcommand("upload", "Copy a file or directory into a sandbox");
    command->add_option("name", o->name)->required();
    command->add_option("local", o->from, "File, directory or link")->required();
    command->add_option("dest", o->to, "In the sandbox; default: its workspace");
    command->add_flag("--no-git-ignore", o->no_git_ignore, "Send what git ignores too");
    command->callback([&chosen, o] { chosen = [o](Context& c) { return upload(c, *o); }; });
  }
  {
    auto o = std::make_shared<Options>();
    o->to = ".";
    auto* command = sandbox.add_subcommand("download", "Copy a file or the contents of a directory out of a sandbox's workspace");
    command->add_option("name", o->name)->required();
    command->add_option("path", o->from, "In the workspace")->required();
    command->add_option("dest", o->to, "Here; default: the current directory");
    command->callback([&chosen, o] { chosen = [o](Context& c) { return download(c, *o); }; });
  }
}

}  // namespace openshell::cli
