#include "drivers/process/launcher.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>

#include "drivers/process/mapped_files.hpp"
#include "drivers/process/mounting.hpp"
#include "drivers/process/network_namespace.hpp"

namespace openshell::drivers::process {
namespace {

constexpr int kGateFd = 3;  // of PID 1 while it waits: the only descriptor besides stdio
constexpr int kExitGateClosed = 125, kExitExecFailed = 126, kExitSetupFailed = 127;
constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
// With PID 1, since entering a root moves every process of the mount namespace, the launcher too.
constexpr int kNamespacesOfInit = CLONE_NEWPID | CLONE_NEWNS;

// Between init and launcher, one byte each, an error text behind the last.
constexpr char kWantMaps = 'm', kMapsWritten = 'k', kReady = 'r', kError = 'e';

struct Pair {
  Descriptor ours, theirs;
};

absl::StatusOr<Pair> make_pair_of_sockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return system_error("making a socket pair");
  return Pair{Descriptor{ends[0]}, Descriptor{ends[1]}};
}

// ours: read end.
absl::StatusOr<Pair> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("making a pipe");
  return Pair{Descriptor{ends[0]}, Descriptor{ends[1]}};
}

bool put(int fd, char byte) { return write(fd, &byte, 1) == 1; }

char take(int fd) {
  char byte = 0;
  for (;;) {
    const ssize_t got = read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    return got == 1 ? byte : '\0';
  }
}

std::string take_rest(int fd) {
  std::string text;
  char buffer[512];
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

// fork, with new namespaces for the child where wanted.
pid_t fork_into(int flags) {
  return static_cast<pid_t>(syscall(SYS_clone, static_cast<unsigned long>(flags | SIGCHLD), nullptr, nullptr, nullptr, 0));
}

absl::Status write_once(const std::string& path, const std::string& text) {
  const Descriptor file{open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  if (!file) return system_error("opening " + path);
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return system_error("writing " + path);
  return absl::OkStatus();
}

std::string map_text(const std::vector<IdMapLine>& lines) {
  std::string text;
  for (const IdMapLine& line : lines)
    text += std::to_string(line.inside) + " " + std::to_string(line.outside) + " " + std::to_string(line.count) + "\n";
  return text;
}

absl::Status write_maps(const LaunchPlan& plan, pid_t child) {
  const std::string proc = "/proc/" + std::to_string(child);
  if (plan.mode == LaunchMode::kSubordinateIds) return map_process(plan.newuidmap, plan.newgidmap, child, plan.uid_map, plan.gid_map);
  if (auto status = write_once(proc + "/uid_map", map_text(plan.uid_map)); !status.ok()) return status;
  if (plan.mode == LaunchMode::kSingleId) {
    if (auto status = write_once(proc + "/setgroups", "deny"); !status.ok()) return status;
  }
  return write_once(proc + "/gid_map", map_text(plan.gid_map));
}

absl::Status limit(int resource, std::uint64_t value, const char* name) {
  if (value == 0) return absl::OkStatus();
  const rlimit both{value, value};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &both) != 0) return system_error(std::string("setting ") + name);
  return absl::OkStatus();
}

absl::Status empty_bounding_set() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return system_error("emptying the bounding set");
  }
  return absl::OkStatus();
}

absl::Status take_identity(const LaunchPlan& plan) {
  // First: leaving uid 0 of the namespace takes the capability to do it away.
  if (auto status = empty_bounding_set(); !status.ok()) return status;
  if (plan.mode != LaunchMode::kSingleId) {
    std::vector<gid_t> groups{plan.groups.begin(), plan.groups.end()};
    if (setgroups(groups.size(), groups.data()) != 0) return system_error("setting the groups of the workload");
  }
  if (setresgid(plan.gid, plan.gid, plan.gid) != 0) return system_error("taking the group of the workload");
  if (setresuid(plan.uid, plan.uid, plan.uid) != 0) return system_error("taking the user of the workload");
  return drop_all_capabilities();
}

