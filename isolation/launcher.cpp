#include "isolation/launcher.hpp"

#include <absl/strings/str_cat.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "isolation/launch_child.hpp"

namespace openshell::isolation {

namespace {

/// Far from any limit that somebody would set, and from RLIM_INFINITY.
constexpr std::uint64_t kJobTagBase = 0x4f53'0000'0000'0000ULL;

std::vector<pid_t> own_threads() {
  std::vector<pid_t> threads;
  if (DIR* tasks = ::opendir("/proc/self/task")) {
    while (const dirent* entry = ::readdir(tasks))
      if (const int tid = std::atoi(entry->d_name); tid > 0) threads.push_back(tid);
    ::closedir(tasks);
  }
  return threads;
}

std::string path_of(const std::vector<std::string>& environment) {
  std::string path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (const auto& entry : environment)
    if (entry.starts_with("PATH=")) path = entry.substr(5);
  return path;
}

/// execvp's search, done before the fork. Empty entries of PATH are skipped instead of meaning the working directory.
absl::StatusOr<std::string> find_program(const LaunchRequest& request) {
  const std::string& program = request.program;
  if (program.empty() || program.find('\0') != std::string::npos)
    return absl::NotFoundError("failed to spawn process '': no program named");
  if (program.find('/') != std::string::npos) return program;
  bool forbidden = false;
  const std::string path = path_of(request.environment);
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string candidate = absl::StrCat(path.substr(begin, end - begin), "/", program);
    if (end > begin) {
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      forbidden = forbidden || errno == EACCES;
    }
    begin = end + 1;
  }
  if (forbidden) return absl::PermissionDeniedError(absl::StrCat("failed to spawn process '", program, "': permission denied"));
  return absl::NotFoundError(absl::StrCat("failed to spawn process '", program, "': not found in PATH"));
}

absl::Status status_of(const LaunchFailure& failure, const std::string& program, const std::string& directory) {
  const char* text = std::strerror(failure.error);
  if (failure.step == LaunchStep::WorkingDirectory)
    return absl::FailedPreconditionError(
        absl::StrCat("failed to spawn process '", program, "': working directory '", directory, "': ", text));
  const std::string message = absl::StrCat("failed to spawn process '", program, "': ", to_string(failure.step), ": ", text);
  switch (failure.step) {
    case LaunchStep::Execute:
      if (failure.error == ENOENT || failure.error == ENOTDIR) return absl::NotFoundError(message);
      if (failure.error == ENOMEM || failure.error == EAGAIN) return absl::ResourceExhaustedError(message);
      return absl::PermissionDeniedError(message);
    case LaunchStep::Landlock:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

std::vector<char*> as_pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The sanitizers keep books about a stack that a child would leave wrong.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShareMemory = false;
#else
constexpr bool kShareMemory = true;
#endif

/// Where a child runs between its birth and its exec; a page that nobody may touch below it.
class ChildStack {
 public:
  ChildStack() : base_{::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)} {
    if (base_ != MAP_FAILED && ::mprotect(base_, kGuardBytes, PROT_NONE) != 0) drop();
  }
  ~ChildStack() { drop(); }
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;
  /// Null: no memory.
  [[nodiscard]] void* top() const { return base_ == MAP_FAILED ? nullptr : static_cast<char*>(base_) + kBytes; }

 private:
  static constexpr std::size_t kBytes = 128 * 1024, kGuardBytes = 4096;
  void drop() {
    if (base_ != MAP_FAILED) ::munmap(base_, kBytes);
    base_ = MAP_FAILED;
  }
  void* base_;
};

struct Birth {
  const ChildPlan* plan;
  std::atomic<pid_t>* newborn;
};

int enter_child(void* argument) {
  const auto& birth = *static_cast<const Birth*>(argument);
  birth.newborn->store(static_cast<pid_t>(::syscall(SYS_getpid)));
  run_child(*birth.plan);
}

FileDescriptor dev_null() { return FileDescriptor{::open("/dev/null", O_RDWR | O_CLOEXEC)}; }

}  // namespace

int exit_code_of(const absl::Status& launch_failure) noexcept { return launch_failure.code() == absl::StatusCode::kNotFound ? 127 : 126; }

struct Launcher::State {
  struct Job {
    LaunchRequest request;
    OnLaunched done;
    int (*probe)(void*) = nullptr;
    void* probe_argument = nullptr;
  };

  explicit State(Options given, ChildReaper& child_reaper) : options{std::move(given)}, reaper{child_reaper} {}

  Options options;
  ChildReaper& reaper;
  FileDescriptor listener;
  CancellationMode cancellation = CancellationMode::Killable;
  FilterProgram workload_filter;
  FilterProgram self_protection;  ///< F2 of the last launch
  std::vector<pid_t> protecting;  ///< the threads that it knows
  ChildStack child_stack;
  std::atomic<std::uint64_t> next_job{1};

  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Job> queue;
  bool stop = false;
  std::thread thread;

