// Launching: what a child starts with, what is refused with which words, what ends with it; and the audit evidence, measured.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "isolation/qualification.hpp"
#include "tests/isolation/isolation/sandbox_fixture.hpp"

namespace openshell::isolation::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Mode {
  const char* name;
  bool rootless;
};
class Launch : public ::testing::TestWithParam<Mode> {
 protected:
  void run(const std::function<void()>& body) { in_sandbox({true, GetParam().rootless}, body); }
};
INSTANTIATE_TEST_SUITE_P(Modes, Launch, ::testing::Values(Mode{"Root", false}, Mode{"Rootless", true}),
                         [](const auto& param) { return std::string{param.param.name}; });

TEST_P(Launch, RT_15_RT_18_IS_04_ChildStartsWithNothing) {
  run([] {
    Workload sandbox;
    const auto result = sandbox.probe({"identity"});
    SCOPED_TRACE(result.out);
    EXPECT_THAT(result.out, HasSubstr("uid=64123 euid=64123 gid=64123"));
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
      EXPECT_THAT(result.out, HasSubstr(std::string{set} + ": 0000000000000000"));
    EXPECT_THAT(result.out, HasSubstr("NoNewPrivs: 1"));
    EXPECT_THAT(result.out, HasSubstr("Seccomp: 2"));
    EXPECT_THAT(result.out, HasSubstr("Seccomp_filters: 3"));
    EXPECT_THAT(result.out, HasSubstr("core=0 dumpable=1 extra_fds=0"));
    EXPECT_EQ(result.status.normalized(), 0);
  });
}

TEST_P(Launch, Spec_12_1_FailuresAreTold) {
  run([] {
    Workload sandbox;
    const auto missing = sandbox.run({"/usr/bin/no-such-program"});
    EXPECT_EQ(missing.launch.code(), absl::StatusCode::kNotFound) << missing.launch;
    EXPECT_EQ(exit_code_of(missing.launch), 127);
    EXPECT_THAT(std::string{missing.launch.message()}, HasSubstr("no-such-program"));
    EXPECT_EQ(sandbox.run({"no-such-program"}).launch.code(), absl::StatusCode::kNotFound);
    const auto forbidden = sandbox.run({"/etc/hostname"});
    EXPECT_EQ(forbidden.launch.code(), absl::StatusCode::kPermissionDenied) << forbidden.launch;
    EXPECT_EQ(exit_code_of(forbidden.launch), 126);
    const auto nowhere = sandbox.run({"/bin/true"}, nullptr, "/nowhere");
    EXPECT_EQ(nowhere.launch.code(), absl::StatusCode::kFailedPrecondition) << nowhere.launch;
    EXPECT_THAT(std::string{nowhere.launch.message()}, HasSubstr("working directory '/nowhere'"));
    EXPECT_EQ(exit_code_of(nowhere.launch), 126);
    EXPECT_EQ(sandbox.run({"true"}).status.normalized(), 0) << "PATH is searched";
    EXPECT_EQ(sandbox.run({"sh", "-c", "exit 255"}).status.normalized(), 255);
    EXPECT_EQ(sandbox.run({"sh", "-c", "kill -9 $$"}).status.normalized(), 137);
    EXPECT_EQ(sandbox.run({"sh", "-c", "pwd; umask"}).out, "/tmp\n0022\n");
  });
}

