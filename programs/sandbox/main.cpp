// openshell-sandbox: the runtime inside a workload's namespaces, normally their PID 1. Reads no environment variable, but for the
// fault points of test builds.
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/sandbox/runtime.hpp"
#include "observability/lock_checks.hpp"

namespace {

constexpr int kExitUsage = 2;

constexpr char kUsage[] =
    "openshell-sandbox [--bootstrap PATH] [--log-level LEVEL]\n"
    "openshell-sandbox capability-probe\n"
    "openshell-sandbox capability-probe-launch UID GID\n"
    "\n"
    "  --bootstrap PATH   launch file, unlinked once it was read (default /.openshell/bootstrap)\n"
    "  --log-level LEVEL  trace, debug, info, warn, error or off; to stderr (default warn)\n";

int usage(const std::string& what) {
  std::fputs(fmt::format("openshell-sandbox: {}\n{}", what, kUsage).c_str(), stderr);
  return kExitUsage;
}

std::optional<unsigned> number(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
}

bool set_log_level(const std::string& word) {
  for (const char* known : {"trace", "debug", "info", "warn", "error", "off"}) {
    if (word == known) {
      spdlog::set_level(spdlog::level::from_str(word));
      return true;
    }
  }
  return false;
}

int main_of(const std::vector<std::string>& arguments) {
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  spdlog::set_level(spdlog::level::warn);
  openshell::sandbox::RuntimeOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (argument == "capability-probe" && arguments.size() == i + 1) return openshell::sandbox::capability_probe();
    if (argument == "capability-probe-launch" && arguments.size() == i + 3) {
      const auto uid = number(arguments[i + 1]), gid = number(arguments[i + 2]);
      if (!uid || !gid || *uid == 0 || *gid == 0) return usage("UID and GID must be numbers above 0");
      return openshell::sandbox::capability_probe_launch(*uid, *gid);
    }
    if (argument == "--help" || argument == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argument == "--bootstrap" && has_value) {
      options.bootstrap_path = arguments[++i];
    } else if (argument == "--log-level" && has_value) {
      if (!set_log_level(arguments[++i])) return usage(fmt::format("unknown log level '{}'", arguments[i]));
    } else {
      return usage(fmt::format("unknown or incomplete argument '{}'", argument));
    }
  }
  return openshell::sandbox::run(options);
}

}  // namespace

int main(int argc, char** argv) {
  openshell::omit_lock_checks();
  const int code = main_of({argv + 1, argv + argc});
  spdlog::shutdown();
  std::fflush(nullptr);
  ::_exit(code);  // threads still run; the end of PID 1 ends them and everything below it
}