  absl::Status confine_thread();
  absl::Status protect_threads();
  void run(std::promise<absl::Status> ready);
  void enqueue(Job job);
  void launch(Job job);
  absl::StatusOr<LaunchedProcess> fork_child(Job& job, const ChildReaper::OnExit& on_exit);
};

/// On the launcher thread: what every child will inherit.
absl::Status Launcher::State::confine_thread() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return absl::InternalError("no_new_privs can not be set");
  auto baseline = prepare_landlock_baseline(options.landlock, options.root);
  if (!baseline.ok()) return baseline.status();
  auto notify = build_notify_filter(options.notify);
  if (!notify.ok()) return notify.status();
  auto workload = build_workload_filter(options.workload);
  if (!workload.ok()) return workload.status();
  workload_filter = std::move(*workload);
  if (const int error = restrict_self(baseline->get()); error != 0)
    return absl::FailedPreconditionError(absl::StrCat("Landlock baseline can not be applied: ", std::strerror(error)));
  auto installed = install_notify_filter(*notify, options.allow_killable);
  if (!installed.ok()) return installed.status();
  listener = std::move(installed->fd);
  cancellation = installed->cancellation;
  return absl::OkStatus();
}

/// Threads come and go, so each launch looks; building the filter takes longer than all else of a launch, so it is kept while it is true.
absl::Status Launcher::State::protect_threads() {
  auto threads = own_threads();
  if (!protecting.empty() && threads == protecting) return absl::OkStatus();
  auto built = build_self_protection_filter(::getpid(), threads);
  if (!built.ok()) return built.status();
  self_protection = std::move(*built);
  protecting = std::move(threads);
  return absl::OkStatus();
}

void Launcher::State::run(std::promise<absl::Status> ready) {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "launcher", 0, 0, 0);
  const absl::Status confined = confine_thread();
  ready.set_value(confined);
  if (!confined.ok()) return;
  std::unique_lock lock{mutex};
  for (;;) {
    wake.wait(lock, [this] { return stop || !queue.empty(); });
    if (stop) break;
    Job job = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    launch(std::move(job));
    lock.lock();
  }
  for (auto& job : queue) reaper.post([done = std::move(job.done)] { done(absl::CancelledError("the launcher is stopping")); });
  queue.clear();
}

void Launcher::State::enqueue(Job job) {
  {
    const std::lock_guard lock{mutex};
    if (!stop && queue.size() < kMaxQueuedLaunches) {
      queue.push_back(std::move(job));
      wake.notify_one();
      return;
    }
  }
  reaper.post([done = std::move(job.done), program = job.request.program] {
    done(absl::ResourceExhaustedError(
        absl::StrCat("failed to spawn process '", program, "': ", kMaxQueuedLaunches, " launches are waiting")));
  });
}

namespace {
/// Orders the two messages about one process: on_exit never comes before done. Touched on the reaper thread only.
struct Announcement {
  bool announced = false;
  std::optional<ExitStatus> early;
};
}  // namespace

void Launcher::State::launch(Job job) {
  auto announcement = std::make_shared<Announcement>();
  auto on_exit = std::make_shared<ChildReaper::OnExit>(std::move(job.request.on_exit));
  auto launched = fork_child(job, [announcement, on_exit](pid_t pid, ExitStatus status) {
    if (!announcement->announced)
      announcement->early = status;
    else if (*on_exit)
      (*on_exit)(pid, status);
  });
  auto shared = std::make_shared<absl::StatusOr<LaunchedProcess>>(std::move(launched));
  reaper.post([shared, announcement, on_exit, done = std::move(job.done)] {
    const bool ok = shared->ok();
    const pid_t pid = ok ? (*shared)->pid : 0;
    done(std::move(*shared));
    announcement->announced = true;
    if (ok && announcement->early && *on_exit) (*on_exit)(pid, *announcement->early);
  });
}