void reset_signals() {
  // The kernel's own structure, zero: default, since the C library keeps two numbers to itself that may be inherited as ignored.
  constexpr std::size_t kSetBytes = 8;
  const std::array<unsigned long, 4> default_action{};
  for (int number = 1; number <= 64; ++number) syscall(SYS_rt_sigaction, number, default_action.data(), nullptr, kSetBytes);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// stdio and the gate; everything else is closed.
absl::Status arrange_descriptors(int gate, int output) {
  const Descriptor null{open("/dev/null", O_RDWR | O_CLOEXEC)};
  if (!null) return system_error("opening /dev/null");
  // Sources may lie on the numbers that are to be filled: copy them out of the way first.
  const int high_gate = fcntl(gate, F_DUPFD_CLOEXEC, 10), high_output = fcntl(output, F_DUPFD_CLOEXEC, 10);
  if (high_gate < 0 || high_output < 0 || dup2(null.get(), 0) < 0 || dup2(high_output, 1) < 0 || dup2(high_output, 2) < 0 ||
      dup3(high_gate, kGateFd, O_CLOEXEC) < 0) {
    return system_error("arranging descriptors");
  }
  if (close_range(kGateFd + 1, ~0U, 0) != 0) return system_error("closing descriptors");
  return absl::OkStatus();
}

[[noreturn]] void wait_at_gate_then_exec(const LaunchPlan& plan) {
  std::vector<char*> argv;
  std::vector<std::string> words = plan.init_argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> environment;
  std::vector<std::string> variables = plan.init_environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  if (take(kGateFd) == '\0') _exit(kExitGateClosed);
  execve(argv[0], argv.data(), environment.data());
  dprintf(2, "starting %s: %s\n", argv[0], strerror(errno));
  _exit(kExitExecFailed);
}

// Everything PID 1 does before the gate, in the order in which later steps need earlier ones.
absl::Status become_init(const LaunchPlan& plan, int launcher) {
  const auto ask_for_maps = [launcher]() -> absl::Status {
    if (!put(launcher, kWantMaps) || take(launcher) != kMapsWritten) return absl::FailedPreconditionError("the id maps were not written");
    return absl::OkStatus();
  };
  if (plan.mode != LaunchMode::kRoot) {
    if (auto status = ask_for_maps(); !status.ok()) return status;
    if (plan.mode == LaunchMode::kSubordinateIds && (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0))
      return system_error("becoming root of the namespace");
  }
  if (setsid() < 0) return system_error("starting a session");
  if (auto status = make_mounts_private(); !status.ok()) return status;
  if (sethostname(plan.hostname.data(), plan.hostname.size()) != 0) return system_error("setting the host name");
  if (auto status = configure_loopback(); !status.ok()) return status;
  if (auto status = enter_root(plan.mounts, plan.root_directory, plan.owner_uid, plan.owner_gid); !status.ok()) return status;
  if (plan.mode == LaunchMode::kRoot) {
    if (unshare(CLONE_NEWUSER) != 0) return system_error("making the user namespace");
    if (auto status = ask_for_maps(); !status.ok()) return status;
  }
  if (auto status = limit(RLIMIT_NPROC, plan.max_processes, "RLIMIT_NPROC"); !status.ok()) return status;
  if (auto status = limit(RLIMIT_AS, plan.max_address_space, "RLIMIT_AS"); !status.ok()) return status;
  if (auto status = take_identity(plan); !status.ok()) return status;
  // A change of uid made this process undumpable, which would hide it from a driver that is not root; nobody else is in here yet, and exec
  // decides anew.
  if (plan.mode == LaunchMode::kSubordinateIds && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
    return system_error("showing PID 1 to the driver");
  return absl::OkStatus();
}

[[noreturn]] void init_process(const LaunchPlan& plan, Descriptor launcher, Descriptor gate, Descriptor output) {
  reset_signals();
  absl::Status status = become_init(plan, launcher.get());
  if (status.ok()) {
    const int report = launcher.get();
    if (!put(report, kReady)) _exit(kExitSetupFailed);
    status = arrange_descriptors(gate.release(), output.release());
    if (status.ok()) wait_at_gate_then_exec(plan);
    dprintf(2, "%s\n", std::string(status.message()).c_str());
    _exit(kExitSetupFailed);
  }
  const std::string text{status.message()};
  put(launcher.get(), kError);
  (void)!write(launcher.get(), text.data(), text.size());
  _exit(kExitSetupFailed);
}

// The launcher's side of the conversation with init. OK once init is ready.
absl::Status attend_init(const LaunchPlan& plan, pid_t init, int socket) {
  for (;;) {
    switch (take(socket)) {
      case kWantMaps:
        if (auto status = write_maps(plan, init); !status.ok()) return status;
        if (!put(socket, kMapsWritten)) return absl::InternalError("PID 1 ended while its id maps were written");
        break;
      case kReady:
        take(socket);  // end of file: closed together with everything else that PID 1 must not hold at the gate
        return absl::OkStatus();
      case kError:
        return absl::FailedPreconditionError(take_rest(socket));
      default:
        return absl::InternalError("PID 1 ended before it was ready");
    }
  }
}

absl::StatusOr<pid_t> launch(const LaunchPlan& plan, Descriptor gate, Descriptor output) {
  for (const std::string& cgroup : plan.cgroup_procs) {
    if (auto status = write_once(cgroup, "0"); !status.ok()) return status;
  }
  int flags = kNamespacesOfInit;
  if (plan.mode == LaunchMode::kRoot) {
    if (unshare(kNamespaces) != 0) return system_error("making the namespaces");
  } else {
    flags |= CLONE_NEWUSER | kNamespaces;
  }
  auto sockets = make_pair_of_sockets();
  if (!sockets.ok()) return sockets.status();
  const pid_t init = fork_into(flags);
  if (init < 0) return system_error("making PID 1");
  if (init == 0) {
    sockets->ours.reset();
    init_process(plan, std::move(sockets->theirs), std::move(gate), std::move(output));
  }
  sockets->theirs.reset();
  if (auto status = attend_init(plan, init, sockets->ours.get()); !status.ok()) {
    kill(init, SIGKILL);
    waitpid(init, nullptr, 0);
    return status;
  }
  return init;
}

// Tells the monitor the pid or the error, then stays until its leash is closed, so that the monitor can look at init with a launcher and
// without.
[[noreturn]] void launcher_process(const LaunchPlan& plan, Descriptor leash, Descriptor gate, Descriptor output) {
  const auto init = launch(plan, std::move(gate), std::move(output));
  if (!init.ok()) {
    (void)send_frame(leash.get(), Word::kFailed, std::string(init.status().message()));
    _exit(1);
  }
  const std::int32_t pid = *init;
  if (!send_frame(leash.get(), Word::kPrepared, encode(pid)).ok()) kill(pid, SIGKILL);
  take(leash.get());
  _exit(0);
}

}  // namespace

absl::Status drop_all_capabilities() {
  (void)empty_bounding_set();  // not everybody may, and without any capability and with no_new_privs it decides nothing
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  if (syscall(SYS_capset, &header, none.data()) != 0) return system_error("emptying the capability sets");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return system_error("setting no_new_privs");
  return absl::OkStatus();
}

absl::StatusOr<PreparedSandbox> prepare_sandbox(const LaunchPlan& plan) {
  auto leash = make_pair_of_sockets();
  auto gate = make_pipe();
  auto output = make_pipe();
  if (!leash.ok() || !gate.ok() || !output.ok()) return absl::ResourceExhaustedError("no descriptors left for a launch");
  PreparedSandbox sandbox;
  sandbox.launcher = fork();
  if (sandbox.launcher < 0) return system_error("forking the launcher");
  if (sandbox.launcher == 0) {
    leash->ours.reset();
    gate->theirs.reset();
    output->ours.reset();
    launcher_process(plan, std::move(leash->theirs), std::move(gate->ours), std::move(output->theirs));
  }
  leash->theirs.reset();
  gate->ours.reset();
  output->theirs.reset();
  const auto answer = receive_frame(leash->ours.get());
  if (!answer.ok() || answer->word != Word::kPrepared) {
    waitpid(sandbox.launcher, nullptr, 0);
    if (!answer.ok()) return absl::InternalError("the launcher ended without an answer");
    return absl::FailedPreconditionError(answer->body);
  }
  const auto pid = decode<std::int32_t>(answer->body);
  if (!pid.ok()) return pid.status();
  sandbox.init = *pid;
  sandbox.gate = std::move(gate->theirs);
  sandbox.launcher_leash = std::move(leash->ours);
  sandbox.output = std::move(output->ours);
  return sandbox;
}

absl::StatusOr<pid_t> start_supervisor(const SupervisorPlan& plan, Descriptor& output) {
  // Opened by whoever may read the directories above it; the supervisor's own identity might not (a checkout below /root).
  const Descriptor program{open(plan.path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!program) return system_error("opening " + plan.path);
  auto pipe = make_pipe();
  auto started = make_pipe();
  if (!pipe.ok() || !started.ok()) return absl::ResourceExhaustedError("no descriptors left for a supervisor");
  const pid_t pid = fork();
  if (pid < 0) return system_error("forking the supervisor");
  if (pid == 0) {
    std::vector<std::string> words = plan.argv, variables = plan.environment;
    std::vector<char*> argv, environment;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& variable : variables) environment.push_back(variable.data());
    argv.push_back(nullptr);
    environment.push_back(nullptr);
    reset_signals();
    setsid();
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool ok = null >= 0 && dup2(null, 0) >= 0 && dup2(pipe->theirs.get(), 1) >= 0 && dup2(pipe->theirs.get(), 2) >= 0 && chdir("/") == 0;
    if (ok && plan.change_identity) {
      ok = setgroups(0, nullptr) == 0 && setresgid(plan.gid, plan.gid, plan.gid) == 0 && setresuid(plan.uid, plan.uid, plan.uid) == 0;
    }
    ok = ok && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
    if (ok) execveat(program.get(), "", argv.data(), environment.data(), AT_EMPTY_PATH);
    const int number = errno;
    (void)!write(started->theirs.get(), &number, sizeof number);
    _exit(kExitExecFailed);
  }
  pipe->theirs.reset();
  started->theirs.reset();
  int number = 0;
  if (read(started->ours.get(), &number, sizeof number) > 0) {  // end of file: exec closed the pipe
    waitpid(pid, nullptr, 0);
    return system_error("starting " + plan.path, number);
  }
  output = std::move(pipe->ours);
  return pid;
}

}  // namespace openshell::drivers::process
