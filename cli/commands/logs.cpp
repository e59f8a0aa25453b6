#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "cli/commands/commands.hpp"
#include "cli/log_line.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

struct Options {
  std::string name, since, level;
  std::uint32_t lines = 200;
  bool tail = false;
  std::vector<std::string> sources;
};

absl::StatusOr<std::optional<google::protobuf::Timestamp>> since_time(const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::int64_t count = 0;
  if (!absl::SimpleAtoi(text.substr(0, text.size() - 1), &count) || count < 0) {
    return absl::InvalidArgumentError(absl::StrCat("invalid duration: ", text, " (expected e.g. 5m, 1h, 30s)"));
  }
  const auto unit = text.back();
  if (unit != 's' && unit != 'm' && unit != 'h')
    return absl::InvalidArgumentError(absl::StrCat("unknown duration unit: ", std::string{unit}, " (use s, m, or h)"));
  const auto seconds = count * (unit == 'h' ? 3'600 : unit == 'm' ? 60 : 1);
  google::protobuf::Timestamp time;
  time.set_seconds(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count() - seconds);
  return time;
}

absl::StatusOr<int> logs(Context& context, const Options& options) {
  auto since = since_time(options.since);
  if (!since.ok()) return since.status();
  std::vector<std::string> sources;
  for (const auto& source : options.sources) {
    if (source != "all") sources.push_back(source);
  }
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  const auto level = absl::AsciiStrToUpper(options.level);
  if (options.tail) {
    auto watch = context.scoped<v1::WatchSandboxRequest>();
    watch.set_sandbox(*name);
    watch.set_follow_logs(true);
    watch.set_log_tail_lines(options.lines);
    if (*since) *watch.mutable_since_time() = **since;
    for (const auto& source : sources) watch.add_log_sources(source);
    watch.set_log_min_level(level);
    auto ended = (*client)->watch(watch, [](const v1::SandboxStreamEvent& event) {
      if (event.has_log()) {
        print(harmless(show_log_line(event.log())));
        std::fflush(stdout);
      }
      return true;
    });
    if (!ended.ok()) return ended;
    return 0;
  }
  auto request = context.scoped<v1::GetSandboxLogsRequest>();
  request.set_sandbox(*name);
  request.set_lines(options.lines);
  if (*since) *request.mutable_since_time() = **since;
  for (const auto& source : sources) request.add_sources(source);
  request.set_min_level(level);
  auto answer = (*client)->get_logs(request);
  if (!answer.ok()) return answer.status();
  for (const auto& line : answer->logs()) print(harmless(show_log_line(line)));
  if (*since && answer->buffer_total() > 0) {
    note(absl::StrCat("Warning: log buffer contains only the last ", answer->buffer_total(), " lines; --since results may be incomplete."));
  }
  return 0;
}

}  // namespace

void add_log_commands(CLI::App& root, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = root.add_subcommand("logs", "Show what a sandbox, its supervisor and the gateway logged")->alias("lg");
  command->add_option("name", o->name, "Default: the sandbox last used");
  command->add_option("-n", o->lines, "Lines");
  command->add_flag("--tail", o->tail, "Go on as they come");
  command->add_option("--since", o->since, "30s, 5m, 1h");
  command->add_option("--source", o->sources, "gateway, sandbox or all; repeatable")->take_all()->allow_extra_args(false);
  command->add_option("--level", o->level)->check(CLI::IsMember({"error", "warn", "info", "debug", "trace"}, CLI::ignore_case));
  command->callback([&chosen, o] { chosen = [o](Context& c) { return logs(c, *o); }; });
}

}  // namespace openshell::cli
