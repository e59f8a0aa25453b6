#include "cli/ssh/attach.hpp"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "cli/ssh/session.hpp"
#include "cli/ssh/ssh_program.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLost = 255;  // ssh's own code of a connection that failed
constexpr std::chrono::seconds kWasUp{2}, kReconnect{60};
constexpr std::chrono::milliseconds kFirstPause{250}, kLongestPause{5'000};

std::vector<std::string> main_words(bool terminal) {
  std::vector<std::string> words = terminal ? std::vector<std::string>{"-tt", "-o", "RequestTTY=force"} : std::vector<std::string>{"-T"};
  words.insert(words.end(), {"-o", "SetEnv=TERM=xterm-256color", "-s", "sandbox", "openshell-main"});
  return words;
}

absl::StatusOr<int> attach_once(Context& context, const std::string& sandbox, bool terminal) {
  auto session = create_session(context, sandbox);
  if (!session.ok()) return session.status();
  auto run = ssh_for(*session, main_words(terminal));
  if (!run.ok()) return run.status();
  auto child = start_ssh(*run);
  if (!child.ok()) return child.status();
  const int code = wait_for(*child);
  revoke_session(context, *session);
  return code;
}

/// The exit code of main where it has ended.
std::optional<int> ended_with(Context& context, const std::string& sandbox) {
  auto client = context.client();
  if (!client.ok()) return std::nullopt;
  auto request = context.scoped<v1::GetSandboxRequest>();
  request.set_name(sandbox);
  const auto answer = (*client)->get_sandbox(request);
  if (!answer.ok() || !answer->sandbox().status().has_exit_code()) return std::nullopt;
  return answer->sandbox().status().exit_code();
}

}  // namespace

absl::StatusOr<int> attach_main(Context& context, const std::string& sandbox, bool terminal) {
  if (auto program = find_ssh_program(); !program.ok()) return program.status();
  auto began = Clock::now();
  auto code = attach_once(context, sandbox, terminal);
  while (code.ok() && *code == kLost && Clock::now() - began >= kWasUp) {
    note(
        "Connection to sandbox lost; reconnecting. To disconnect, press Ctrl-D or Ctrl-P then Ctrl-Q after reattachment; press Ctrl-C "
        "while "
        "retrying to cancel.");
    const auto until = Clock::now() + kReconnect;
    std::chrono::milliseconds pause = kFirstPause;
    while (true) {
      if (const auto ended = ended_with(context, sandbox)) return *ended;
      if (Clock::now() >= until) {
        note("Unable to restore the sandbox connection within 60 seconds.");
        return kLost;
      }
      began = Clock::now();
      code = attach_once(context, sandbox, terminal);
      const bool again = !code.ok() || (*code == kLost && Clock::now() - began < kWasUp);
      if (!again) break;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }
  return code;
}

}  // namespace openshell::cli
