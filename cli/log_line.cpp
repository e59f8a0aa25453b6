#include "cli/log_line.hpp"

#include <fmt/format.h>

#include <map>

#include "openshell.pb.h"

namespace openshell::cli {

std::string harmless(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{{{:x}}}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string show_log_line(const v1::SandboxLogLine& line) {
  auto text = fmt::format("[{}.{:03}] [{:7}] [{:5}] [{}] {}", line.event_time().seconds(), line.event_time().nanos() / 1'000'000,
                          line.source().empty() ? "gateway" : line.source(), line.level(), line.target(), line.message());
  if (line.fields().empty()) return text;
  text += " [";
  const char* separator = "";
  for (const auto& [key, value] : std::map<std::string, std::string>(line.fields().begin(), line.fields().end())) {
    text += separator + key + "=" + value;
    separator = " ";
  }
  return text + "]";
}

}  // namespace openshell::cli
