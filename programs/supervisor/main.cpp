// openshell-supervisor: one process a sandbox, outside of it. Everything that the workload sends or receives is decided here. By itself,
// with --role=network-proxy, it is the same proxy for programs that nobody confines.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "observability/core_dumps.hpp"
#include "observability/lock_checks.hpp"
#include "programs/supervisor/network_proxy.hpp"
#include "programs/supervisor/options.hpp"
#include "programs/supervisor/readiness.hpp"
#include "programs/supervisor/supervisor.hpp"

namespace {

using namespace openshell::supervisor;

constexpr int kExitStartup = 1;
constexpr int kExitForced = 143;

std::optional<std::string> from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>{value} : std::nullopt;
}

/// SIGTERM and SIGINT reach the main thread as an event; the second one ends the process at once, and the sandbox then expires by itself.
void watch_signals(sigset_t signals, EventBox& events) {
  std::thread{[signals, &events] {
    int number = 0;
    if (sigwait(&signals, &number) == 0) events.push(StopSignal{});
    if (sigwait(&signals, &number) == 0) _exit(kExitForced);
  }}.detach();
}

/// The driver holds the other end: its end of file means that nobody watches over this process any more.
void watch_parent(int fd) {
  std::thread{[fd] {
    char byte;
    while (true) {
      const auto count = ::read(fd, &byte, 1);
      if (count == 0 || (count < 0 && errno != EINTR)) _exit(kExitStartup);
    }
  }}.detach();
}

int health(const std::vector<std::string>& arguments) {
  std::string path = from_environment("OPENSHELL_HEALTH_SOCKET_PATH").value_or("");
  if (arguments.size() == 3 && arguments[1] == "--socket") path = arguments[2];
  return is_ready(path) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  openshell::omit_lock_checks();
  if (!openshell::forbid_core_dumps()) {
    std::fprintf(stderr, "openshell-supervisor: core dumps can not be switched off\n");
    return kExitStartup;
  }
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "health") return health(arguments);
  if (!arguments.empty() && arguments.front() == "--version") {
    std::puts("openshell-supervisor 0.1.0");
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  if (is_network_proxy(arguments)) {
    const auto proxy = parse_network_proxy_options(arguments, from_environment);
    if (proxy.ok()) return run_network_proxy(*proxy);
    std::fprintf(stderr, "openshell-supervisor: %s\n", std::string{proxy.status().message()}.c_str());
    return kExitStartup;
  }
  std::signal(SIGHUP, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread, so that all inherit it

  auto options = parse_options(arguments, from_environment);
  if (!options.ok()) {
    std::fprintf(stderr, "openshell-supervisor: %s\n", std::string{options.status().message()}.c_str());
    return kExitStartup;
  }
  static EventBox events;
  watch_signals(signals, events);
  if (options->parent_liveness_fd) watch_parent(*options->parent_liveness_fd);
  return run_supervisor(*options, events);
}
