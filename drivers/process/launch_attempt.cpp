#include "drivers/process/launch_attempt.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "drivers/process/identity_slots.hpp"
#include "drivers/process/network_namespace.hpp"
#include "drivers/process/workspace_image.hpp"
#include "observability/fault_point.hpp"

namespace openshell::drivers::process {
namespace {

constexpr int kMonitorControl = 3;
constexpr auto kMonitorEndWait = std::chrono::seconds{5};
constexpr auto kAfterKillWait = std::chrono::seconds{5};
constexpr auto kAfterRuntimeGrace = std::chrono::seconds{3};  // for a supervisor with nothing left to end: it says its last lines

std::string read_whole(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void set_process(records::Process* record, const ProcessMark& mark) {
  record->set_pid(mark.pid);
  record->set_start_ticks(mark.start_ticks);
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Waits for the monitor, and takes it off the process table where it is our child.
void reap_monitor(RunningGeneration& running) {
  if (!running.monitor) return;
  if (!wait_ended(running.monitor.get(), kMonitorEndWait)) {
    (void)send_signal(running.monitor.get(), SIGKILL);
    (void)wait_ended(running.monitor.get(), kMonitorEndWait);
  }
  if (running.monitor_child > 0) {
    while (waitpid(running.monitor_child, nullptr, 0) < 0 && errno == EINTR) {
    }
    running.monitor_child = -1;
  }
  running.monitor.reset();
}

std::string describe(const boundary::OuterFence& fence, const FenceFacts& facts) {
  return "digest " + fence.evidence_digest + ", mode " + std::string(to_string(facts.mode));
}

}  // namespace

RootInputs root_inputs(const DriverContext& context, const std::string& id, const std::string& name, std::uint32_t uid, std::uint32_t gid) {
  const SandboxPaths paths = context.files.paths(id);
  RootInputs inputs;
  inputs.sandbox_id = id;
  inputs.sandbox_name = name;
  inputs.uid = uid;
  inputs.gid = gid;
  inputs.bundle_dir = context.options.bundle_dir;
  inputs.launch_dir = paths.runtime + "/sandbox";
  inputs.channel_dir = paths.runtime + "/channel";
  inputs.ca_dir = paths.runtime + "/ca";
  inputs.workspace_dir = paths.state + "/workload/workspace";
  inputs.tmp_dir = paths.state + "/workload/tmp";
  if (const std::string image = workspace_image_path(paths); access(image.c_str(), F_OK) == 0) inputs.workspace_image = image;
  inputs.tmp_bytes = context.tmp_bytes;
  inputs.log_dir = paths.state + "/supervisor/log";
  inputs.cgroup_dir = context.cgroups.visible_directory(id);
  inputs.host_sockets = bound_socket_paths(read_whole("/proc/net/unix"));
  inputs.ipv6 = kernel_has_ipv6();
  return inputs;
}

IdMapping id_mapping(const DriverContext& context, const Parties& parties, std::uint32_t uid, std::uint32_t gid) {
  IdMapping mapping{{{uid, parties.workload.uid, 1}}, {{gid, parties.workload.gid, 1}}, uid, gid};
  if (context.mode == LaunchMode::kSubordinateIds) {
    mapping.uid_map.insert(mapping.uid_map.begin(), {0, parties.driver.uid, 1});
    mapping.gid_map.insert(mapping.gid_map.begin(), {0, parties.driver.gid, 1});
  }
  return mapping;
}

void delegate_files(const DriverContext& context, const std::string& id, const Parties& parties, std::uint32_t uid, std::uint32_t gid) {
  if (context.mode != LaunchMode::kSubordinateIds) return;
  const auto run = [monitor = context.options.monitor_path, ids = context.subordinate](const FileCall& call, const IdMapping& mapping) {
    return call_in_namespace(monitor, ids, call, mapping);
  };
  context.files.delegate(id, id_mapping(context, parties, uid, gid), run);
}

void set_identity(LaunchPlan& plan, const DriverContext& context, const Parties& parties, std::uint32_t uid, std::uint32_t gid) {
  IdMapping mapping = id_mapping(context, parties, uid, gid);
  plan.uid = uid;
  plan.gid = gid;
  plan.uid_map = std::move(mapping.uid_map);
  plan.gid_map = std::move(mapping.gid_map);
  // As root the files get their owner before there is a user namespace.
  plan.owner_uid = context.mode == LaunchMode::kRoot ? parties.workload.uid : uid;
  plan.owner_gid = context.mode == LaunchMode::kRoot ? parties.workload.gid : gid;
  plan.newuidmap = context.subordinate.newuidmap;
  plan.newgidmap = context.subordinate.newgidmap;
}

absl::StatusOr<Descriptor> start_monitor(const std::string& program, const std::string& log, RunningGeneration& running) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return system_error("making a socket pair");
  Descriptor ours{ends[0]}, theirs{ends[1]};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kMonitorControl);
  posix_spawn_file_actions_addclosefrom_np(&actions, kMonitorControl + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  std::string name = "openshell-sandbox-monitor";
  char* argv[] = {name.data(), nullptr};
  char* environment[] = {nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes, argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return system_error("starting " + program, error);
  running.monitor_child = pid;
  running.monitor = Descriptor{static_cast<int>(syscall(SYS_pidfd_open, pid, 0))};
  if (!running.monitor) return system_error("holding the monitor");
  return ours;
}

absl::Status LaunchAttempt::check_cancelled() const {
  return cancelled_ ? absl::CancelledError("the launch was cancelled") : absl::OkStatus();
}

void LaunchAttempt::cancel() {
  cancelled_ = true;
  const std::lock_guard lock{control_mutex_};
  if (control_) shutdown(control_.get(), SHUT_RDWR);
}

absl::StatusOr<RunningGeneration> LaunchAttempt::run() {
  RunningGeneration running;
  absl::Status status = launch(running);
  if (status.ok()) status = check_cancelled();
  if (status.ok()) {
    const std::lock_guard lock{control_mutex_};
    control_.reset();
    return running;
  }
  undo(running);
  if (cancelled_) return absl::CancelledError("the launch was cancelled");
  return status;
}

absl::Status LaunchAttempt::launch(RunningGeneration& running) {
  if (auto status = check_cancelled(); !status.ok()) return status;
  certificates_ = std::async(std::launch::async, [this] { return prepare_certificates(in_.launch); });
  if (auto status = spawn_monitor(running); !status.ok()) return status;
  fault::point("launch", "monitor", "end");
  // While the monitor starts, which knows nothing yet.
  RootPlan root;
  if (auto status = prepare_directories(root); !status.ok()) return status;
  if (auto status = context_.cgroups.make(id(), in_.limits); !status.ok()) return status;
  fault::point("launch", "directories", "end");
  const auto prepared = ask(Word::kPrepare, encode(plan(root)), Word::kPrepared);
  if (!prepared.ok()) return prepared.status();
  const auto pid = decode<std::int32_t>(prepared->body);
  if (!pid.ok()) return pid.status();
  const auto init = mark_of(*pid);
  if (!init.ok()) return init.status();
  set_process(running.record.mutable_init(), *init);
  auto handle = open_process(*init);
  if (!handle.ok()) return handle.status();
  running.init = std::move(*handle);
  fault::point("launch", "init", "end");

  LaunchFacts facts;
  if (auto status = prove_fence(running, root, facts); !status.ok()) {
    if (!cancelled_) reason_ = kReasonOuterFenceInvalid;
    return status;
  }
  fault::point("launch", "fence", "end");
  if (auto status = check_cancelled(); !status.ok()) return status;
  if (auto status = release(running, facts); !status.ok()) return status;
  fault::point("launch", "release", "end");
  if (auto status = confirm_unchanged(found_, expectation(root)); !status.ok()) {
    reason_ = kReasonOuterFenceInvalid;
    return status;
  }
  return absl::OkStatus();
}

absl::Status LaunchAttempt::prepare_directories(RootPlan& root) {
  if (auto status = context_.files.reset_for_generation(id(), in_.parties); !status.ok()) return status;
  // The bundle file has to exist before a plan can name it; its content is the host's own bundle, which the plan finds.
  if (auto status = context_.files.make_runtime(id(), in_.parties, {}); !status.ok()) return status;
  RootInputs inputs = root_inputs(context_, id(), in_.spec.name, in_.state.uid(), in_.state.gid());
  auto planned = plan_host_root(inputs);
  if (!planned.ok()) return planned.status();
  root = std::move(*planned);
  if (root.bundle_source.empty()) return absl::OkStatus();
  return context_.files.write_runtime_file(id(), "ca", "system-bundle.crt", read_whole(root.bundle_source), 0644, in_.parties.workload);
}

absl::Status LaunchAttempt::spawn_monitor(RunningGeneration& running) {
  auto control = start_monitor(context_.options.monitor_path, context_.files.paths(id()).state + "/driver/launcher.log", running);
  if (!control.ok()) return control.status();
  const auto mark = mark_of(running.monitor_child);
  if (!mark.ok()) return mark.status();
  set_process(running.record.mutable_monitor(), *mark);
  const std::lock_guard lock{control_mutex_};
  control_ = std::move(*control);
  return check_cancelled();
}

LaunchPlan LaunchAttempt::plan(const RootPlan& root) const {
  const SandboxPaths paths = context_.files.paths(id());
  LaunchPlan p;
  p.mode = context_.mode;
  p.sandbox_id = id();
  p.generation = in_.launch.runtime_generation.str();
  p.hostname = ("sandbox-" + in_.spec.name).substr(0, 64);
  p.root_directory = paths.runtime + "/driver/root";
  p.state_directory = paths.state + "/driver";
  p.mounts = root.steps;
  for (const std::string& directory : context_.cgroups.directories(id())) p.cgroup_procs.push_back(directory + "/cgroup.procs");
  set_identity(p, context_, in_.parties, in_.state.uid(), in_.state.gid());
  // Only where a limit was asked for and no cgroup takes it: RLIMIT_NPROC counts per uid, which in single id mode is the user's own.
  if (!context_.cgroups.limits_processes() && context_.mode != LaunchMode::kSingleId) p.max_processes = context_.options.sandbox_pids_limit;
  if (!context_.cgroups.limits_memory() && in_.limits.memory_bytes) p.max_address_space = *in_.limits.memory_bytes;
  p.init_argv = context_.options.init_argv;
  if (const auto plan = fault::plan_for_child("OPENSHELL_FAULT_SANDBOX", in_.spec.name))
    p.init_environment.push_back("OPENSHELL_FAULT=" + *plan);
  return p;
}

absl::StatusOr<Frame> LaunchAttempt::ask(Word word, std::string_view body, Word expected) {
  if (auto status = send_frame(control_.get(), word, body); !status.ok()) return status;
  auto answer = receive_frame(control_.get());
  if (!answer.ok()) return answer;
  if (answer->word == Word::kFailed) return absl::FailedPreconditionError(answer->body);
  if (answer->word != expected) return absl::InternalError("the monitor answered something unexpected");
  return answer;
}

FenceExpectation LaunchAttempt::expectation(const RootPlan& root) const {
  FenceExpectation expected;
  expected.kernel_uid = in_.parties.workload.uid;
  expected.kernel_gid = in_.parties.workload.gid;
  expected.namespace_owner = in_.parties.driver.uid;
  expected.mounts = root.expected;
  expected.seen_uid = in_.state.uid();
  expected.seen_gid = in_.state.gid();
  return expected;
}

absl::Status LaunchAttempt::prove_fence(RunningGeneration& running, const RootPlan& root, LaunchFacts& facts) {
  const auto outside = OutsideListeners::open();
  if (!outside.ok()) return outside.status();
  const std::string listeners = encode(outside->list());
  const auto first = ask(Word::kProbe, listeners, Word::kFacts);
  if (!first.ok()) return first.status();
  if (auto ended = ask(Word::kEndLauncher, {}, Word::kDone); !ended.ok()) return ended.status();
  const auto second = ask(Word::kProbe, listeners, Word::kFacts);
  if (!second.ok()) return second.status();
  auto with_launcher = decode<NetworkFacts>(first->body), without_launcher = decode<NetworkFacts>(second->body);
  if (!with_launcher.ok()) return with_launcher.status();
  if (!without_launcher.ok()) return without_launcher.status();

  const ProcessMark init{running.record.init().pid(), running.record.init().start_ticks()};
  auto found = collect_facts(init, running.monitor_child);
  if (!found.ok()) return found.status();
  found->generation = in_.launch.runtime_generation.str();
  found->mode = context_.mode;
  found->with_launcher = std::move(*with_launcher);
  found->without_launcher = std::move(*without_launcher);
  found->outside_seen = outside->heard(!all_refused(found->with_launcher) || !all_refused(found->without_launcher));

  const FenceExpectation expected = expectation(root);
  auto established = judge(*found, expected);
  if (!established.ok()) return established.status();

  const std::string evidence = native_evidence(*found, expected);
  facts.fence = {found->generation, std::move(*established), boundary::evidence_digest(found->generation, evidence)};
  facts.identity.uid = in_.state.uid();
  facts.identity.gid = in_.state.gid();
  facts.identity.source = in_.spec.identity.run_as_user.empty() ? "driver" : "policy";
  const NamespaceId network = found->namespaces.at("net");
  facts.claims = {{"process.netns", std::to_string(network.device) + ":" + std::to_string(network.inode)},
                  {"process.start", std::to_string(init.start_ticks)},
                  {"process.boot_id", found->boot_id}};
  if (context_.mode == LaunchMode::kSingleId) facts.claims[std::string(boundary::kClaimExtraGroups)] = "true";
  running.record.set_boot_id(found->boot_id);
  running.record.set_evidence_digest(describe(facts.fence, *found));
  found_ = std::move(*found);
  return context_.files.write_driver_file(id(), "evidence.json", evidence);
}

absl::Status LaunchAttempt::release(RunningGeneration& running, const LaunchFacts& facts) {
  const bool as_root = context_.mode == LaunchMode::kRoot;
  const auto certificates = certificates_.get();
  if (!certificates.ok()) return certificates.status();
  if (auto status = write_launch_material(context_.options, context_.files, in_.parties, in_.spec, in_.launch, facts, *certificates,
                                          context_.cgroups.limits_processes());
      !status.ok()) {
    return status;
  }
  running.record.set_generation(in_.launch.runtime_generation.str());
  running.record.set_started_ms(now_ms());
  // Written before the gate opens: a gateway that ends right after finds the processes, and no supervisor in the record says that the
  // launch was not finished.
  if (auto status = context_.files.write_driver_file(id(), "generation", running.record.SerializeAsString()); !status.ok()) return status;
  const SupervisorPlan supervisor = supervisor_plan(context_.options, context_.files, in_.parties, in_.spec, in_.launch, as_root);
  const auto started = ask(Word::kRelease, encode(supervisor), Word::kStarted);
  if (!started.ok()) return started.status();
  const auto pid = decode<std::int32_t>(started->body);
  if (!pid.ok()) return pid.status();
  const auto mark = mark_of(*pid);
  if (mark.ok()) {
    set_process(running.record.mutable_supervisor(), *mark);
    auto handle = open_process(*mark);
    if (handle.ok()) running.supervisor = std::move(*handle);
  }
  if (!running.supervisor) {  // ended at once: a pid that nobody has, which the driver takes for an end before Confirm
    running.record.mutable_supervisor()->set_pid(*pid);
  }
  return context_.files.write_driver_file(id(), "generation", running.record.SerializeAsString());
}

void LaunchAttempt::undo(RunningGeneration& running) {
  {
    const std::lock_guard lock{control_mutex_};
    control_.reset();  // before the gate has opened the monitor kills what it started
  }
  (void)end_generation(context_, id(), running, std::chrono::milliseconds{0});
  (void)context_.files.remove_driver_file(id(), "generation");
}

absl::Status end_generation(const DriverContext& context, const std::string& id, RunningGeneration& running,
                            std::chrono::milliseconds grace) {
  absl::Status result;
  if (running.init && has_ended(running.init.get())) grace = std::min<std::chrono::milliseconds>(grace, kAfterRuntimeGrace);
  for (Descriptor* process : {&running.supervisor, &running.init}) {
    if (!*process) continue;
    if (grace.count() > 0 && !has_ended(process->get())) {
      (void)send_signal(process->get(), SIGTERM);
      (void)wait_ended(process->get(), grace);
    }
    if (auto status = send_signal(process->get(), SIGKILL); !status.ok()) result = status;
    if (!wait_ended(process->get(), kAfterKillWait))
      result = absl::DeadlineExceededError("a killed process of sandbox " + id + " does not end");
    process->reset();
  }
  running.expiry.reset();
  reap_monitor(running);
  if (auto status = context.cgroups.remove(id); !status.ok()) result = status;
  if (auto status = context.files.remove_runtime(id); !status.ok()) result = status;
  return result;
}

}  // namespace openshell::drivers::process