TEST_P(Launch, IS_02_IS_03_IS_23_PolicyLayerReadOnlyAndReadWrite) {
  run([] {
    Workload sandbox;
    ::mkdir("/tmp/rw", 0755);
    ::mkdir("/tmp/ro", 0755);
    ::mkdir("/tmp/none", 0755);
    std::ofstream{"/tmp/ro/file"} << "read me";
    std::ofstream{"/tmp/none/file"} << "not me";
    EXPECT_EQ(::symlink("/tmp/none/file", "/tmp/rw/link"), 0);
    EXPECT_EQ(::symlink("/tmp/none", "/tmp/rw/dir"), 0);
    FilesystemPolicy policy;
    policy.read_only = {"/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/tmp/ro"};
    policy.read_write = {"/tmp/rw", "/dev/null"};
    auto layer = prepare_landlock_policy(sandbox.landlock, policy);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const auto shared = std::make_shared<const LandlockLayer>(std::move(*layer));
    const auto sh = [&](const std::string& command) { return sandbox.run({"/bin/sh", "-c", command}, shared, "/"); };
    EXPECT_EQ(sh("cat /tmp/ro/file").out, "read me");
    EXPECT_EQ(sh("echo x > /tmp/rw/new && cat /tmp/rw/new").out, "x\n");
    for (const char* refused :
         {"echo x > /tmp/ro/file", "echo x > /tmp/ro/new", "truncate -s 0 /tmp/ro/file", "rm /tmp/ro/file", "cat /tmp/none/file",
          "cat /tmp/rw/link", "ls /tmp/rw/dir", "mv /tmp/ro/file /tmp/rw/", "ln /tmp/ro/file /tmp/rw/hard", "mv /tmp/rw /tmp/moved",
          "echo x > /usr/x", "cat /.openshell/secret", "mkdir /tmp/new", "ln -s /.openshell/secret /tmp/rw/s && cat /tmp/rw/s", "ls /"})
      EXPECT_NE(sh(std::string{refused} + " 2>/dev/null").status.normalized(), 0) << refused;
    // A child's memory is a file below /proc: read-only there closes code injection into an allowed binary.
    EXPECT_NE(sh("sleep 5 >/dev/null 2>&1 & exec 3>/proc/$!/mem").status.normalized(), 0);
  });
}

TEST_P(Launch, IS_22_MissingPathsByMode) {
  run([] {
    auto features = probe_landlock();
    ASSERT_TRUE(features.ok());
    FilesystemPolicy policy;
    policy.read_only = {"/usr", "/does/not/exist", "/may/be/absent"};
    policy.optional = {"/may/be/absent"};
    auto best = prepare_landlock_policy(*features, policy);
    ASSERT_TRUE(best.ok());
    EXPECT_EQ(best->rules, 1u);
    ASSERT_EQ(best->notices.size(), 1u);
    EXPECT_EQ(best->notices[0].path, "/does/not/exist");
    EXPECT_EQ(best->notices[0].reason, "path does not exist");
    policy.compatibility = LandlockCompatibility::HardRequirement;
    const auto hard = prepare_landlock_policy(*features, policy);
    EXPECT_EQ(std::string{hard.status().message()},
              "Landlock path unavailable in hard_requirement mode: /does/not/exist (path does not exist)");
    FilesystemPolicy nothing;
    nothing.read_only = {"/does/not/exist"};
    EXPECT_THAT(std::string{prepare_landlock_policy(*features, nothing).status().message()}, HasSubstr("zero valid paths"));
    FilesystemPolicy empty;
    auto unrestricted = prepare_landlock_policy(*features, empty);
    ASSERT_TRUE(unrestricted.ok());
    EXPECT_FALSE(unrestricted->ruleset.valid());
    FilesystemPolicy many;
    many.read_only.assign(kMaxFilesystemPaths, "/usr");
    EXPECT_TRUE(prepare_landlock_policy(*features, many).ok());
    many.read_write = {"/tmp"};
    EXPECT_EQ(prepare_landlock_policy(*features, many).status().code(), absl::StatusCode::kInvalidArgument);
    for (const char* bad : {"relative", "/a/../b", "/..", ""}) {
      FilesystemPolicy wrong;
      wrong.read_only = {bad};
      EXPECT_EQ(prepare_landlock_policy(*features, wrong).status().code(), absl::StatusCode::kInvalidArgument) << bad;
    }
  });
}

