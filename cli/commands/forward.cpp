#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "cli/commands/commands.hpp"
#include "cli/endpoint.hpp"
#include "cli/ssh/forward_records.hpp"
#include "cli/ssh/session.hpp"
#include "cli/ssh/socket_name.hpp"
#include "cli/ssh/ssh_program.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kProbeEvery{50}, kProbeTry{200}, kProbeAll{10'000};

struct Options {
  std::string spec, name;
  bool background = false;
  Format format = Format::table;
};

bool wildcard(const std::string& bind) { return bind == "0.0.0.0" || bind == "::" || bind == "*"; }

/// Also of a name that only ssh looks up.
bool port_is_free(const ForwardSpec& spec) {
  const auto where = socket_name(spec.bind, spec.port);
  if (!where) return true;
  const int fd = ::socket(where->name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool free = ::bind(fd, where->get(), where->length) == 0 && ::listen(fd, 1) == 0;
  ::close(fd);
  return free;
}

/// Empty: somebody listens. Else why not.
std::string probe(const ForwardSpec& spec) {
  const auto where = socket_name(wildcard(spec.bind) ? std::string{spec.bind == "::" ? "::1" : "127.0.0.1"} : spec.bind, spec.port);
  if (!where) return {};
  const int fd = ::socket(where->name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int error = ::connect(fd, where->get(), where->length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{fd, POLLOUT, 0};
    socklen_t length = sizeof error;
    if (::poll(&ready, 1, static_cast<int>(kProbeTry.count())) != 1)
      error = ETIMEDOUT;
    else
      (void)::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  }
  ::close(fd);
  return error == 0 ? std::string{} : std::strerror(error);
}

absl::Status await_listener(pid_t child, const ForwardSpec& spec) {
  const auto until = Clock::now() + kProbeAll;
  const auto where = absl::StrCat(spec.bind, ":", spec.port);
  std::string last = "no attempt";
  while (Clock::now() < until) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      const auto with = WIFEXITED(status) ? absl::StrCat(" with status ", WEXITSTATUS(status)) : std::string{};
      return absl::UnavailableError(absl::StrCat("ssh exited", with, " before local forward listener opened on ", where));
    }
    last = probe(spec);
    if (last.empty()) return absl::OkStatus();
    std::this_thread::sleep_for(kProbeEvery);
  }
  ::kill(child, SIGTERM);
  (void)wait_for(child);
  return absl::DeadlineExceededError(
      absl::StrCat("local forward listener did not open on ", where, " within ", kProbeAll.count(), "ms: last probe failed with ", last));
}

std::vector<std::string> forward_words(const ForwardSpec& spec, const std::string& sandbox_id) {
  std::vector<std::string> words{"-N"};
  for (const auto& option : {std::string{"ExitOnForwardFailure=yes"}, std::string{"ControlMaster=no"}, std::string{"ControlPath=none"},
                             std::string{"ControlPersist=no"}, std::string{"ForkAfterAuthentication=no"},
                             absl::StrCat("SetEnv=OPENSHELL_FORWARD_SANDBOX_ID=", sandbox_id)})
    words.insert(words.end(), {"-o", option});
  words.insert(words.end(), {"-L", absl::StrCat(bracketed(spec.bind), ":", spec.port, ":127.0.0.1:", spec.port), "sandbox"});
  return words;
}

/// Who has the port, where it can be told.
absl::Status busy(const ForwardRecords& records, const std::string& gateway, const ForwardSpec& spec) {
  for (const auto& record : records.list(gateway)) {
    if (record.port != spec.port || !ForwardRecords::alive(record)) continue;
    return absl::AlreadyExistsError(absl::StrCat("Port ", spec.port, " is already forwarded to sandbox '", record.sandbox,
                                                 "'.\nStop it with: openshell forward stop ", spec.port, " ", record.sandbox));
  }
  return absl::AlreadyExistsError(absl::StrCat("Port ", spec.port, " is already in use by another process."));
}

void announce(const ForwardSpec& spec, const std::string& name, bool background) {
  print(absl::StrCat("Forwarding port ", spec.port, " to sandbox ", name, background ? " in the background" : ""));
  print(absl::StrCat("Access at: http://", wildcard(spec.bind) ? "localhost" : bracketed(spec.bind), ":", spec.port, "/"));
  if (background) {
    print(absl::StrCat("Stop it with: openshell forward stop ", spec.port, " ", name));
  } else {
    print("Press Ctrl+C to stop");
    print("Hint: pass --background to start forwarding without blocking your terminal");
  }
  std::fflush(stdout);
}

/// The session of a forward: a background forward keeps it, every other way out gives it back.
class HeldSession {
 public:
  HeldSession(Context& context, const SshSession& session) : context_{context}, session_{session} {}
  ~HeldSession() {
    if (!kept_) revoke_session(context_, session_);
  }
  HeldSession(const HeldSession&) = delete;
  HeldSession& operator=(const HeldSession&) = delete;
  void keep() { kept_ = true; }

 private:
  Context& context_;
  const SshSession& session_;
  bool kept_ = false;
};

