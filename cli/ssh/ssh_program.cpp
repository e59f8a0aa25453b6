#include "cli/ssh/ssh_program.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/program_path.hpp"

namespace openshell::cli {
namespace {

constexpr int kMajor = 8, kMinor = 5;

std::string ssh_version(const std::string& program) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::string path = program, flag = "-V";
  std::array<char*, 3> words{path.data(), flag.data(), nullptr};
  pid_t child = -1;
  const int failed = ::posix_spawn(&child, program.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  std::array<char, 256> buffer{};
  for (ssize_t count = 0; failed == 0 && (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(count));
  ::close(ends[0]);
  if (failed == 0) (void)wait_for(child);
  return text;
}

std::string proxy_command(const std::string& self, const SshSession& session) {
  std::string command;
  for (const auto& word : {self, std::string{"ssh-proxy"}, std::string{"--gateway"}, session.url, std::string{"--sandbox"}, session.sandbox,
                           std::string{"--gateway-name"}, session.gateway, std::string{"--workspace"}, session.workspace})
    absl::StrAppend(&command, command.empty() ? "" : " ", shell_word(word));
  return absl::StrReplaceAll(command, {{"%", "%%"}});  // ssh would put its own values in
}

}  // namespace

std::string own_path() {
  std::array<char, 4'096> path{};
  const auto length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : std::string{"openshell"};
}

absl::StatusOr<std::string> find_ssh_program() {
  if (auto program = find_program("ssh")) return *std::move(program);
  return absl::NotFoundError(
      "the program `ssh` is not on this host's PATH; install OpenSSH's client (Debian: apt-get install openssh-client). The sandbox is "
      "kept; "
      "`openshell sandbox exec NAME -- COMMAND` works without it");
}

std::string shell_word(std::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || std::string_view{"./_-"}.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return std::string{word};
  return absl::StrCat("'", absl::StrReplaceAll(std::string{word}, {{"'", "'\"'\"'"}}), "'");
}

bool knows_host_keys_by_command(std::string_view version) {
  constexpr std::string_view kName = "OpenSSH_";
  const auto at = version.find(kName);
  if (at == std::string_view::npos) return false;
  int major = 0, minor = 0;
  if (std::sscanf(std::string{version.substr(at + kName.size())}.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return major > kMajor || (major == kMajor && minor >= kMinor);
}

std::vector<std::string> ssh_words(const std::string& program, const std::string& self, const SshSession& session, bool by_command) {
  const bool checked = by_command && !session.fingerprint.empty();
  std::vector<std::string> words{program,
                                 "-o",
                                 absl::StrCat("ProxyCommand=", proxy_command(self, session)),
                                 "-o",
                                 absl::StrCat("StrictHostKeyChecking=", checked ? "yes" : "no"),
                                 "-o",
                                 "UserKnownHostsFile=/dev/null",
                                 "-o",
                                 "GlobalKnownHostsFile=/dev/null",
                                 "-o",
                                 "LogLevel=ERROR",
                                 "-o",
                                 "ServerAliveInterval=15",
                                 "-o",
                                 "ServerAliveCountMax=3"};
  if (checked) {
    words.insert(words.end(), {"-o", absl::StrCat("KnownHostsCommand=", shell_word(self), " ssh-known-host --fingerprint ",
                                                  session.fingerprint, " %H %t %K")});
  }
  return words;
}

absl::StatusOr<SshRun> ssh_for(const SshSession& session, const std::vector<std::string>& more) {
  auto program = find_ssh_program();
  if (!program.ok()) return program.status();
  static const bool by_command = knows_host_keys_by_command(ssh_version(*program));
  SshRun run;
  run.words = ssh_words(*program, own_path(), session, by_command);
  run.words.insert(run.words.end(), more.begin(), more.end());
  run.session = &session;
  return run;
}

absl::StatusOr<pid_t> start_ssh(const SshRun& run) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (run.input >= 0) posix_spawn_file_actions_adddup2(&actions, run.input, STDIN_FILENO);
  if (run.output >= 0) posix_spawn_file_actions_adddup2(&actions, run.output, STDOUT_FILENO);
  if (run.quiet) posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  short flags = POSIX_SPAWN_SETSIGDEF;
  if (run.own_group) flags |= POSIX_SPAWN_SETSID;
  posix_spawnattr_setflags(&attributes, flags);

  auto words = run.words;
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::string token = absl::StrCat(kTokenVariable, "=", run.session == nullptr ? "" : std::string{run.session->token.reveal()});
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    if (!std::string_view{*each}.starts_with(absl::StrCat(kTokenVariable, "="))) environment.push_back(*each);
  }
  if (run.session != nullptr) environment.push_back(token.data());
  environment.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, argv.front(), &actions, &attributes, argv.data(), environment.data());
  wipe(token);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return absl::InternalError(absl::StrCat("cannot start ", run.words.front(), ": ", std::strerror(error)));
  return child;
}

int wait_for(pid_t child) {
  const auto interrupt = std::signal(SIGINT, SIG_IGN), quit = std::signal(SIGQUIT, SIG_IGN);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, interrupt);
  std::signal(SIGQUIT, quit);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace openshell::cli