TEST_P(Launch, IS_29_IS_30_ProtectedNameMustBeADirectory) {
  run([] {
    auto features = probe_landlock();
    ::mkdir("/tmp/root", 0755);
    EXPECT_EQ(prepare_landlock_baseline(*features, "/tmp/root").status().code(), absl::StatusCode::kFailedPrecondition)
        << "no child at all";
    ::mkdir("/tmp/root/usr", 0755);
    EXPECT_TRUE(prepare_landlock_baseline(*features, "/tmp/root").ok()) << "absent is fine";
    EXPECT_EQ(::symlink("/tmp", "/tmp/root/.openshell"), 0);
    EXPECT_THAT(std::string{prepare_landlock_baseline(*features, "/tmp/root").status().message()}, HasSubstr("must be a real directory"));
    ::unlink("/tmp/root/.openshell");
    std::ofstream{"/tmp/root/.openshell"} << "file";
    EXPECT_FALSE(prepare_landlock_baseline(*features, "/tmp/root").ok());
    ::unlink("/tmp/root/.openshell");
    ::mkdir("/tmp/root/.openshell", 0755);
    EXPECT_TRUE(prepare_landlock_baseline(*features, "/tmp/root").ok());
  });
}

TEST_P(Launch, RT_15_SetUidProgramGainsNothing) {
  run([] {
    Workload sandbox;
    // passwd, su and mount carry the set-uid bit on any Debian.
    EXPECT_EQ(sandbox.run({"/bin/sh", "-c", "test -u /usr/bin/su"}).status.normalized(), 0) << "this image has no set-uid su to try";
    const auto su = sandbox.run({"/bin/su", "-c", "id -u", "root"});
    EXPECT_NE(su.status.normalized(), 0);
    EXPECT_THAT(su.out, IsEmpty());
  });
}

/// Waits until the workload has `count` processes.
bool reaches(const Workload& sandbox, std::size_t count) {
  for (int look = 0; look < 2000; ++look) {
    if (auto all = sandbox.tree.descendants(); all.ok() && all->size() == count) return true;
    ::poll(nullptr, 0, 5);
  }
  return false;
}

TEST_P(Launch, FB_38_ThousandDaemonsLeaveNothing) {
  run([] {
    Workload sandbox;
    const auto result = sandbox.probe({"daemons", "1000"});
    EXPECT_EQ(result.out, "standing 1000\n") << result.err;
    ASSERT_TRUE(reaches(sandbox, 1000));
    EXPECT_TRUE(sandbox.tree.terminate(std::chrono::milliseconds{100}).ok());
    EXPECT_TRUE(reaches(sandbox, 0)) << "zombies were left";
    EXPECT_GE(sandbox.reaper.orphans_reaped(), 1000u);
  });
}

TEST_P(Launch, FB_38_NamesDoNotHideAProcess) {
  run([] {
    Workload sandbox;
    for (const char* name : {") Z 0 0 (", "a) R 1 1", "(((", "x\n) T 9 9"}) ASSERT_TRUE(sandbox.start_probe({"wait", name}).ok());
    EXPECT_TRUE(reaches(sandbox, 4));
    const auto all = sandbox.tree.descendants();
    for (const auto& process : *all) EXPECT_EQ(process.ppid, 1);
    EXPECT_TRUE(sandbox.tree.terminate(std::chrono::milliseconds{100}).ok());
    EXPECT_TRUE(reaches(sandbox, 0));
  });
}

TEST_P(Launch, D30_OneLaunchEndsWithItsEscapedChildren) {
  run([] {
    Workload sandbox;
    const auto other = sandbox.start_probe({"wait"});
    ASSERT_TRUE(other.ok());
    auto launched = sandbox.launcher->spawn_and_wait([] {
      LaunchRequest request;
      request.program = "/bin/sh";
      // A daemon in a session of its own, one more below it, and a foreground process that ignores TERM.
      request.arguments = {"sh", "-c",
                           "trap '' TERM; setsid sh -c 'setsid sleep 1000 & setsid sleep 1001 &' ; (setsid sleep 1002 &) ; sleep 1003"};
      request.environment = {"PATH=/usr/bin:/bin"};
      return request;
    }());
    ASSERT_TRUE(launched.ok()) << launched.status();
    for (int look = 0; look < 2000 && sandbox.tree.members(launched->job)->size() < 5; ++look) ::poll(nullptr, 0, 5);
    EXPECT_EQ(sandbox.tree.members(launched->job)->size(), 5u);
    EXPECT_EQ(sandbox.tree.members(other->job)->size(), 1u);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(sandbox.tree.terminate(launched->job, std::chrono::milliseconds{200}).ok());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{5});
    EXPECT_TRUE(reaches(sandbox, 1)) << "the other launch must live";
    EXPECT_TRUE(sandbox.tree.signal(other->job, SIGKILL).ok());
    EXPECT_TRUE(reaches(sandbox, 0));
    EXPECT_EQ(sandbox.tree.signal(other->job, SIGKILL).code(), absl::StatusCode::kNotFound);
  });
}

