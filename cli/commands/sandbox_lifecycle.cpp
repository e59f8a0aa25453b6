#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "cli/commands/commands.hpp"
#include "cli/log_line.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/sandbox_wait.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

using Clock = std::chrono::system_clock;

constexpr int kDefaultLifecycleSeconds = 300;
constexpr int kTimedOut = 124;

int lifecycle_seconds() {
  const char* text = std::getenv("OPENSHELL_LIFECYCLE_TIMEOUT");
  const int seconds = text == nullptr ? 0 : std::atoi(text);
  return seconds > 0 ? seconds : kDefaultLifecycleSeconds;
}

/// Watches until the goal is settled. The last snapshot stands in `seen`.
absl::Status watch_for(Context& context, GatewayClient& client, const std::string& name, Goal goal, int seconds, v1::Sandbox& seen) {
  auto request = context.scoped<v1::WatchSandboxRequest>();
  request.set_sandbox(name);
  request.set_follow_status(true);
  std::optional<absl::Status> outcome;
  const auto take = [&](const v1::SandboxStreamEvent& event) {
    if (event.has_warning()) note("WARN " + harmless(event.warning().message()));
    if (!event.has_sandbox()) return true;
    seen = event.sandbox();
    outcome = settled(goal, seen);
    return !outcome.has_value();
  };
  const auto ended = client.watch(request, take, Clock::now() + std::chrono::seconds{seconds});
  if (outcome) return *outcome;
  if (absl::IsDeadlineExceeded(ended))
    return absl::DeadlineExceededError(absl::StrCat("timed out after ", seconds, "s waiting for sandbox to reach ", goal_name(goal)));
  if (goal == Goal::deleted && (ended.ok() || absl::IsNotFound(ended))) return absl::OkStatus();
  if (!ended.ok()) return ended;
  return absl::UnavailableError(absl::StrCat("sandbox watch ended before reaching ", goal_name(goal)));
}

void show(const v1::Sandbox& sandbox, Format format, const std::string& line) {
  if (format == Format::table) {
    print(line);
  } else {
    print_document(sandbox_document(sandbox), format);
  }
}

// ---- stop, start ----

struct Options {
  std::string name;
  Format format = Format::table;
};

absl::StatusOr<int> stop(Context& context, const Options& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  stop_forwards(context, *name);
  auto request = context.scoped<v1::StopSandboxRequest>();
  request.set_name(*name);
  auto answer = (*client)->stop_sandbox(request);
  if (!answer.ok()) return answer.status();
  auto sandbox = answer->sandbox();
  // A finished sandbox keeps its result: stopping it ends what still served exec, and it stays what it was.
  const bool done = sandbox.status().phase() == v1::SANDBOX_PHASE_COMPLETED;
  if (auto settled_now = settled(Goal::stopped, sandbox); !done && (!settled_now || !settled_now->ok())) {
    if (auto waited = watch_for(context, **client, *name, Goal::stopped, lifecycle_seconds(), sandbox); !waited.ok()) return waited;
  }
  context.remember(*name);
  show(sandbox, options.format, absl::StrCat(mark(kDone), " Stopped sandbox ", *name));
  return 0;
}

absl::StatusOr<int> start(Context& context, const Options& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::StartSandboxRequest>();
  request.set_name(*name);
  auto answer = (*client)->start_sandbox(request);
  if (!answer.ok()) return answer.status();
  auto sandbox = answer->sandbox();
  if (sandbox.status().phase() != v1::SANDBOX_PHASE_READY) {
    if (auto waited = watch_for(context, **client, *name, Goal::ready, lifecycle_seconds(), sandbox); !waited.ok()) {
      // A main process that is over already did start; what it ended with stands in the record.
      if (!sandbox.status().has_exit_code()) return waited;
    }
  }
  context.remember(*name);
  show(sandbox, options.format, absl::StrCat(mark(kDone), " Started sandbox ", *name));
  if (sandbox.status().has_exit_code()) note(absl::StrCat("Its main process has ended already: exit code ", sandbox.status().exit_code()));
  return 0;
}

// ---- wait ----

struct WaitOptions {
  std::string name;
  Goal goal = Goal::ready;
  int timeout = 0;
  Format format = Format::table;
};

std::string reached(const v1::Sandbox& sandbox, const std::string& name, Goal goal) {
  switch (goal) {
    case Goal::ready:
      return absl::StrCat(mark(kDone), " Sandbox ", name, " is ready");
    case Goal::stopped:
      return absl::StrCat(mark(kDone), " Sandbox ", name, " is stopped");
    case Goal::exit:
      return absl::StrCat(mark(kDone), " Main process of sandbox ", name, " ended: exit code ", sandbox.status().exit_code());
    case Goal::deleted:
      return absl::StrCat(mark(kDone), " Sandbox ", name, " is gone");
  }
  return "";
}

absl::StatusOr<int> wait(Context& context, const WaitOptions& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  v1::Sandbox sandbox;
  const int seconds = options.timeout > 0 ? options.timeout : lifecycle_seconds();
  auto waited = watch_for(context, **client, *name, options.goal, seconds, sandbox);
  if (absl::IsDeadlineExceeded(waited)) {
    note(std::string{waited.message()});
    return kTimedOut;
  }
  if (!waited.ok()) return waited;
  if (options.goal == Goal::deleted) {
    print(reached(sandbox, *name, options.goal));
    return 0;
  }
  show(sandbox, options.format, reached(sandbox, *name, options.goal));
  return options.goal == Goal::exit ? sandbox.status().exit_code() : 0;
}

}  // namespace

void add_sandbox_lifecycle(CLI::App& sandbox, Action& chosen) {
  const auto add = [&](const char* verb, const char* text, auto run) {
    auto o = std::make_shared<Options>();
    auto* command = sandbox.add_subcommand(verb, text);
    command->add_option("name", o->name, "Default: the sandbox last used");
    add_output_option(*command, o->format);
    command->callback([&chosen, o, run] { chosen = [o, run](Context& c) { return run(c, *o); }; });
  };
  add("stop", "End a sandbox's processes; its files stay", stop);
  add("start", "Start a stopped, finished or failed sandbox again", start);

  auto o = std::make_shared<WaitOptions>();
  auto* command = sandbox.add_subcommand("wait", "Wait until a sandbox is ready, stopped, gone, or its main process has ended");
  command->add_option("name", o->name, "Default: the sandbox last used");
  const std::map<std::string, Goal> goals{
      {"ready", Goal::ready}, {"stopped", Goal::stopped}, {"exit", Goal::exit}, {"deleted", Goal::deleted}};
  command->add_option("--for", o->goal, "ready, stopped, exit or deleted; with exit the exit code is the main process's")
      ->transform(CLI::CheckedTransformer(goals, CLI::ignore_case))
      ->default_str("ready");
  command->add_option("--timeout", o->timeout, "Seconds; default OPENSHELL_LIFECYCLE_TIMEOUT or 300; exit code 124 when it is over")
      ->check(CLI::PositiveNumber);
  add_output_option(*command, o->format);
  command->callback([&chosen, o] { chosen = [o](Context& c) { return wait(c, *o); }; });
}

}  // namespace openshell::cli
