#include "programs/supervisor/logging.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <utility>

#include "observability/log.hpp"
#include "programs/supervisor/denial_rate.hpp"

namespace openshell::supervisor {
namespace {

using Clock = std::chrono::system_clock;

constexpr std::size_t kMaxReasonBytes = 256;
constexpr std::size_t kMaxMessageBytes = 120;
constexpr int kKeptFiles = 3;
constexpr std::size_t kMaxFileBytes =
    64 << 20;  // of one day's file: a workload that is refused a thousand times a second must not fill the host's disk
constexpr std::size_t kMaxWriteBytes = 64 * 1024;  // of lines that go to the file in one piece
constexpr const char* kOcsfTarget = "ocsf";

std::string timestamp(Clock::time_point at) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

std::string day(Clock::time_point at) { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(Clock::to_time_t(at))); }

const char* level_word(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
      return "TRACE";
    case spdlog::level::debug:
      return "DEBUG";
    case spdlog::level::info:
      return "INFO";
    case spdlog::level::warn:
      return "WARN";
    default:
      return "ERROR";
  }
}

/// Whole lines a write, so that lines of several threads never mix; a new file each day (UTC), the newest three are kept.
class DailyFile {
 public:
  explicit DailyFile(std::string directory) : directory_{std::move(directory)} {}
  ~DailyFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  bool open(const std::string& today) {
    if (fd_ >= 0) ::close(fd_);
    today_ = today;
    fd_ = ::open(path(today).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    struct stat info {};
    bytes_ = fd_ >= 0 && ::fstat(fd_, &info) == 0 ? static_cast<std::size_t>(info.st_size) : 0;
    full_ = false;
    prune();
    return fd_ >= 0;
  }

  /// All lines of one day.
  void write(const std::string& lines, Clock::time_point at) {
    const std::lock_guard lock{mutex_};
    if (const auto now = day(at); now != today_) open(now);
    if (bytes_ + lines.size() > kMaxFileBytes) {
      if (!std::exchange(full_, true))
        append(timestamp(at) + " WARN supervisor: this file has reached its limit; lines until midnight are left out\n");
      return;
    }
    append(lines);
  }

 private:
  void append(const std::string& line) {
    if (fd_ < 0 || ::write(fd_, line.data(), line.size()) < 0) return;  // a full disk loses the line, nothing else
    bytes_ += line.size();
  }

  std::string path(const std::string& today) const { return directory_ + "/openshell." + today + ".log"; }

  void prune() const {
    std::error_code ignored;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator{directory_, ignored}) {
      const auto name = entry.path().filename().string();
      if (name.starts_with("openshell.") && name.ends_with(".log")) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    while (files.size() > kKeptFiles) {
      std::filesystem::remove(files.front(), ignored);
      files.erase(files.begin());
    }
  }

  std::string directory_;
  std::string today_;
  std::mutex mutex_;
  int fd_ = -1;
  std::size_t bytes_ = 0;
  bool full_ = false;
};

/// Where every line goes; made once.
struct Outlets {
  std::unique_ptr<DailyFile> file;
  std::shared_ptr<LogQueue> queue;
  spdlog::level::level_enum console = spdlog::level::warn;
  spdlog::level::level_enum push = spdlog::level::info;
};
Outlets& outlets() {
  static Outlets instance;
  return instance;
}

void to_console(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }

class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    auto& out = outlets();
    const auto text = log::redacted(std::string_view{message.payload.data(), message.payload.size()});
    const auto line = timestamp(message.time) + ' ' + level_word(message.level) + " supervisor: " + text + '\n';
    if (message.level >= out.console) to_console(line);
    if (out.file && message.level >= spdlog::level::info) out.file->write(line, message.time);
    if (out.queue && message.level >= out.push) out.queue->push({message.time, level_word(message.level), "supervisor", text, {}}, false);
  }
  void flush_() override {}
};

spdlog::level::level_enum parse_level(const std::string& word, spdlog::level::level_enum otherwise) {
  const auto level = spdlog::level::from_str(word);
  return level == spdlog::level::off && word != "off" ? otherwise : level;
}

const char* severity_word(egress::Severity severity) {
  switch (severity) {
    case egress::Severity::kInformational:
      return "INFO";
    case egress::Severity::kLow:
      return "LOW";
    case egress::Severity::kMedium:
      return "MED";
    case egress::Severity::kHigh:
      return "HIGH";
  }
  return "UNKN";
}

const char* action_word(egress::Disposition disposition) {
  switch (disposition) {
    case egress::Disposition::kAllowed:
      return " ALLOWED";
    case egress::Disposition::kDenied:
      return " DENIED";
    case egress::Disposition::kAudit:
      return " AUDIT";
    case egress::Disposition::kNone:
      return "";
  }
  return "";
}