TEST_P(Launch, R_100_FreezeStopsWhatLeftItsGroup) {  // FB-10
  run([] {
    Workload sandbox;
    auto launched = sandbox.launcher->spawn_and_wait([] {
      LaunchRequest request;
      request.program = "/bin/sh";
      request.arguments = {"sh", "-c", "setsid sh -c 'while :; do :; done' & setsid sleep 1000 & kill -STOP $!; while :; do :; done"};
      request.environment = {"PATH=/usr/bin:/bin"};
      return request;
    }());
    ASSERT_TRUE(launched.ok());
    ASSERT_TRUE(reaches(sandbox, 3));
    const auto states = [&] {
      std::string text;
      const auto all = sandbox.tree.descendants();
      for (const auto& process : *all) text += process.state;
      return text;
    };
    // One of them had been stopped by the workload itself and stays so.
    for (int look = 0; look < 1000 && states().find('T') == std::string::npos; ++look) ::poll(nullptr, 0, 5);
    EXPECT_TRUE(sandbox.tree.freeze().ok());
    EXPECT_EQ(states(), "TTT");
    EXPECT_TRUE(sandbox.tree.frozen());
    EXPECT_TRUE(sandbox.tree.resume().ok());
    EXPECT_FALSE(sandbox.tree.frozen());
    for (int look = 0; look < 1000 && states() == "TTT"; ++look) ::poll(nullptr, 0, 1);
    const std::string after = states();
    EXPECT_EQ(std::count(after.begin(), after.end(), 'T'), 1) << after;
  });
}

TEST_P(Launch, IS_50_AuditEvidenceIsComplete) {  // IS-54, ST-14
  run([] {
    Workload sandbox;
    QualificationInputs inputs{*sandbox.launcher, *sandbox.broker, sandbox.landlock, true, false, "/.openshell/secret"};
    const auto begin = std::chrono::steady_clock::now();
    const auto evidence = qualify(inputs);
    ASSERT_TRUE(evidence.ok()) << evidence.status();
    std::printf("[ MEASURED ] qualification %.1f ms\n",
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    EXPECT_TRUE(evidence->complete().ok()) << evidence->complete();
    EXPECT_TRUE(evidence->seccomp.cancellation);
    EXPECT_FALSE(evidence->seccomp.task_memory_writes_disabled);
    EXPECT_TRUE(evidence->anyip);
    const auto posture = read_posture();
    ASSERT_TRUE(posture.ok());
    EXPECT_TRUE(check_posture(*posture).ok()) << check_posture(*posture);
    EXPECT_TRUE(posture->loopback_only);
    EXPECT_TRUE(posture->anyip);
    EXPECT_EQ(posture->uid, 64123u);
    // The port of the resolver is free again, for a stub that binds without SO_REUSEADDR even.
    const FileDescriptor stub{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_storage storage;
    const socklen_t size = SocketAddress::parse("127.0.0.53", 53)->to_sockaddr(storage);
    EXPECT_EQ(::bind(stub.get(), reinterpret_cast<sockaddr*>(&storage), size), 0) << std::strerror(errno);
    // The decider is the real one again.
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "1000"}).out, HasSubstr("connect=0 "));
  });
}

