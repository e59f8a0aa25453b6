#include <absl/strings/str_cat.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/commands/commands.hpp"
#include "cli/key_value.hpp"
#include "cli/raw_terminal.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/terminal.hpp"
#include "cli/write_all.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

constexpr std::chrono::milliseconds kStdinWait{200};  // how long input may take to end before it is streamed
constexpr std::size_t kMaxRequestBytes = 1 << 20;     // the gateway's limit of one message
constexpr std::size_t kStdinPiece = 4'096;

struct Options {
  std::string name, workdir;
  int timeout = 0;
  std::optional<bool> tty;  // unset: as stdin and stdout are
  bool no_login_shell = false;
  std::vector<std::string> environment, positionals;
};

/// NAME -- COMMAND..., -n NAME -- COMMAND..., and the older -n NAME COMMAND...
struct Reading {
  std::string sandbox;
  std::vector<std::string> command;
};

absl::StatusOr<Reading> read_words(const Options& options, const std::optional<std::vector<std::string>>& trailing) {
  Reading reading{options.name, trailing.value_or(std::vector<std::string>{})};
  if (!trailing) {
    if (options.name.empty()) {
      return absl::InvalidArgumentError(
          "write `sandbox exec NAME -- COMMAND...`, or `sandbox exec -n NAME COMMAND...`: without -n and `--` it is not clear which word "
          "is the sandbox");
    }
    reading.command = options.positionals;
  } else if (!options.positionals.empty()) {
    if (!options.name.empty() || options.positionals.size() > 1)
      return absl::InvalidArgumentError("one sandbox before `--`, either as NAME or with -n");
    reading.sandbox = options.positionals.front();
  }
  if (reading.command.empty()) return absl::InvalidArgumentError("no command given: sandbox exec NAME -- COMMAND...");
  return reading;
}

/// What stands on stdin: whole and ended, or a beginning with more to come.
struct Beginning {
  std::string bytes;
  bool ended = false;
};

absl::StatusOr<Beginning> first_input(std::size_t room) {
  Beginning input;
  const auto end = std::chrono::steady_clock::now() + kStdinWait;
  while (input.bytes.size() <= room) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd fd{STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&fd, 1, left > 0 ? static_cast<int>(left) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return input;
    char buffer[kStdinPiece];
    const auto count = read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || (count < 0 && errno == EBADF)) {  // the end, or started with stdin closed
      input.ended = true;
      return input;
    }
    if (count < 0) return absl::InternalError(absl::StrCat("cannot read stdin: ", std::strerror(errno)));
    input.bytes.append(buffer, static_cast<std::size_t>(count));
  }
  return input;
}

/// Hands out what was read before, then stdin piece by piece; nothing at its end.
GatewayClient::NextInput stdin_pieces(std::string beginning) {
  using Input = GatewayClient::ExecInput;
  return [pending = std::move(beginning)]() mutable -> absl::StatusOr<std::optional<Input>> {
    if (!pending.empty()) {
      auto piece = pending.substr(0, kStdinPiece);
      pending.erase(0, piece.size());
      return Input{std::move(piece), {}};
    }
    while (true) {
      char buffer[kStdinPiece];
      const auto count = read(STDIN_FILENO, buffer, sizeof buffer);
      if (count > 0) return Input{std::string(buffer, static_cast<std::size_t>(count)), {}};
      if (count == 0) return std::nullopt;
      if (errno != EINTR) return absl::InternalError(absl::StrCat("cannot read stdin: ", std::strerror(errno)));
    }
  };
}

/// Keys and sizes of a terminal in raw mode. A terminal that is gone ends the input.
absl::StatusOr<std::optional<GatewayClient::ExecInput>> terminal_event() {
  auto event = RawTerminal::next();
  if (!event.ok()) return event.status();
  if (auto* typed = std::get_if<Typed>(&*event)) return GatewayClient::ExecInput{std::move(typed->bytes), {}};
  if (const auto* size = std::get_if<WindowSize>(&*event)) return GatewayClient::ExecInput{{}, *size};
  return std::nullopt;
}

/// A background job that read its terminal would be stopped.
bool may_read_stdin() { return isatty(STDIN_FILENO) != 1 || tcgetpgrp(STDIN_FILENO) == getpgrp(); }

absl::Status check_ready(Context& context, GatewayClient& client, const std::string& name) {
  auto request = context.scoped<v1::GetSandboxRequest>();
  request.set_name(name);
  auto answer = client.get_sandbox(request);
  if (!answer.ok()) return answer.status();
  const auto& status = answer->sandbox().status();
  const auto phase = status.phase();
  const bool kept = status.has_exit_code() && (phase == v1::SANDBOX_PHASE_COMPLETED || phase == v1::SANDBOX_PHASE_ERROR);
  if (phase == v1::SANDBOX_PHASE_READY || kept) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("sandbox '", name, "' is not ready (phase: ", phase_name(phase), "); wait for it to reach Ready state"));
}