/// What a workload chose (a program's path, a reason that quotes it) must not forge a line, a bracket field or a terminal escape: brackets,
/// backslashes and controls are escaped, and blanks too where the value stands alone in a field.
std::string without_markup(const std::string& text, bool blanks_too) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || c == '[' || c == ']') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f || (c == ' ' && blanks_too)) {
      out += fmt::format("\\u{{{:x}}}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string escaped(const std::string& text) { return without_markup(text, true); }

/// Free text: one line, escaped but for its blanks, cut at a character border.
std::string bounded(std::string text, std::size_t limit) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  if (text.size() <= limit) return without_markup(text, false);
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return without_markup(text.substr(0, limit), false) + "...";
}

std::string context(const egress::ActivityEvent& event) {
  std::string out;
  if (!event.policy.empty() || !event.rule_type.empty()) {
    out += " [policy:" + (event.policy.empty() ? "-" : escaped(event.policy)) +
           " engine:" + (event.rule_type.empty() ? "-" : event.rule_type) + "]";
  }
  if (event.disposition == egress::Disposition::kDenied) {
    const auto& reason = event.message.empty() ? event.status_detail : event.message;
    if (!reason.empty()) out += " [reason:" + bounded(reason, kMaxReasonBytes) + "]";
  }
  return out;
}

std::string process(const egress::ActivityEvent& event) {
  if (event.binary.empty()) return {};
  return ' ' + escaped(event.binary) + '(' + std::to_string(event.pid) + ") ->";
}

std::string url(const egress::ActivityEvent& event) {
  const bool usual = event.port.value == (event.tls ? 443 : 80);
  return std::string{event.tls ? "https://" : "http://"} + event.host + (usual ? "" : ':' + std::to_string(event.port.value)) + event.path;
}

}  // namespace

std::string shorthand(const egress::ActivityEvent& event) {
  const std::string severity = std::string{" ["} + severity_word(event.severity) + "]";
  const bool denied = event.disposition == egress::Disposition::kDenied;
  switch (event.event_class) {
    case egress::EventClass::kHttp:
      return "HTTP:" + event.method + severity + action_word(event.disposition) + process(event) + ' ' + event.method + ' ' + url(event) +
             context(event);
    case egress::EventClass::kNetwork: {
      auto line = "NET:OPEN" + severity + action_word(event.disposition) + process(event) + ' ' + event.host + ':' +
                  std::to_string(event.port.value) + context(event);
      if (!denied && event.status_detail == "transparent_tcp_allowed" && !event.message.empty())
        line += " [msg:" + bounded(event.message, kMaxMessageBytes) + "]";
      return line;
    }
    case egress::EventClass::kDns:
      return "NET:DNS" + severity + action_word(event.disposition) + ' ' + event.host + context(event);
    case egress::EventClass::kFinding:
      return "FINDING:" + std::string{denied ? "BLOCKED" : "OBSERVED"} + severity + " \"" + bounded(event.message, kMaxMessageBytes) +
             "\" [type:" + escaped(event.status_detail) + "]";
    case egress::EventClass::kConfig:
      return "CONFIG:OTHER" + severity + ' ' + bounded(event.message, kMaxReasonBytes);
    case egress::EventClass::kBase:
      return "EVENT" + severity + ' ' + bounded(event.message, kMaxReasonBytes);
  }
  return "EVENT" + severity;
}

namespace {

/// Refused opens of one key may come by the thousand a second; requests are each read by a person or an agent.
bool admitted(const egress::ActivityEvent& event) {
  if (event.denial_id.empty() || event.event_class != egress::EventClass::kNetwork) return true;
  static std::mutex mutex;
  static DenialRate rate;
  const std::lock_guard lock{mutex};
  return rate.admit(event.host, event.port.value, event.binary, std::chrono::steady_clock::now());
}

}  // namespace

std::string file_line(const egress::ActivityEvent& event) {
  const auto at = event.at == Clock::time_point{} ? Clock::now() : event.at;
  return timestamp(at) + " OCSF " + shorthand(event);
}

void log_events(const std::vector<egress::ActivityEvent>& events) {
  auto& out = outlets();
  std::string lines;
  std::chrono::sys_days today{};
  Clock::time_point last{};
  const auto write = [&] {
    if (out.file && !lines.empty()) out.file->write(std::exchange(lines, {}), last);
  };
  for (const auto& event : events) {
    auto text = shorthand(event);
    const auto at = event.at == Clock::time_point{} ? Clock::now() : event.at;
    if (const auto date = std::chrono::floor<std::chrono::days>(at); date != today || lines.size() > kMaxWriteBytes) {
      write();
      today = date;
    }
    last = at;
    auto line = timestamp(at) + " OCSF " + text + '\n';
    if (out.console <= spdlog::level::info) to_console(line);
    lines += line;
    if (!out.queue || !admitted(event)) continue;
    LogLine pushed{at, "OCSF", kOcsfTarget, std::move(text), {}};
    const bool denied = !event.denial_id.empty();
    if (denied) pushed.fields.emplace("denial_id", event.denial_id.str());
    out.queue->push(std::move(pushed), denied);
  }
  write();
}

void start_logging(const LoggingOptions& options, std::shared_ptr<LogQueue> queue) {
  auto& out = outlets();
  out.queue = std::move(queue);
  out.console = parse_level(options.console_level, spdlog::level::warn);
  out.push = parse_level(options.push_level, spdlog::level::info);
  bool file_failed = false;
  if (!options.log_dir.empty()) {
    out.file = std::make_unique<DailyFile>(options.log_dir);
    file_failed = !out.file->open(day(Clock::now()));
    if (file_failed) out.file.reset();
  }
  auto logger = std::make_shared<spdlog::logger>("supervisor", std::make_shared<Sink>());
  logger->set_level(std::min({out.console, out.push, spdlog::level::info}));
  spdlog::set_default_logger(std::move(logger));
  if (file_failed) spdlog::warn("Could not open {} for log rotation; using stderr-only logging", options.log_dir);
}

}  // namespace openshell::supervisor
