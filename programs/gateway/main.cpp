// openshell-gateway: the control plane. `openshell-gateway --help` lists what it takes.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "observability/core_dumps.hpp"
#include "observability/lock_checks.hpp"
#include "observability/log.hpp"
#include "observability/text.hpp"
#include "programs/gateway/actors_command.hpp"
#include "programs/gateway/command_line.hpp"
#include "programs/gateway/config.hpp"
#include "programs/gateway/gateway.hpp"
#include "programs/gateway/local_pki.hpp"
#include "programs/gateway/places.hpp"

namespace {

using namespace openshell;
using namespace openshell::gateway;

constexpr int kUsage = 2;
constexpr int kFailed = 1;

int fail(const absl::Status& status, int code = kFailed) {
  std::fprintf(stderr, "openshell-gateway: %s\n", std::string{status.message()}.c_str());
  return code;
}

int generate(const CommandLine& flags, const Environment& environment) {
  GenerateOptions options;
  options.server_names = flags.list("server-san");
  if (flags.has("dry-run")) {
    auto text = dry_run(options);
    if (!text.ok()) return fail(text.status());
    std::fputs(text->c_str(), stdout);
    return 0;
  }
  auto places = Places::find(environment, ::geteuid());
  auto directory = flags.find("output-dir");
  if (!directory && flags.has("namespace"))
    return fail(absl::InvalidArgumentError("generate-certs needs --output-dir DIR (Kubernetes secrets are not available in this build)"),
                kUsage);
  if (!directory) {  // where this user's gateway looks for them
    if (!places.ok()) return fail(places.status());
    if (auto status = places->make(::geteuid()); !status.ok()) return fail(status);
    directory = places->tls;
  }
  if (flags.has("jwt-only")) return fail(absl::InvalidArgumentError("--jwt-only conflicts with --output-dir"), kUsage);
  options.directory = *directory;
  if (!flags.has("no-client-copy") && places.ok() && !places->user_config.empty())
    options.client_copy = cat(places->user_config, "/gateways/openshell/mtls");
  auto said = generate_certs(options);
  if (!said.ok()) return fail(said.status());
  for (const auto& line : *said) std::printf("%s\n", line.c_str());
  return 0;
}

/// Every connection is two descriptors here; the soft limit of a login session would be reached by a few hundred.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int serve(const CommandLine& flags, const Environment& environment) {
  const auto started = std::chrono::steady_clock::now();
  auto config = load_config(flags, environment, ::geteuid());
  if (!config.ok()) return fail(config.status());
  const auto format = environment.find("OPENSHELL_LOG_FORMAT").value_or("text") == "json" ? log::Format::kJson : log::Format::kText;
  log::init({config->log_level, format, "openshell-gateway"});
  for (const auto& warning : config->warnings) log::warning(warning);
  raise_descriptor_limit();

  // Every thread that follows has the signals blocked; this one waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  auto gateway = Gateway::start(*config);
  if (!gateway.ok()) return fail(gateway.status());
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started).count();
  log::info("gateway ready", {{"endpoint", (*gateway)->endpoint()},
                              {"version", std::string{kOurVersion}},
                              {"driver", config->compute_driver},
                              {"took_ms", std::to_string(took)}});

  int signal = 0;
  ::sigwait(&signals, &signal);
  log::info("gateway stopping", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
  // A second signal ends it at once.
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  if (auto status = (*gateway)->stop(); !status.ok()) return fail(status);
  log::info("gateway stopped");
  return 0;
}

/// The socket that a gateway with these flags and this environment would listen on.
absl::StatusOr<std::string> operator_socket(const CommandLine& flags, const Environment& environment) {
  if (auto given = flags.find("socket")) return *given;
  auto config = load_config(flags, environment, ::geteuid());
  if (!config.ok()) return config.status();
  return config->operator_socket;
}

int show_actors(const CommandLine& flags, const Environment& environment) {
  const auto socket = operator_socket(flags, environment);
  if (!socket.ok()) return fail(socket.status());
  const bool as_json = flags.has("json");
  const auto print = [](const std::string& text) { return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0; };
  if (!flags.has("watch")) {
    auto answer = ask_operator(*socket, "GET", "/actors");
    if (!answer.ok()) return fail(answer.status());
    auto text = as_json ? absl::StatusOr<std::string>{*answer + "\n"} : actors_text(*answer);
    if (!text.ok()) return fail(text.status());
    return print(*text) ? 0 : kFailed;
  }
  ::signal(SIGPIPE, SIG_IGN);
  bool written = true;
  const auto status = follow_operator(*socket, [&](const std::string& event, const std::string& data) {
    if (as_json) return written = print(cat("{\"event\":\"", event, "\",\"data\":", data, "}\n"));
    const auto text = actors_text(data);
    return written = text.ok() && print(cat("---- ", event, "\n", *text));
  });
  return written && !status.ok() ? fail(status) : kFailed;
}

int operator_url(const CommandLine& flags, const Environment& environment) {
  const auto socket = operator_socket(flags, environment);
  if (!socket.ok()) return fail(socket.status());
  auto answer = ask_operator(*socket, "POST", "/login-token");
  if (!answer.ok()) return fail(answer.status());
  auto url = login_url(*answer);
  if (!url.ok()) return fail(url.status());
  std::printf("%s\n", url->c_str());
  return 0;
}

int preflight(const CommandLine& flags, const Environment& environment) {
  std::vector<std::string> arguments = flags.rest();
  if (!arguments.empty() && flags.has("path")) return fail(absl::InvalidArgumentError("--path goes without further arguments"), kUsage);
  if (const auto path = flags.find("path")) arguments = {"--config", *path};
  auto replayed = CommandLine::parse(arguments, environment);
  if (!replayed.ok()) return fail(replayed.status(), kUsage);
  if (replayed->command() != Command::kServe) return 0;
  auto config = load_config(*replayed, environment, ::geteuid());
  if (config.ok()) return 0;
  const auto path = replayed->find("config");
  FileProblem problem = FileProblem::kNone;
  if (path) (void)read_settings_file(*path, &problem);
  static constexpr const char* kCategories[] = {"malformed",       "non_regular_path", "missing_path",   "unreadable_path",    "malformed",
                                                "missing_version", "legacy_schema_v1", "future_version", "unsupported_version"};
  if (!path) return fail(config.status());
  std::fprintf(stderr, "gateway config preflight failed: path='%s' category=%s; the file was preserved unchanged; %s\n", path->c_str(),
               kCategories[static_cast<int>(problem)], std::string{config.status().message()}.c_str());
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  openshell::omit_lock_checks();
  if (!openshell::forbid_core_dumps())
    return fail(absl::FailedPreconditionError("core dumps can not be switched off: setrlimit(RLIMIT_CORE) failed"));
  const Environment environment = Environment::of_process();
  const auto flags = CommandLine::parse({argv + 1, argv + argc}, environment);
  if (!flags.ok()) return fail(flags.status(), kUsage);
  switch (flags->command()) {
    case Command::kHelp:
      std::fputs(help_text().c_str(), stdout);
      return 0;
    case Command::kVersion:
      std::printf("openshell-gateway %s\n", std::string{kOurVersion}.c_str());
      return 0;
    case Command::kGenerateCerts:
      return generate(*flags, environment);
    case Command::kPreflight:
      return preflight(*flags, environment);
    case Command::kActors:
      return show_actors(*flags, environment);
    case Command::kOperatorUrl:
      return operator_url(*flags, environment);
    case Command::kServe:
      return serve(*flags, environment);
  }
  return kFailed;
}
