#include "drivers/process/monitor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>

#include "drivers/process/launcher.hpp"
#include "drivers/process/network_namespace.hpp"
#include "drivers/process/process_handle.hpp"

namespace openshell::drivers::process {
namespace {

// Copies a pipe into a file up to a bound; goes on reading after it, so that the writer never blocks.
class OutputLog {
 public:
  void open_at(Descriptor pipe, const std::string& path) {
    pipe_ = std::move(pipe);
    file_ = Descriptor{open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
    fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  }
  [[nodiscard]] int pipe() const { return pipe_.get(); }
  void pump() {
    std::array<char, 16384> buffer;
    for (;;) {
      const ssize_t got = read(pipe_.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return;
      if (got == 0) {
        pipe_.reset();
        return;
      }
      const std::size_t wanted = std::min<std::size_t>(static_cast<std::size_t>(got), kMaxOutputLogBytes - written_);
      if (wanted > 0 && write(file_.get(), buffer.data(), wanted) > 0) written_ += wanted;
    }
  }

 private:
  Descriptor pipe_, file_;
  std::size_t written_ = 0;
};

// Looks at the network of PID 1 from inside: a child joins its namespaces, so that the monitor itself never holds one.
absl::StatusOr<std::string> network_facts(const LaunchPlan& plan, pid_t init, const std::vector<OutsideListener>& listeners) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("making a pipe");
  Descriptor from{ends[0]}, to{ends[1]};
  const pid_t child = fork();
  if (child < 0) return system_error("forking the fence probe");
  if (child == 0) {
    const Descriptor target{static_cast<int>(syscall(SYS_pidfd_open, init, 0))};
    const int wanted = CLONE_NEWNET | (plan.mode == LaunchMode::kRoot ? 0 : CLONE_NEWUSER);
    std::string report;
    if (!target || setns(target.get(), wanted) != 0) {
      report = std::string("eentering the network namespace: ") + strerror(errno);
    } else {
      auto facts = read_network();
      if (facts.ok()) {
        facts->probes = probe_outside(listeners);
        facts->descriptors = descriptor_links(std::to_string(init));
        report = "f" + encode(*facts);
      } else {
        report = "e" + std::string(facts.status().message());
      }
    }
    for (std::size_t done = 0; done < report.size();) {
      const ssize_t n = write(to.get(), report.data() + done, report.size() - done);
      if (n <= 0) _exit(1);
      done += static_cast<std::size_t>(n);
    }
    _exit(0);
  }
  to.reset();
  std::string report;
  std::array<char, 16384> buffer;
  for (ssize_t got; (got = read(from.get(), buffer.data(), buffer.size())) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    report.append(buffer.data(), static_cast<std::size_t>(got));
  }
  waitpid(child, nullptr, 0);
  if (report.empty() || report[0] != 'f') return absl::FailedPreconditionError(report.empty() ? "the fence probe ended" : report.substr(1));
  return report.substr(1);
}

ExitStatus exit_status(pid_t pid, int status) {
  if (WIFSIGNALED(status)) return {pid, 0, WTERMSIG(status)};
  return {pid, WEXITSTATUS(status), 0};
}

class Monitor {
 public:
  explicit Monitor(int control) : control_{control} {}

  int run() {
    if (!prepare()) return 1;
    while (!finished()) {
      if (!step()) return 1;
    }
    return 0;
  }

 private:
  bool fail(const absl::Status& status) {
    (void)send_frame(control_.get(), Word::kFailed, std::string(status.message()));
    dprintf(2, "%s\n", std::string(status.message()).c_str());
    return false;
  }

  bool prepare() {
    setsid();
    prctl(PR_SET_NAME, "openshell-mon");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    const auto frame = receive_frame(control_.get());
    if (!frame.ok() || frame->word != Word::kPrepare) return false;
    auto plan = decode<LaunchPlan>(frame->body);
    if (!plan.ok()) return fail(plan.status());
    if (plan->version != LaunchPlan::kVersion)
      return fail(absl::FailedPreconditionError("the monitor is of another build than the gateway"));
    plan_ = std::move(*plan);
    record_.generation = plan_.generation;
    auto sandbox = prepare_sandbox(plan_);
    if (!sandbox.ok()) return fail(sandbox.status());
    sandbox_ = std::move(*sandbox);
    sandbox_log_.open_at(std::move(sandbox_.output), plan_.state_directory + "/sandbox.log");
    // Only now: the launcher was waited for directly.
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, nullptr);
    signals_ = Descriptor{signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK)};
    const std::int32_t pid = sandbox_.init;
    return send_frame(control_.get(), Word::kPrepared, encode(pid)).ok();
  }