absl::StatusOr<int> start(Context& context, const Options& options) {
  auto spec = parse_forward_spec(options.spec);
  if (!spec.ok()) return spec.status();
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto records = ForwardRecords::from_environment();
  if (!records.ok()) return records.status();
  auto target = context.target();
  if (!target.ok()) return target.status();
  if (!port_is_free(*spec)) return busy(*records, target->name, *spec);
  auto session = create_session(context, *name);
  if (!session.ok()) return session.status();
  HeldSession held{context, *session};
  auto run = ssh_for(*session, forward_words(*spec, session->sandbox_id));
  if (!run.ok()) return run.status();
  run->input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  run->own_group = run->quiet = options.background;
  if (options.background) run->output = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  auto child = start_ssh(*run);
  if (!child.ok()) return child.status();
  if (auto ready = await_listener(*child, *spec); !ready.ok()) {
    if (!options.background) return ready;
    return absl::Status{ready.code(), absl::StrCat("ssh process started but local forward listener was not reachable: ", ready.message())};
  }
  context.remember(*name);
  if (options.background) {
    const ForwardRecord record{target->name, context.flags().workspace, *name, session->sandbox_id, spec->bind, spec->port, *child};
    if (auto saved = records->save(record); !saved.ok()) {
      ::kill(*child, SIGTERM);
      return saved;
    }
  }
  announce(*spec, *name, options.background);
  if (!options.background) return wait_for(*child);
  held.keep();
  return 0;
}

absl::StatusOr<int> stop(Context& context, const Options& options) {
  auto spec = parse_forward_spec(options.spec);
  if (!spec.ok()) return spec.status();
  auto records = ForwardRecords::from_environment();
  if (!records.ok()) return records.status();
  auto target = context.target();
  if (!target.ok()) return target.status();
  bool found = false;
  for (const auto& record : records->list(target->name)) {
    if (record.port != spec->port || record.workspace != context.flags().workspace) continue;
    if (!options.name.empty() && record.sandbox != options.name) continue;
    if (options.name.empty())
      note(absl::StrCat(mark(kNotice), " Found forward on sandbox '", record.sandbox, "' in workspace '", record.workspace, "'"));
    if (!records->stop(record)) continue;
    note(absl::StrCat("Stopped forward of port ", record.port, " for sandbox ", record.sandbox));
    found = true;
  }
  if (!found) {
    const auto where = options.name.empty() ? std::string{} : absl::StrCat(" on sandbox ", options.name);
    note(absl::StrCat(mark(kWarning), " No active forward found for port ", spec->port, where));
  }
  return 0;
}

absl::StatusOr<int> list(Context& context, const Options& options) {
  auto records = ForwardRecords::from_environment();
  if (!records.ok()) return records.status();
  auto target = context.target();
  if (!target.ok()) return target.status();
  const auto all = records->list(target->name);
  if (options.format != Format::table) {
    json::array items;
    for (const auto& r : all)
      items.push_back(json::object{{"workspace", r.workspace},
                                   {"sandbox", r.sandbox},
                                   {"bind_address", r.bind},
                                   {"port", r.port},
                                   {"pid", r.pid},
                                   {"alive", ForwardRecords::alive(r)}});
    print_document(items, options.format);
    return 0;
  }
  if (all.empty()) {
    note("No active forwards.");
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"WORKSPACE", "SANDBOX", "BIND", "PORT", "PID", "STATUS"}};
  for (const auto& r : all)
    rows.push_back(
        {r.workspace, r.sandbox, r.bind, std::to_string(r.port), std::to_string(r.pid), ForwardRecords::alive(r) ? "running" : "dead"});
  std::fputs(to_table(rows).c_str(), stdout);
  return 0;
}

}  // namespace

void stop_forwards(Context& context, const std::string& sandbox) {
  const auto records = ForwardRecords::from_environment();
  const auto target = context.target();
  if (!records.ok() || !target.ok()) return;
  for (const auto port : records->stop_all(target->name, context.flags().workspace, sandbox))
    note(absl::StrCat("Stopped forward of port ", port, " for sandbox ", sandbox));
}

void add_forward_commands(CLI::App& root, Action& chosen) {
  auto* forward = root.add_subcommand("forward", "Ports of a sandbox on this host")->alias("fwd");
  const auto add = [&](const char* name, const char* what, auto action) {
    auto o = std::make_shared<Options>();
    auto* command = forward->add_subcommand(name, what);
    command->callback([&chosen, o, action] { chosen = [o, action](Context& c) { return action(c, *o); }; });
    return std::pair{command, o};
  };
  {
    auto [command, o] = add("start", "Forward a local port to the same port of the sandbox's loopback", start);
    command->add_option("port", o->spec, "[bind_address:]port")->required();
    command->add_option("name", o->name, "Sandbox; default: the one last used");
    command->add_flag("-d,--background", o->background, "Return at once; `forward stop` ends it");
  }
  {
    auto [command, o] = add("stop", "End a background forward", stop);
    command->add_option("port", o->spec)->required();
    command->add_option("name", o->name);
  }
  {
    auto [command, o] = add("list", "Background forwards", list);
    add_output_option(*command, o->format);
  }
  add_forward_service(*forward, chosen);
}

}  // namespace openshell::cli