TEST_P(Launch, IS_51_EvidenceFallsShortWhereTheLayerIsMissing) {
  run([] {
    Workload sandbox;
    // A file outside /.openshell is no evidence, and is not accepted as one.
    QualificationInputs inputs{*sandbox.launcher, *sandbox.broker, sandbox.landlock, true, true, "/etc/hostname"};
    const auto evidence = qualify(inputs);
    ASSERT_TRUE(evidence.ok()) << evidence.status();
    EXPECT_FALSE(evidence->landlock_allow_deny);
    EXPECT_FALSE(evidence->udp_dns_round_trip) << "no stub serves, though the caller said so";
    EXPECT_EQ(std::string{evidence->complete().message()},
              "native Linux sandbox audit evidence is incomplete: landlock_allow_deny, udp_dns_round_trip, tcp_dns_round_trip");
  });
}

TEST_P(Launch, IS_53_OnlyFalseFalseIsRefused) {  // IS-22
  AuditEvidence evidence;
  evidence.no_new_privileges = evidence.child_dumpable = evidence.core_limit_zero = evidence.native_architecture =
      evidence.landlock_allow_deny = true;
  evidence.udp_dns_round_trip = evidence.tcp_dns_round_trip = evidence.tcp_allow_round_trip = evidence.tcp_deny_round_trip =
      evidence.loopback_confinement = true;
  evidence.sandbox_dumpable = false;
  evidence.landlock_abi = kMinimumLandlockAbi;
  auto& s = evidence.seccomp;
  s.new_listener = s.notification_round_trip = s.id_validation = s.addfd_send = s.retained_socket_operation = s.proc_fd_identity =
      s.task_memory_read = s.task_memory_write = true;
  for (bool cancellation : {false, true}) {
    for (bool writes_disabled : {false, true}) {
      s.cancellation = cancellation;
      s.task_memory_writes_disabled = writes_disabled;
      EXPECT_EQ(evidence.complete().ok(), cancellation || writes_disabled);
    }
  }
  evidence.capabilities.bounding = 1;
  EXPECT_FALSE(evidence.complete().ok());
  evidence.capabilities.bounding = 0;
  evidence.landlock_abi = 2;
  EXPECT_FALSE(evidence.complete().ok());
}

TEST_P(Launch, IS_31_IS_32_OneListenerOnTheLauncherThreadAlone) {
  run([] {
    Workload sandbox;
    int filtered = 0, plain = 0;
    for (int tid = 1; tid < 64; ++tid) {
      std::ifstream status{"/proc/self/task/" + std::to_string(tid) + "/status"};
      for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("Seccomp_filters:")) continue;
        line.back() == '0' ? ++plain : ++filtered;
      }
    }
    EXPECT_EQ(filtered, 1);
    EXPECT_GE(plain, 5) << "receivers, identity threads, watchdog, reaper, main";
    // A second listener in the same chain is impossible: the workload's own attempt is refused (bypass table), and so is ours.
    Launcher::Options again;
    again.landlock = sandbox.landlock;
    auto second = Launcher::start(again, sandbox.reaper);
    EXPECT_TRUE(second.ok()) << "another thread may: one listener per launcher";
  });
}

TEST_P(Launch, IS_24_NewRootChildrenAreNotGranted) {
  run([] {
    Workload sandbox;
    // Rootless, the root directory belongs to the sandbox's own uid: only Landlock can deny what appears there later.
    if (::mkdir("/late", 0777) == 0) {
      std::ofstream{"/late/file"} << "late";
      EXPECT_THAT(sandbox.run({"/bin/cat", "/late/file"}).err, HasSubstr("Permission denied"));
    } else {
      EXPECT_FALSE(GetParam().rootless);
    }
    EXPECT_NE(sandbox.run({"/bin/sh", "-c", "ls / 2>/dev/null"}).status.normalized(), 0) << "the root directory itself has no rule";
  });
}