absl::StatusOr<v1::ExecSandboxRequest> make_request(Context& context, const Options& options, const std::string& name,
                                                    const std::vector<std::string>& command) {
  auto request = context.scoped<v1::ExecSandboxRequest>();
  request.set_sandbox(name);
  for (const auto& word : command) request.add_command(word);
  request.set_workdir(options.workdir);
  for (const auto& each : options.environment) {
    auto pair = key_value(each);
    if (!pair) return absl::InvalidArgumentError(absl::StrCat("--env expects KEY=VALUE, got '", each, "'"));
    (*request.mutable_environment())[pair->first] = std::move(pair->second);
  }
  if (options.timeout > 0) request.mutable_execution_timeout()->set_seconds(options.timeout);
  request.set_no_login_shell(options.no_login_shell);
  if (request.ByteSizeLong() > kMaxRequestBytes)
    return absl::InvalidArgumentError("exec command or environment exceeds the gateway's 1 MiB message limit");
  return request;
}

/// The call in the form that fits the caller's stdin.
absl::Status run(GatewayClient& client, v1::ExecSandboxRequest& request, bool terminal_in, const GatewayClient::TakeOutput& take) {
  if (terminal_in && request.tty()) {
    auto terminal = RawTerminal::enter();
    if (!terminal.ok()) return terminal.status();
    return client.exec_interactive(request, terminal_event, take);
  }
  if (!may_read_stdin()) return client.exec(request, take);
  if (terminal_in) return client.exec_interactive(request, stdin_pieces({}), take);
  auto input = first_input(kMaxRequestBytes - request.ByteSizeLong() - 64);
  if (!input.ok()) return input.status();
  if (!input->ended) return client.exec_interactive(request, stdin_pieces(std::move(input->bytes)), take);
  request.set_stdin(input->bytes);
  return client.exec(request, take);
}

absl::StatusOr<int> exec(Context& context, const Options& options) {
  auto words = read_words(options, context.flags().trailing);
  if (!words.ok()) {
    note(std::string{words.status().message()});
    return 2;
  }
  auto name = context.sandbox_or_last(words->sandbox);
  if (!name.ok()) return name.status();
  auto request = make_request(context, options, *name, words->command);
  if (!request.ok()) return request.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (auto ready = check_ready(context, **client, *name); !ready.ok()) return ready;

  std::optional<int> code;
  absl::Status output;
  const auto take = [&](const v1::ExecSandboxEvent& event) {
    if (event.has_stdout() && output.ok()) output = write_all(STDOUT_FILENO, event.stdout().data());
    if (event.has_stderr() && output.ok()) output = write_all(STDERR_FILENO, event.stderr().data());
    if (event.has_exit()) code = event.exit().exit_code();
  };
  const bool terminal_in = isatty(STDIN_FILENO) == 1;
  request->set_tty(options.tty.value_or(terminal_in && isatty(STDOUT_FILENO) == 1));
  if (const auto size = window_size(); size && request->tty()) {
    request->set_cols(size->columns);
    request->set_rows(size->rows);
  }
  const auto status = run(**client, *request, terminal_in, take);
  context.remember(*name);
  if (!status.ok()) return status;
  if (!output.ok()) return absl::InternalError(absl::StrCat("the command's output was lost: ", output.message()));
  if (!code) return absl::UnavailableError("sandbox exec relay closed before the command reported an exit status");
  return *code;
}

}  // namespace

void add_sandbox_exec(CLI::App& sandbox, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = sandbox.add_subcommand("exec", "Run a command in a sandbox: exec [NAME] [flags] -- COMMAND...");
  command->add_option("-n,--name", o->name, "The sandbox; default: the one last used");
  command->add_option("--workdir", o->workdir);
  command->add_option("--timeout", o->timeout, "Seconds; 0: none")->check(CLI::NonNegativeNumber);
  auto* tty = command->add_flag("--tty,!--no-tty", o->tty, "With a terminal; default: if stdin and stdout are one");
  command->add_flag("--no-login-shell", o->no_login_shell, "bash -c instead of bash -lc");
  command->add_option("--env", o->environment, "K=V; repeatable")->take_all()->allow_extra_args(false);
  command->add_option("words", o->positionals, "[NAME] -- COMMAND...");
  command->callback([&chosen, o, tty] {
    if (tty->count() == 0) o->tty.reset();  // the parser writes "off" for a flag that is not there
    chosen = [o](Context& c) { return exec(c, *o); };
  });
}

}  // namespace openshell::cli