absl::StatusOr<LaunchedProcess> Launcher::State::fork_child(Job& job, const ChildReaper::OnExit& on_exit) {
  LaunchRequest& request = job.request;
  std::string program;
  if (job.probe == nullptr) {
    auto found = find_program(request);
    if (!found.ok()) return found.status();
    program = std::move(*found);
  }
  const FileDescriptor directory{::open(request.working_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!directory) return status_of({LaunchStep::WorkingDirectory, errno}, request.program, request.working_directory);
  if (auto status = protect_threads(); !status.ok()) return status;
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return absl::ResourceExhaustedError("no descriptor is left for a launch");
  const FileDescriptor errors{pipe_ends[0]};
  FileDescriptor error_writer{pipe_ends[1]};
  const FileDescriptor null = dev_null();
  if (request.arguments.empty()) request.arguments.push_back(request.program);
  std::vector<char*> arguments = as_pointers(request.arguments);
  std::vector<char*> environment = as_pointers(request.environment);

  const std::uint64_t tag = kJobTagBase + next_job.fetch_add(1);
  ChildPlan plan;
  plan.program = program.c_str();
  plan.arguments = arguments.data();
  plan.environment = environment.data();
  plan.terminal = request.terminal.valid();
  const FileDescriptor* streams[3] = {&request.standard_input, &request.standard_output, &request.standard_error};
  for (int i = 0; i < 3; ++i)
    plan.standard_streams[i] = plan.terminal ? request.terminal.get() : streams[i]->valid() ? streams[i]->get() : null.get();
  plan.working_directory = directory.get();
  plan.ruleset = request.filesystem ? request.filesystem->ruleset.get() : -1;
  plan.error_pipe = error_writer.get();
  plan.job_tag = tag;
  plan.max_processes = request.max_processes.value_or(0);
  plan.max_open_files = request.max_open_files.value_or(0);
  plan.self_protection = &self_protection;
  plan.workload = &workload_filter;
  plan.probe = job.probe;
  plan.probe_argument = job.probe_argument;

  int pidfd = -1;
  pid_t pid = -1;
  if (plan.probe != nullptr || !kShareMemory || child_stack.top() == nullptr) {
    pid = reaper.fork_watched(
        [&plan, &pidfd] {
          // The raw call: no fork handlers, which could take locks, and a pidfd that belongs to this very child.
          const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD | CLONE_PIDFD, nullptr, &pidfd, nullptr, nullptr));
          if (child == 0) run_child(plan);
          return child;
        },
        on_exit);
  } else {
    // What goes on to exec needs no copy of this process: run_child touches nothing but its own stack. This thread waits, all its signals
    // blocked.
    pid = reaper.vfork_watched(
        [this, &plan, &pidfd](std::atomic<pid_t>& newborn) {
          Birth birth{&plan, &newborn};
          return static_cast<pid_t>(
              ::clone(enter_child, child_stack.top(), CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &birth, &pidfd));
        },
        on_exit);
  }
  if (pid < 0)
    return absl::ResourceExhaustedError(absl::StrCat("failed to spawn process '", request.program, "': fork: ", std::strerror(errno)));
  LaunchedProcess process{pid, FileDescriptor{pidfd}, JobTag{tag}};
  error_writer.reset();
  LaunchFailure failure;
  ssize_t size = 0;
  do {
    size = ::read(errors.get(), &failure, sizeof failure);
  } while (size < 0 && errno == EINTR);
  if (size == static_cast<ssize_t>(sizeof failure)) return status_of(failure, request.program, request.working_directory);
  return process;
}

Launcher::Launcher(std::unique_ptr<State> state) : state_{std::move(state)} {}

absl::StatusOr<std::unique_ptr<Launcher>> Launcher::start(Options options, ChildReaper& reaper) {
  // A child is readable by the broker from its exec on; the broker itself never is.
  if (::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 && ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    return absl::InternalError("the process can not be made non-dumpable");
  auto state = std::make_unique<State>(std::move(options), reaper);
  std::promise<absl::Status> ready;
  auto confined = ready.get_future();
  state->thread = std::thread{[raw = state.get(), promise = std::move(ready)]() mutable { raw->run(std::move(promise)); }};
  const absl::Status status = confined.get();
  if (!status.ok()) {
    state->thread.join();
    return status;
  }
  return std::unique_ptr<Launcher>{new Launcher{std::move(state)}};
}

Launcher::~Launcher() {
  {
    const std::lock_guard lock{state_->mutex};
    state_->stop = true;
  }
  state_->wake.notify_one();
  state_->thread.join();
}

FileDescriptor Launcher::take_listener() { return std::move(state_->listener); }
CancellationMode Launcher::cancellation() const noexcept { return state_->cancellation; }

void Launcher::spawn(LaunchRequest request, OnLaunched done) { state_->enqueue({std::move(request), std::move(done)}); }

absl::StatusOr<LaunchedProcess> Launcher::spawn_and_wait(LaunchRequest request) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<LaunchedProcess>>>();
  auto future = promise->get_future();
  spawn(std::move(request), [promise](absl::StatusOr<LaunchedProcess> process) { promise->set_value(std::move(process)); });
  return future.get();
}

absl::StatusOr<LaunchedProcess> Launcher::spawn_probe(int (*probe)(void*), void* argument, FileDescriptor report,
                                                      ChildReaper::OnExit on_exit) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<LaunchedProcess>>>();
  auto future = promise->get_future();
  LaunchRequest request;
  request.program = "probe";
  request.standard_output = std::move(report);
  request.on_exit = std::move(on_exit);
  state_->enqueue({std::move(request), [promise](absl::StatusOr<LaunchedProcess> process) { promise->set_value(std::move(process)); },
                   probe, argument});
  return future.get();
}

}  // namespace openshell::isolation