TEST_P(Launch, SIG_24_SIG_25_ReservedSignal) {  // SIG-23
  run([] {
    Workload sandbox;
    EXPECT_EQ(sandbox.run({"/bin/sh", "-c", "kill -USR2 $$; echo alive"}).status.normalized(), 128 + SIGUSR2) << "exec resets the handler";
    struct sigaction action {};
    ASSERT_EQ(::sigaction(SIGUSR2, nullptr, &action), 0);
    EXPECT_EQ(action.sa_flags & SA_RESTART, 0);
    action.sa_handler = [](int) {};
    ASSERT_EQ(::sigaction(SIGUSR2, &action, nullptr), 0);
    EXPECT_EQ(harden_self().code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST_P(Launch, IS_57_IS_65_LegacyReadOnlyMode) {  // IS-52, IS-62
  run([] {
    Workload::Options options;
    options.allow_killable = false;
    Workload sandbox{options};
    EXPECT_EQ(sandbox.launcher->cancellation(), CancellationMode::LegacyReadOnly);
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "1000"}).out, HasSubstr("peer=203.0.113.10:1000"));
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "1030", "nonblock"}).out, HasSubstr("echo=echo!"));
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "2000"}).out, HasSubstr("connect=13 "));
    // A signal kills the notification here, and the call comes back as a new one: the decision under way goes on.
    const auto restarted = sandbox.probe({"signal", "203.0.113.10", "1040", "restart"});
    EXPECT_THAT(restarted.out, HasSubstr("connect=0 ")) << restarted.out;
    EXPECT_EQ(sandbox.decider.seen().size(), 4u);
    QualificationInputs inputs{*sandbox.launcher, *sandbox.broker, sandbox.landlock, true, false, "/.openshell/secret"};
    const auto evidence = qualify(inputs);
    ASSERT_TRUE(evidence.ok());
    EXPECT_TRUE(evidence->seccomp.task_memory_writes_disabled);
    EXPECT_TRUE(evidence->complete().ok()) << evidence->complete();
  });
}

TEST_P(Launch, R_97_QueueIsBounded) {
  run([] {
    Workload sandbox;
    std::atomic<int> launched{0}, refused{0}, ended{0};
    const int count = 300;
    for (int i = 0; i < count; ++i) {
      LaunchRequest request;
      request.program = "/bin/true";
      request.on_exit = [&](pid_t, ExitStatus) { ended.fetch_add(1); };
      sandbox.launcher->spawn(std::move(request), [&](absl::StatusOr<LaunchedProcess> process) {
        if (process.ok())
          launched.fetch_add(1);
        else if (process.status().code() == absl::StatusCode::kResourceExhausted)
          refused.fetch_add(1);
      });
    }
    for (int look = 0; look < 4000 && (launched + refused < count || ended < launched); ++look) ::poll(nullptr, 0, 5);
    EXPECT_EQ(launched + refused, count);
    EXPECT_EQ(ended, launched) << "every launch has exactly one exit";
    EXPECT_GE(launched, static_cast<int>(Launcher::kMaxQueuedLaunches));
  });
}

TEST_P(Launch, SIG_26_ThreadedProgramsSignalThemselves) {
  run([] {
    Workload sandbox;
    // Group and sibling signals, timeout(1), and a thread cancelled by python's faulthandler-free way: kill of a child group.
    EXPECT_EQ(sandbox.run({"timeout", "0.2", "sleep", "9"}).status.normalized(), 124);
    EXPECT_EQ(sandbox.run({"/bin/sh", "-c", "sleep 9 & kill -TERM $!; wait $!; echo $?"}).out, "143\n");
    const auto python = sandbox.run({"/usr/bin/python3", "-c",
                                     "import signal,threading,time,os\n"
                                     "got=[]\n"
                                     "signal.signal(signal.SIGUSR1,lambda *a: got.append(1))\n"
                                     "t=threading.Thread(target=time.sleep,args=(0.2,)); t.start()\n"
                                     "signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)\n"
                                     "os.setresuid(os.getuid(),os.getuid(),os.getuid())\n"
                                     "t.join(); print(len(got))\n"});
    EXPECT_EQ(python.out, "1\n") << python.err;
  });
}

}  // namespace
}  // namespace openshell::isolation::testing
