#include "cli/foreground.hpp"

#include <absl/strings/str_cat.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/ssh/attach.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSessionWait{5};
constexpr std::chrono::milliseconds kSessionPause{50};
constexpr std::array kSurvived{SIGINT, SIGQUIT, SIGTERM};

/// Signals that end a program do nothing to this one meanwhile. Handlers and not SIG_IGN: what is started meanwhile gets the usual effect.
class Unmoved {
 public:
  explicit Unmoved(bool active) : active_{active} {
    if (!active_) return;
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    nothing.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < kSurvived.size(); ++i) sigaction(kSurvived[i], &nothing, &before_[i]);
  }
  ~Unmoved() {
    if (!active_) return;
    for (std::size_t i = 0; i < kSurvived.size(); ++i) sigaction(kSurvived[i], &before_[i], nullptr);
  }
  Unmoved(const Unmoved&) = delete;
  Unmoved& operator=(const Unmoved&) = delete;

 private:
  const bool active_;
  std::array<struct sigaction, kSurvived.size()> before_{};
};

absl::StatusOr<int> attach(Context& context, const Foreground& what) {
  const auto give_up = Clock::now() + kSessionWait;
  while (true) {
    auto code = attach_main(context, what.sandbox, what.terminal);
    if (code.status().code() != absl::StatusCode::kFailedPrecondition || Clock::now() >= give_up) return code;
    std::this_thread::sleep_for(kSessionPause);
  }
}

absl::Status remove(Context& context, const std::string& sandbox) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::DeleteSandboxRequest>();
  request.set_name(sandbox);
  request.set_allow_missing(true);
  return (*client)->delete_sandbox(request).status();
}

/// A main process that has ended does not end its sandbox: says so, and how to have one that stays. Nothing where it runs on (a detach).
void say_what_is_left(Context& context, const std::string& sandbox) {
  auto client = context.client();
  if (!client.ok()) return;
  auto request = context.scoped<v1::GetSandboxRequest>();
  request.set_name(sandbox);
  const auto answer = (*client)->get_sandbox(request);
  if (!answer.ok() || !answer->sandbox().status().has_exit_code()) return;
  std::fprintf(stderr,
               "Sandbox %s is kept: exec, upload and logs go on working until it is stopped or deleted. For one whose main process stays, "
               "use: openshell sandbox create --detach -- sleep infinity\n",
               sandbox.c_str());
}

}  // namespace

absl::StatusOr<int> run_in_foreground(Context& context, const Foreground& what) {
  std::fflush(stdout);  // ours stands before the command's, which comes through another process
  const Unmoved unmoved{what.ephemeral};
  auto code = attach(context, what);
  if (!what.ephemeral) {
    if (code.ok()) say_what_is_left(context, what.sandbox);
    return code;
  }
  const auto removed = remove(context, what.sandbox);
  if (!code.ok() || removed.ok()) return code;
  return absl::Status{removed.code(), absl::StrCat("sandbox command exited with status ", *code,
                                                   ", but ephemeral cleanup failed: ", std::string{removed.message()})};
}

void delete_quietly(Context& context, const std::string& sandbox) { (void)remove(context, sandbox).ok(); }

}  // namespace openshell::cli
