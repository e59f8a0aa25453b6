#include <absl/strings/numbers.h>

#include <cstdio>

#include "drivers/process/monitor.hpp"

// Written by hand, since the monitor stays small; read as strictly as it is written.
namespace openshell::drivers::process {
namespace {

std::string part(const char* name, const std::optional<ExitStatus>& status) {
  if (!status) return {};
  char text[128];
  snprintf(text, sizeof text, ",\"%s\":{\"pid\":%d,\"code\":%d,\"signal\":%d}", name, status->pid, status->code, status->signal);
  return text;
}

bool read_part(const std::string& json, const char* name, std::optional<ExitStatus>& into) {
  const auto at = json.find(std::string(",\"") + name + "\":{");
  if (at == std::string::npos) return true;
  ExitStatus status;
  const std::string format = std::string(",\"") + name + "\":{\"pid\":%d,\"code\":%d,\"signal\":%d";
  if (sscanf(json.c_str() + at, format.c_str(), &status.pid, &status.code, &status.signal) != 3) return false;
  into = status;
  return true;
}

}  // namespace

std::string serialise(const ExitRecord& record) {
  return "{\"generation\":\"" + record.generation + "\"" + part("init", record.init) + part("supervisor", record.supervisor) + "}\n";
}

absl::StatusOr<ExitRecord> parse_exit_record(const std::string& json) {
  constexpr std::string_view kHead = "{\"generation\":\"";
  ExitRecord record;
  const auto end = json.find('"', kHead.size());
  if (json.compare(0, kHead.size(), kHead) != 0 || end == std::string::npos || json.size() < 2 || json.substr(json.size() - 2) != "}\n") {
    return absl::InvalidArgumentError("exit.json is damaged");
  }
  record.generation = json.substr(kHead.size(), end - kHead.size());
  if (!read_part(json, "init", record.init) || !read_part(json, "supervisor", record.supervisor))
    return absl::InvalidArgumentError("exit.json is damaged");
  return record;
}

}  // namespace openshell::drivers::process