  [[nodiscard]] bool finished() const { return released_ && record_.init && (supervisor_ < 0 || record_.supervisor); }

  bool step() {
    std::array<pollfd, 4> wait{
        {{control_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {sandbox_log_.pipe(), POLLIN, 0}, {supervisor_log_.pipe(), POLLIN, 0}}};
    if (poll(wait.data(), wait.size(), -1) < 0) return errno == EINTR;
    if (wait[2].revents != 0) sandbox_log_.pump();
    if (wait[3].revents != 0) supervisor_log_.pump();
    if (wait[1].revents != 0) reap();
    if (wait[0].revents != 0) return converse();
    return true;
  }

  // One request of the driver. Before the release a driver that is gone ends the attempt; after it the sandbox goes on without one.
  bool converse() {
    const auto frame = receive_frame(control_.get());
    if (!frame.ok()) {
      control_.reset();
      if (!released_) abandon();
      return released_;
    }
    switch (frame->word) {
      case Word::kProbe: {
        const auto listeners = decode<std::vector<OutsideListener>>(frame->body);
        const auto facts =
            listeners.ok() ? network_facts(plan_, sandbox_.init, *listeners) : absl::StatusOr<std::string>(listeners.status());
        if (!facts.ok()) return abandon_with(facts.status());
        return send_frame(control_.get(), Word::kFacts, *facts).ok();
      }
      case Word::kEndLauncher: {
        sandbox_.launcher_leash.reset();
        waitpid(sandbox_.launcher, nullptr, 0);
        return send_frame(control_.get(), Word::kDone, {}).ok();
      }
      case Word::kRelease:
        return release(frame->body);
      default:
        return abandon_with(absl::InvalidArgumentError("the driver asked for something unknown"));
    }
  }

  bool release(const std::string& body) {
    const auto plan = decode<SupervisorPlan>(body);
    if (!plan.ok()) return abandon_with(plan.status());
    if (write(sandbox_.gate.get(), "G", 1) != 1) return abandon_with(absl::InternalError("PID 1 ended before its gate was opened"));
    sandbox_.gate.reset();
    if (!plan->path.empty()) {
      Descriptor output;
      const auto pid = start_supervisor(*plan, output);
      if (!pid.ok()) return abandon_with(pid.status());
      supervisor_ = *pid;
      supervisor_log_.open_at(std::move(output), plan_.state_directory + "/supervisor.log");
    }
    if (auto status = drop_all_capabilities(); !status.ok()) return abandon_with(status);
    released_ = true;
    return send_frame(control_.get(), Word::kStarted, encode(static_cast<std::int32_t>(supervisor_))).ok();
  }

  bool abandon_with(const absl::Status& status) {
    abandon();
    return fail(status);
  }

  // Kills what there is and waits for it.
  void abandon() {
    if (sandbox_.init > 0 && !record_.init) kill(sandbox_.init, SIGKILL);
    if (supervisor_ > 0 && !record_.supervisor) kill(supervisor_, SIGKILL);
    sandbox_.launcher_leash.reset();
    while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
    }
  }

  void reap() {
    signalfd_siginfo drained;
    while (read(signals_.get(), &drained, sizeof drained) == sizeof drained) {
    }
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == sandbox_.init) {
        record_.init = exit_status(pid, status);
      } else if (pid == supervisor_) {
        record_.supervisor = exit_status(pid, status);
      } else {
        continue;
      }
      // The last words belong into the log before anybody is told of the end.
      sandbox_log_.pump();
      supervisor_log_.pump();
      write_record();
    }
  }

  // Whole or not at all, as a reader sees it, and on the disk before it is seen.
  void write_record() {
    const std::string path = plan_.state_directory + "/exit.json", draft = path + ".tmp";
    const std::string text = serialise(record_);
    Descriptor file{open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || fsync(file.get()) != 0 ||
        rename(draft.c_str(), path.c_str()) != 0) {
      dprintf(2, "writing exit.json: %s\n", strerror(errno));
    }
  }

  Descriptor control_, signals_;
  LaunchPlan plan_;
  PreparedSandbox sandbox_;
  OutputLog sandbox_log_, supervisor_log_;
  ExitRecord record_;
  pid_t supervisor_ = -1;
  bool released_ = false;
};

}  // namespace

int run_monitor(int control) { return Monitor{control}.run(); }

}  // namespace openshell::drivers::process
