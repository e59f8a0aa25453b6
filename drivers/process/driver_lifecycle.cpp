// What happens to one sandbox: taken on, launched, found ended, ended by us, found again by a later gateway process.
#include <signal.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <ctime>

#include "drivers/process/driver_state.hpp"
#include "drivers/process/monitor.hpp"
#include "drivers/process/workspace_image.hpp"

namespace openshell::drivers::process {
namespace {

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string random_name() {
  std::array<unsigned char, 8> bytes{};
  (void)!getrandom(bytes.data(), bytes.size(), 0);
  std::string text = "process:";
  for (const unsigned char byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::string ending(const std::optional<ExitStatus>& status) {
  if (!status) return "exit status unknown";
  return status->signal != 0 ? "signal " + std::to_string(status->signal) : "exit code " + std::to_string(status->code);
}

// The end of a log, for people: printable, bounded. What a runtime writes there is its own text, never the workload's.
std::string last_words(const SandboxFiles& files, const std::string& id, const std::string& log) {
  constexpr std::size_t kMaxWords = 300;
  auto text = files.read_driver_file(id, log);
  if (!text.ok()) return {};
  while (!text->empty() && text->back() == '\n') text->pop_back();
  std::string line = text->substr(text->rfind('\n') == std::string::npos ? 0 : text->rfind('\n') + 1).substr(0, kMaxWords);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return line.empty() ? line : ": " + line;
}

bool ended(const Descriptor& process) { return !process || has_ended(process.get()); }

PlatformEvent event_of(const char* type, std::string_view reason, std::string message) {
  PlatformEvent event;
  event.timestamp_ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  event.source = "process";
  event.type = type;
  event.reason = std::string(reason);
  event.message = std::move(message);
  return event;
}

}  // namespace

Parties ProcessDriver::parties(const records::SandboxState& state) const {
  const Owner own{geteuid(), getegid()};
  if (context_.mode == LaunchMode::kSingleId) return {own, own, own};
  const std::uint32_t base = state.id_base();
  const Owner workload{base, state.gid_base()};
  if (context_.mode == LaunchMode::kSubordinateIds) return {own, workload, own};
  const auto& options = context_.options;
  return {
      own,
      workload,
      {options.supervisor_uid.value_or(base + kSupervisorInSlot), options.supervisor_gid.value_or(state.gid_base() + kSupervisorInSlot)}};
}

void ProcessDriver::turn(const SandboxPtr& sandbox, Phase phase, std::string_view reason, std::string message) {
  std::string id;
  {
    const std::lock_guard lock{mutex_};
    id = sandbox->state.id();
    sandbox->phase = phase;
    sandbox->reason = std::string(reason);
    sandbox->message = std::move(message);
    sandbox->transition_time = now_text();
    if (phase != Phase::kRunning) sandbox->evidence.clear();
  }
  changed(id);
}

// A new sandbox with its slot, directories and record; or the one that is there, unless it runs.
absl::StatusOr<ProcessDriver::SandboxPtr> ProcessDriver::enlist(const SandboxSpec& spec, const Admitted& admitted) {
  const std::string& id = spec.id.str();
  auto sandbox = std::make_shared<Sandbox>();
  records::SandboxState& state = sandbox->state;
  {
    const std::lock_guard lock{mutex_};
    const auto found = sandboxes_.find(id);
    if (found != sandboxes_.end()) {
      if (found->second->phase == Phase::kRunning || found->second->phase == Phase::kStarting)
        return absl::AlreadyExistsError("sandbox already exists");
      return found->second;
    }
    state.set_id(id);
    state.set_name(spec.name);
    state.set_workspace(spec.workspace);
    state.set_image(spec.image);
    state.set_runtime_identity(random_name());
    state.set_mode(std::string(to_string(context_.mode)));
    state.set_uid(admitted.uid);
    state.set_gid(admitted.gid);
    for (const auto& [key, value] : spec.labels) (*state.mutable_labels())[key] = value;
    if (context_.mode != LaunchMode::kSingleId) {
      const auto slot = slots_.take(id);
      if (!slot.ok()) return slot.status();
      state.set_has_slot(true);
      state.set_slot(*slot);
      state.set_id_base(slots_.base(*slot));
      state.set_gid_base(context_.mode == LaunchMode::kRoot ? slots_.base(*slot) : context_.subordinate.gid_first + *slot * kIdsPerSlot);
    }
    sandbox->phase = Phase::kEnded;
    sandboxes_[id] = sandbox;
  }
  delegate_files(context_, id, parties(state), state.uid(), state.gid());
  absl::Status status = context_.files.make_state(id, parties(state));
  if (status.ok() && context_.workspace_bytes)
    status = make_workspace_image(workspace_image_path(context_.files.paths(id)), *context_.workspace_bytes, parties(state).workload);
  if (status.ok()) status = context_.files.write_driver_file(id, "sandbox.pb", state.SerializeAsString());
  if (status.ok()) return sandbox;
  (void)context_.files.remove_state(id);
  const std::lock_guard lock{mutex_};
  if (state.has_slot()) slots_.release(state.slot(), id);
  sandboxes_.erase(id);
  return status;
}

// Takes on a launch. ALREADY_EXISTS where one is going on.
absl::Status ProcessDriver::begin(const SandboxPtr& sandbox, const SandboxSpec& spec, const LaunchAuthentication& launch_authentication,
                                  const Admitted& admitted) {
  const std::string& id = spec.id.str();
  std::shared_ptr<LaunchAttempt> attempt;
  {
    const std::lock_guard lock{mutex_};
    if (sandbox->attempt != nullptr || sandbox->phase == Phase::kRunning) return absl::AlreadyExistsError("sandbox already exists");
    if (sandbox->deleting) return absl::FailedPreconditionError("sandbox " + id + " is being deleted");
    const records::SandboxState& state = sandbox->state;
    if (state.uid() != admitted.uid || state.gid() != admitted.gid) {
      return absl::FailedPreconditionError("sandbox " + id + " belongs to " + std::to_string(state.uid()) + ":" +
                                           std::to_string(state.gid()) + " and can not be started as " + std::to_string(admitted.uid) +
                                           ":" + std::to_string(admitted.gid));
    }
    if (state.mode() != std::string(to_string(context_.mode))) {
      return absl::FailedPreconditionError("sandbox " + id + " was made in mode " + state.mode() + ", this gateway runs in mode " +
                                           std::string(to_string(context_.mode)));
    }
    attempt = std::make_shared<LaunchAttempt>(context_, LaunchInputs{spec, launch_authentication, state, parties(state), admitted.limits});
    sandbox->attempt = attempt;
    sandbox->generation = launch_authentication.runtime_generation.str();
  }
  turn(sandbox, Phase::kStarting, kReasonStarting, "Process sandbox is starting");
  workers_.post([this, sandbox, attempt, id] { launch(sandbox, attempt, id); });
  return absl::OkStatus();
}

void ProcessDriver::launch(const SandboxPtr& sandbox, const std::shared_ptr<LaunchAttempt>& attempt, const std::string& id) {
  const std::lock_guard operation{sandbox->operation};
  // What an ended generation left behind: a supervisor that did not go, its R, its cgroup.
  absl::Status status = end_generation(context_, id, sandbox->running, std::chrono::milliseconds{0});
  absl::StatusOr<RunningGeneration> running = status.ok() ? attempt->run() : absl::StatusOr<RunningGeneration>(status);
  if (!running.ok()) {
    bool stopped = false;
    {
      const std::lock_guard lock{mutex_};
      sandbox->attempt.reset();
      stopped = sandbox->phase == Phase::kStopped;
    }
    const std::string text{running.status().message()};
    if (absl::IsCancelled(running.status())) {  // by a stop or delete, which reports itself
      if (!stopped) turn(sandbox, Phase::kEnded, kReasonContainerStopped, text);
      return;
    }
    turn(sandbox, Phase::kEnded, attempt->failure_reason(), text);
    tell(event_of("Warning", attempt->failure_reason(), "process sandbox provisioning failed: " + text), id);
    return;
  }
  sandbox->running = std::move(*running);
  {
    const std::lock_guard lock{mutex_};
    sandbox->attempt.reset();
    sandbox->evidence = sandbox->running.record.evidence_digest();
  }
  turn(sandbox, Phase::kRunning, kReasonBackendReady, "Process sandbox is running");
  tell(event_of("Normal", "Started", "process sandbox started"), id);
  follow_exits(id);
  follow(id, sandbox->running);
  if (!sandbox->running.supervisor) workers_.post([this, id] { examine(id); });  // gone before it could be followed
}

// Something of this sandbox ended: decides what that means. A supervisor that ends before it confirmed ends
// the attempt; afterwards the frozen runtime decides, and its own end is what counts.
void ProcessDriver::examine(const std::string& id) {
  const SandboxPtr sandbox = find(id);
  if (sandbox == nullptr) return;
  const std::lock_guard operation{sandbox->operation};
  {
    const std::lock_guard lock{mutex_};
    if (sandbox->phase != Phase::kRunning) return;
  }
  RunningGeneration& running = sandbox->running;
  const std::string& generation = running.record.generation();
  ExitRecord record;
  if (const auto text = context_.files.read_driver_file(id, "exit.json"); text.ok()) {
    if (auto parsed = parse_exit_record(*text); parsed.ok() && parsed->generation == generation) record = std::move(*parsed);
  }
  // While the monitor lives its word is waited for: it comes with the file.
  const bool final = ended(running.monitor);
  if (ended(running.init)) {
    if (!record.init && !final) return;
    const bool starved = record.init && record.init->signal == SIGKILL && context_.cgroups.out_of_memory(id);
    const std::string text =
        starved ? "Process sandbox was killed at its memory limit" : "Process sandbox ended (" + ending(record.init) + ")";
    const std::string_view reason = starved ? kReasonOomKilled : kReasonContainerExited;
    turn(sandbox, Phase::kEnded, reason, text);
    tell(event_of("Warning", reason, text + last_words(context_.files, id, "sandbox.log")), id);
    return;
  }
  if (!ended(running.supervisor)) return;
  if (context_.files.confirmed_generation(id) == generation) return orphaned(sandbox, id);
  if (!record.supervisor && !final) return;
  const absl::Status undone = end_generation(context_, id, running, std::chrono::milliseconds{0});
  (void)context_.files.remove_driver_file(id, "generation");
  const std::string text = "Supervisor exited before confirmation (" + ending(record.supervisor) + ")";
  turn(sandbox, Phase::kEnded, kReasonSupervisorExited, undone.ok() ? text : text + "; " + std::string(undone.message()));
  tell(event_of("Warning", kReasonSupervisorExited, text + last_words(context_.files, id, "supervisor.log")), id);
}

// The supervisor of a confirmed launch is gone: the runtime ends itself after its recovery window. One that does not, because it was
// stopped or hangs, is ended here.
void ProcessDriver::orphaned(const SandboxPtr& sandbox, const std::string& id) {
  RunningGeneration& running = sandbox->running;
  if (!running.expiry) {
    running.expiry = Descriptor{timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
    itimerspec due{};
    due.it_value.tv_sec = kOrphanedRuntime.count();
    if (running.expiry && timerfd_settime(running.expiry.get(), 0, &due, nullptr) == 0) return follow(id, running.expiry.get());
    // Without a timer nobody would end it: it is ended now.
  } else {
    std::uint64_t fired = 0;
    if (read(running.expiry.get(), &fired, sizeof fired) != sizeof fired) return;
  }
  const absl::Status undone = end_generation(context_, id, running, std::chrono::milliseconds{0});
  (void)context_.files.remove_driver_file(id, "generation");
  const std::string text = "The sandbox runtime did not end within " + std::to_string(kOrphanedRuntime.count()) + " s of its supervisor";
  turn(sandbox, Phase::kEnded, kReasonContainerExited, undone.ok() ? text : text + "; " + std::string(undone.message()));
  tell(event_of("Warning", kReasonContainerExited, text), id);
}

void ProcessDriver::cancel_launch(const SandboxPtr& sandbox) {
  const std::lock_guard lock{mutex_};
  if (sandbox->attempt != nullptr) sandbox->attempt->cancel();
}

void ProcessDriver::reconcile() {
  std::set<std::string> known;
  for (const std::string& id : context_.files.known()) {
    if (!is_valid_id(id)) continue;
    known.insert(id);
    adopt(id);
  }
  const auto is_known = [&known](const std::string& id) { return known.count(id) != 0; };
  for (const std::string& id : context_.files.running_directories()) {
    if (!is_known(id)) (void)context_.files.remove_runtime(id);
  }
  for (const std::string& id : context_.cgroups.existing()) {
    if (!is_known(id)) (void)context_.cgroups.remove(id);
  }
  if (context_.mode != LaunchMode::kSingleId) slots_.release_unknown(is_known);
}

void ProcessDriver::adopt(const std::string& id) {
  auto sandbox = std::make_shared<Sandbox>();
  const auto bytes = context_.files.read_driver_file(id, "sandbox.pb");
  if (!bytes.ok() || !sandbox->state.ParseFromString(*bytes) || sandbox->state.id() != id) {
    // Nothing ever ran: the record is written before the first launch.
    (void)context_.files.remove_runtime(id);
    (void)context_.files.remove_state(id);
    return;
  }
  absl::Status slot;
  {
    const std::lock_guard lock{mutex_};
    if (sandbox->state.has_slot()) slot = slots_.retake(sandbox->state.slot(), id);
    sandboxes_[id] = sandbox;
  }
  delegate_files(context_, id, parties(sandbox->state), sandbox->state.uid(), sandbox->state.gid());
  adopt_generation(sandbox, id);
  if (!slot.ok())
    turn(sandbox, Phase::kEnded, kReasonLaunchFailed, "the kernel ids of this sandbox are taken: " + std::string(slot.message()));
}

void ProcessDriver::adopt_generation(const SandboxPtr& sandbox, const std::string& id) {
  const std::lock_guard operation{sandbox->operation};
  RunningGeneration& running = sandbox->running;
  const auto bytes = context_.files.read_driver_file(id, "generation");
  const bool launched = bytes.ok() && running.record.ParseFromString(*bytes);
  {
    const std::lock_guard lock{mutex_};
    sandbox->generation = running.record.generation();
  }
  const auto boot = boot_id();
  const bool same_boot = boot.ok() && running.record.boot_id() == *boot;
  const auto open_recorded = [&](const records::Process& process) -> Descriptor {
    if (!same_boot || process.pid() <= 0) return {};
    auto handle = open_process({process.pid(), process.start_ticks()});
    return handle.ok() ? std::move(*handle) : Descriptor{};
  };
  if (launched) {
    running.init = open_recorded(running.record.init());
    running.supervisor = open_recorded(running.record.supervisor());
    running.monitor = open_recorded(running.record.monitor());
  }
  if (running.init && running.record.has_supervisor()) {
    {
      const std::lock_guard lock{mutex_};
      sandbox->evidence = running.record.evidence_digest();
    }
    turn(sandbox, Phase::kRunning, kReasonBackendReady, "Process sandbox is running");
    follow_exits(id);
    follow(id, running);
    if (!running.supervisor) workers_.post([this, id] { examine(id); });
    return;
  }
  const bool half_launched = static_cast<bool>(running.init);
  const absl::Status cleaned = end_generation(context_, id, running, std::chrono::milliseconds{0});
  if (context_.files.read_driver_file(id, "stopped").ok()) {
    turn(sandbox, Phase::kStopped, kReasonContainerStopped, "Process sandbox was stopped");
  } else if (launched && !same_boot) {
    turn(sandbox, Phase::kEnded, kReasonRuntimeRestart, "The host was restarted");
  } else {
    std::string text = half_launched ? "The gateway ended during the launch" : "Process sandbox ended while no gateway ran";
    turn(sandbox, Phase::kEnded, kReasonContainerExited, cleaned.ok() ? text : text + "; " + std::string(cleaned.message()));
  }
}

}  // namespace openshell::drivers::process
