#include "observability/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "observability/text.hpp"

namespace openshell::log {
namespace {

constexpr std::string_view kMask = "[REDACTED]";
constexpr std::size_t kShortestToken = 20;

std::atomic<Level> g_level{Level::kInfo};
std::atomic<Format> g_format{Format::kText};
std::string g_program = "openshell";

/// Only the bytes; the line is made here.
std::shared_ptr<spdlog::logger> make_sink() {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("openshell", sink);
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::utc, "\n"));
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

spdlog::logger& sink() {
  static const std::shared_ptr<spdlog::logger> logger = make_sink();
  return *logger;
}

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kTrace:
      return "trace";
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warn";
    case Level::kError:
      return "error";
    case Level::kOff:
      return "off";
  }
  return "info";
}

std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[40];
  const auto size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", std::string_view{text, size}, millis);
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

bool is_token_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '+' ||
         c == '/' || c == '=' || c == '~';
}

bool starts_with_ignoring_case(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + 32) : b);
         });
}

std::size_t token_length(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size() && is_token_byte(text[size])) ++size;
  return size;
}

/// Bytes at the start of `text` that stay (first) and are masked (second); {0,0}: nothing secret begins here.
std::pair<std::size_t, std::size_t> secret_at(std::string_view text) {
  for (const std::string_view scheme : {"bearer ", "basic "}) {
    if (!starts_with_ignoring_case(text, scheme)) continue;
    // A placeholder is not secret, and seeing it helps.
    const auto rest = text.substr(scheme.size());
    if (rest.starts_with("openshell:resolve:env:")) return {0, 0};
    return {scheme.size(), token_length(rest)};
  }
  if (text.starts_with("eyJ")) {
    const std::size_t size = token_length(text);
    if (size >= kShortestToken && text.substr(0, size).find('.') != std::string_view::npos) return {0, size};
  }
  constexpr std::string_view kPem = "-----BEGIN ";
  if (text.starts_with(kPem) && text.substr(0, 64).find("PRIVATE KEY-----") != std::string_view::npos) {
    const auto end = text.find("-----END ");
    return {0, end == std::string_view::npos ? text.size() : end};
  }
  return {0, 0};
}

std::string text_line(Level level, std::string_view message, std::initializer_list<Field> fields) {
  std::string line = fmt::format("{} {:<5} {}: {}", timestamp(), name_of(level), g_program, message);
  for (const auto& [key, value] : fields) {
    const bool plain = !value.empty() && value.find_first_of(" \"=\n\r\t") == std::string::npos;
    line += cat(" ", key, "=", plain ? value : json_quoted(value));
  }
  return line;
}

std::string json_line(Level level, std::string_view message, std::initializer_list<Field> fields) {
  std::string line = cat("{\"time\":\"", timestamp(), "\",\"level\":\"", name_of(level), "\",\"program\":", json_quoted(g_program),
                         ",\"message\":", json_quoted(message));
  for (const auto& [key, value] : fields) line += cat(",", json_quoted(key), ":", json_quoted(value));
  return line + "}";
}

}  // namespace

absl::StatusOr<Level> parse_level(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    for (const Level level : {Level::kTrace, Level::kDebug, Level::kInfo, Level::kWarning, Level::kError, Level::kOff}) {
      if (word == name_of(level)) return level;
    }
    if (word == "warning") return Level::kWarning;
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return absl::InvalidArgumentError(cat("'", text, "' is not a log level: error, warn, info, debug, trace or off"));
}

void init(const Options& options) {
  g_level = options.level;
  g_format = options.format;
  if (!options.program.empty()) g_program = options.program;
}

bool enabled(Level level) { return level >= g_level.load(std::memory_order_relaxed); }

std::string redacted(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool at_word = true;
  while (!text.empty()) {
    const auto [kept, masked] = at_word ? secret_at(text) : std::pair<std::size_t, std::size_t>{0, 0};
    if (masked > 0) {
      out += text.substr(0, kept);
      out += kMask;
      text.remove_prefix(kept + masked);
      continue;
    }
    at_word = !is_token_byte(text.front()) || text.front() == '=';
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

void write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (!enabled(level)) return;
  const std::string line = redacted(g_format == Format::kJson ? json_line(level, message, fields) : text_line(level, message, fields));
  sink().log(spdlog::level::info, spdlog::string_view_t{line.data(), line.size()});
}

}  // namespace openshell::log
