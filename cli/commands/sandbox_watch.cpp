#include <absl/strings/str_cat.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "cli/commands/commands.hpp"
#include "cli/log_line.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReconnectPause{1};
constexpr std::chrono::seconds kReconnectFor{60};  // without a single event; then the gateway counts as gone

struct Options {
  std::string name, after;
  bool logs = false, terminal = false;
  std::uint32_t log_lines = 0, events = 20;
  Format format = Format::table;
};

json::object event_document(const v1::SandboxStreamEvent& event) {
  json::object out;
  if (!event.cursor().empty()) out["cursor"] = event.cursor();
  if (event.has_sandbox()) out["sandbox"] = sandbox_document(event.sandbox());
  if (event.has_log()) {
    const auto& line = event.log();
    json::object fields;
    for (const auto& [key, value] : std::map<std::string, std::string>(line.fields().begin(), line.fields().end())) fields[key] = value;
    out["log"] = {{"time", rfc3339(line.event_time())}, {"source", line.source()}, {"level", line.level()}, {"target", line.target()},
                  {"message", line.message()},          {"fields", fields}};
  }
  if (event.has_event()) {
    const auto& platform = event.event();
    json::object metadata;
    for (const auto& [key, value] : std::map<std::string, std::string>(platform.metadata().begin(), platform.metadata().end()))
      metadata[key] = value;
    out["event"] = {
        {"time", rfc3339(platform.event_time())}, {"source", platform.source()}, {"type", platform.type()}, {"reason", platform.reason()},
        {"message", platform.message()},          {"metadata", metadata}};
  }
  if (event.has_warning()) out["warning"] = event.warning().message();
  return out;
}

/// Prints what comes, and remembers where it is.
class Watching {
 public:
  explicit Watching(const Options& options) : options_{options}, cursor_{options.after} {}

  bool take(const v1::SandboxStreamEvent& event) {
    heard_ = Clock::now();
    if (event.cursor() > cursor_) cursor_ = event.cursor();
    if (options_.format != Format::table) {
      print(json::serialize(event_document(event)));  // one event a line
    } else {
      line(event);
    }
    std::fflush(stdout);
    return true;
  }

  const std::string& cursor() const { return cursor_; }
  void drop_cursor() { cursor_.clear(); }
  bool given_up() const { return Clock::now() - heard_ > kReconnectFor; }

 private:
  void line(const v1::SandboxStreamEvent& event) {
    if (event.has_warning()) note("WARN " + harmless(event.warning().message()));
    if (event.has_log()) print(harmless(show_log_line(event.log())));
    if (event.has_event()) {
      const auto& platform = event.event();
      print(harmless(
          absl::StrCat(show_time(platform.event_time()), "  ", platform.type(), "  ", platform.reason(), ": ", platform.message())));
    }
    if (!event.has_sandbox()) return;
    const auto& sandbox = event.sandbox();
    auto text = phase_name(sandbox.status().phase());
    if (sandbox.status().has_exit_code()) absl::StrAppend(&text, "  exit code ", sandbox.status().exit_code());
    if (const auto reason = not_ready_reason(sandbox); !reason.empty()) absl::StrAppend(&text, "  ", reason);
    if (text == shown_) return;
    shown_ = text;
    google::protobuf::Timestamp now;
    now.set_seconds(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count());
    print(absl::StrCat(show_time(now), "  Phase   ", harmless(text)));
  }

  const Options& options_;
  std::string cursor_;
  std::string shown_;
  Clock::time_point heard_ = Clock::now();
};

v1::WatchSandboxRequest make_request(Context& context, const Options& options, const std::string& name, const std::string& cursor) {
  auto request = context.scoped<v1::WatchSandboxRequest>();
  request.set_sandbox(name);
  request.set_follow_status(true);
  request.set_follow_events(true);
  request.set_follow_logs(options.logs);
  request.set_stop_on_terminal(options.terminal);
  request.set_resume_after_cursor(cursor);
  request.set_event_tail(options.events);
  request.set_log_tail_lines(options.log_lines);
  return request;
}

absl::StatusOr<int> watch(Context& context, const Options& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  Watching watching{options};
  while (true) {
    const auto ended = (*client)->watch(make_request(context, options, *name, watching.cursor()),
                                        [&](const v1::SandboxStreamEvent& event) { return watching.take(event); });
    if (absl::IsOutOfRange(ended) && options.after.empty()) {
      // The gateway started anew meanwhile, or dropped what we had not seen: go on with what there is, and say so.
      note("WARN some events were missed while the gateway was away");
      watching.drop_cursor();
      continue;
    }
    if (!absl::IsUnavailable(ended) || watching.given_up()) return ended.ok() ? absl::StatusOr<int>{0} : ended;
    std::this_thread::sleep_for(kReconnectPause);
  }
}

}  // namespace

void add_sandbox_watch(CLI::App& sandbox, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = sandbox.add_subcommand("watch", "Follow a sandbox: phases, events of its platform, and its log where asked for");
  command->add_option("name", o->name, "Default: the sandbox last used");
  command->add_flag("--logs", o->logs, "Log lines too");
  command->add_option("--log-lines", o->log_lines, "Log lines of the past; 0: 200");
  command->add_option("--events", o->events, "Platform events of the past");
  command->add_option("--after", o->after, "Go on after this cursor (the `cursor` of -o json); fails where it is no longer known");
  command->add_flag("--until-settled", o->terminal, "End when it is ready, completed, stopped or failed");
  add_output_option(*command, o->format);
  command->footer("With -o json or yaml: one JSON object a line. A lost connection is taken up again where it broke.");
  command->callback([&chosen, o] { chosen = [o](Context& c) { return watch(c, *o); }; });
}

}  // namespace openshell::cli
