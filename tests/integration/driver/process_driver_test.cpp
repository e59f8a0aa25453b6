// The process driver against the real kernel: a program that stands in for openshell-sandbox is PID 1 and tells what it sees. Run as root
// it shows the root mode; run as a plain user (the second ctest entry) the single id mode.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>

#include "host.hpp"

namespace openshell::drivers::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kId = "11111111-2222-4333-8444-555555555555";
constexpr const char* kOther = "66666666-7777-4888-8999-aaaaaaaaaaaa";
constexpr const char* kGeneration = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";
constexpr const char* kNext = "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee";
constexpr std::uint32_t kFirst = 1'950'000'000, kLast = 1'950'000'127;

bool as_root() { return geteuid() == 0; }

// Everything of the host that a sandbox could leave something in.
struct Traces {
  std::string mounts = read_text("/proc/self/mountinfo");
  std::size_t namespaces = count_namespaces();
  std::vector<std::string> cgroups = cgroup_directories();
  std::vector<int> processes = processes_with_uid(kFirst, kLast);

  static std::size_t count_namespaces() {
    std::set<std::string> links;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::error_code error;
      for (const char* name : {"net", "pid", "mnt", "user"}) {
        const auto link = fs::read_symlink(entry.path() / "ns" / name, error);
        if (!error) links.insert(link.string());
      }
    }
    return links.size();
  }
  static std::vector<std::string> cgroup_directories() {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator("/sys/fs/cgroup", fs::directory_options::skip_permission_denied, error)) {
      if (entry.path().filename() == kId || entry.path().filename() == kOther) found.push_back(entry.path().string());
    }
    return found;
  }
};

void create(Host& host, const SandboxSpec& wanted, const char* generation = kGeneration) {
  const auto identity = host.driver().create(wanted, launch(generation));
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_FALSE(identity->empty());
  host.wait_for(wanted.id.str(), "BackendReady");
}

// A listener of the host on its own 127.0.0.1, a Unix socket by path and an abstract one.
class HostListeners {
 public:
  explicit HostListeners(const std::string& directory) {
    tcp_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    EXPECT_EQ(bind(tcp_, reinterpret_cast<sockaddr*>(&any), size), 0);
    EXPECT_EQ(listen(tcp_, 4), 0);
    getsockname(tcp_, reinterpret_cast<sockaddr*>(&any), &size);
    port = ntohs(any.sin_port);
    abstract_ = unix_listener(std::string("\0openshell-driver-test", 22));
    (void)directory;
  }
  ~HostListeners() {
    close(tcp_);
    close(abstract_);
  }
  [[nodiscard]] bool untouched() const { return accept(tcp_, nullptr, nullptr) < 0 && errno == EAGAIN; }
  int port = 0;

 private:
  static int unix_listener(const std::string& name) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, name.data(), name.size());
    (void)bind(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);  // a parallel run of the other mode may hold the name
    (void)listen(fd, 4);
    return fd;
  }
  int tcp_ = -1, abstract_ = -1;
};

TEST(ProcessDriver, RunsOneSandboxAndLeavesNothing) {
  const Traces before;
  Host host;
  host.start();
  const auto begin = std::chrono::steady_clock::now();
  create(host, spec(kId));
  std::printf("create to BackendReady: %ld ms\n",
              static_cast<long>((std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds{1}));
  host.report(kId);
  const auto ending = std::chrono::steady_clock::now();
  const auto removed = host.driver().remove(SandboxId{kId});
  std::printf("delete: %ld ms\n", static_cast<long>((std::chrono::steady_clock::now() - ending) / std::chrono::milliseconds{1}));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_TRUE(*removed);
  host.wait_deleted(kId);
  EXPECT_FALSE(fs::exists(host.state(kId)));
  EXPECT_FALSE(fs::exists(host.runtime(kId)));
  EXPECT_TRUE(fs::is_empty(host.path + "/run"));
  if (as_root()) {
    EXPECT_TRUE(fs::is_empty(host.path + "/slots"));
  }
  const Traces after;
  EXPECT_EQ(before.mounts, after.mounts);
  EXPECT_THAT(after.cgroups, IsEmpty());
  EXPECT_THAT(after.processes, IsEmpty());
  EXPECT_FALSE(*host.driver().remove(SandboxId{kId})) << "a second delete finds nothing";
  EXPECT_TRUE(absl::IsNotFound(host.driver().get(SandboxId{kId}).status()));
}

// Identity, capabilities, root and reach, as the workload's own process finds them.
TEST(ProcessDriver, RT_18_IS_12_WorkloadSeesItsOwnIdentityAndNothingOfTheHost) {  // HX-57, NET-03, NET-04
  Host host;
  HostListeners listeners{host.path};
  host.start();
  SandboxSpec wanted = spec(kId);
  wanted.environment = {{"A", "1"}, {"OPENSHELL_ENDPOINT", "https://evil.test"}};
  // The stand-in looks for the port in its workspace, which is there before it starts only on a second start.
  create(host, wanted);
  host.report(kId);
  ASSERT_TRUE(host.driver().stop(SandboxId{kId}).ok());
  std::ofstream(host.state(kId) + "/workload/workspace/.host_port") << listeners.port;
  fs::remove(host.state(kId) + "/workload/workspace/report");
  ASSERT_TRUE(host.driver().start(wanted, launch(kNext), "").ok());
  host.wait_for(kId, "BackendReady");
  const std::string report = host.report(kId);

  EXPECT_EQ(value(report, "pid"), "1");
  for (const char* key : {"uid", "euid", "gid"}) EXPECT_EQ(value(report, key), "1000") << key;
  if (as_root()) {
    EXPECT_EQ(value(report, "groups"), "0");
  }
  EXPECT_EQ(value(report, "hostname"), "sandbox-test-11111111");
  EXPECT_EQ(value(report, "environment"), "");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_THAT(report, HasSubstr(std::string(set) + ":\t0000000000000000")) << set;
  EXPECT_THAT(report, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(report, HasSubstr("SigIgn:\t0000000000000000"));
  EXPECT_THAT(report, HasSubstr("SigBlk:\t0000000000000000"));

  for (const char* key : {"write_usr", "write_etc", "write_root", "write_var"}) EXPECT_EQ(value(report, key), std::to_string(EROFS)) << key;
  for (const char* key : {"write_tmp", "write_sandbox", "write_shm", "write_null"}) EXPECT_EQ(value(report, key), "0") << key;
  EXPECT_THAT(value(report, "read_root"), AnyOf(std::to_string(EACCES), "0"));  // single id: its own empty directory
  EXPECT_EQ(value(report, "read_shadow"), std::to_string(ENOENT));
  EXPECT_THAT(value(report, "write_sysctl"), AnyOf(std::to_string(EACCES), std::to_string(EROFS)));
  EXPECT_EQ(value(report, "home"), as_root() ? ". .. " : ". .. ");
  EXPECT_EQ(value(report, "resolv"), "nameserver 127.0.0.53");
  EXPECT_THAT(report, HasSubstr("sandbox:x:1000:1000:"));
  EXPECT_NE(value(report, "bundle_bytes"), "0");
  EXPECT_EQ(value(report, "port_start"), "0");

  EXPECT_THAT(value(report, "connect_test_net"), AnyOf(std::to_string(ECONNREFUSED), std::to_string(ENETUNREACH)));
  EXPECT_EQ(value(report, "host_listener"), std::to_string(ECONNREFUSED));
  EXPECT_EQ(value(report, "abstract"), std::to_string(ECONNREFUSED));
  EXPECT_EQ(value(report, "host_socket"), std::to_string(ENOENT));
  EXPECT_TRUE(listeners.untouched());
}

// Owners and modes of every directory; what the supervisor is and gets.
TEST(ProcessDriver, DirectoriesAndSupervisorHaveTheirOwners) {  // CA-98, CR-07, ST-31
  Host host;
  host.start();
  SandboxSpec wanted = spec(kId);
  wanted.log_level = "debug";
  wanted.environment = {{"SECRET", "in-the-workload-only"}};
  LaunchAuthentication authentication = launch(kGeneration);
  authentication.supervisor_settings.poll_interval_secs = 3;
  authentication.supervisor_settings.resolvers = {"127.0.0.1:5353", "[::1]:53"};
  ASSERT_TRUE(host.driver().create(wanted, authentication).ok());
  host.wait_for(kId, "BackendReady");
  host.report(kId);
  const std::string log = host.state(kId) + "/supervisor/log/supervisor-report";
  while (!fs::exists(log)) usleep(1000);

  struct Row {
    std::string path;
    char owner;  // d river, w orkload, s upervisor
    unsigned mode;
  };
  const std::string s = host.state(kId), r = host.runtime(kId);
  const std::uint32_t workload = as_root() ? kFirst : geteuid(), supervisor = as_root() ? kFirst + 15 : geteuid();
  for (const Row& row : std::vector<Row>{{s, 'd', 0711},
                                         {s + "/driver", 'd', 0700},
                                         {s + "/workload", 'w', 0700},
                                         {s + "/workload/workspace", 'w', 0755},
                                         {s + "/workload/tmp", 'w', 01777},
                                         {s + "/supervisor", 's', 0700},
                                         {s + "/supervisor/state", 's', 0700},
                                         {s + "/supervisor/log", 's', 0755},
                                         {s + "/supervisor/ocsf", 's', 0700},
                                         {r, 'd', 0711},
                                         {r + "/driver", 'd', 0700},
                                         {r + "/supervisor", 's', 0700},
                                         {r + "/supervisor/descriptor.json", 's', 0400},
                                         {r + "/supervisor/auth.json", 's', 0400},
                                         {r + "/sandbox", 'w', 0700},
                                         {r + "/sandbox/key.pem", 'w', 0400},
                                         {r + "/sandbox/bootstrap.json", 'w', 0400},
                                         {r + "/channel", 'w', 02710},
                                         {r + "/ca", 'w', 0711},
                                         {r + "/ca/system-bundle.crt", 'w', 0644}}) {
    struct stat info {};
    ASSERT_EQ(stat(row.path.c_str(), &info), 0) << row.path;
    EXPECT_EQ(info.st_mode & 07777, row.mode) << row.path;
    EXPECT_EQ(info.st_uid, row.owner == 'd' ? geteuid() : row.owner == 'w' ? workload : supervisor) << row.path;
  }
  struct stat channel {};
  ASSERT_EQ(stat((r + "/channel").c_str(), &channel), 0);
  EXPECT_EQ(channel.st_gid, as_root() ? supervisor : getegid());

  const std::string report = read_text(log);
  EXPECT_EQ(value(report, "uid"), std::to_string(supervisor));
  if (as_root()) {
    EXPECT_EQ(value(report, "groups"), "0");
  }
  EXPECT_THAT(report, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(report, HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_EQ(value(report, "fds"), ". .. 0 1 2 3 4 ") << "stdio, the report and the listing itself";
  EXPECT_THAT(report, HasSubstr("arg --poll-interval-secs\narg 3\n"));
  EXPECT_THAT(report, HasSubstr("arg --resolver\narg 127.0.0.1:5353\narg --resolver\narg [::1]:53\n"));
  EXPECT_THAT(report, HasSubstr("env OPENSHELL_ADMITTED_ISOLATION_BACKEND=openshell-sandbox"));
  EXPECT_THAT(report, HasSubstr("env OPENSHELL_MAIN_PROCESS_SPEC={\"version\":1,\"command\":[\"/bin/sleep\",\"1000\"],\"tty\":false}"));
  EXPECT_THAT(report, Not(HasSubstr("must-not-leak")));
  EXPECT_THAT(report, Not(HasSubstr("in-the-workload-only")));
  EXPECT_THAT(report, Not(HasSubstr("env PATH=")));

  // Tokens: in the supervisor's bundle and nowhere else.
  EXPECT_THAT(read_text(r + "/supervisor/auth.json"), HasSubstr("gateway-token-that-must-not-leak"));
  for (const char* file : {"/sandbox/bootstrap.json", "/sandbox/server.pem", "/ca/system-bundle.crt"}) {
    EXPECT_THAT(read_text(r + file), Not(HasSubstr("must-not-leak"))) << file;
  }
  EXPECT_THAT(read_text(r + "/sandbox/bootstrap.json"), HasSubstr("in-the-workload-only"));
}

// The four guarantees stand in both halves, with one digest over the evidence that is kept.
TEST(ProcessDriver, DRV_04_07_EvidenceIsCompleteAndBoundToTheGeneration) {  // DRV-07
  Host host;
  host.start();
  create(host, spec(kId));
  const auto seen = host.driver().get(SandboxId{kId});
  ASSERT_TRUE(seen.ok());
  std::string digest;
  for (const Condition& condition : seen->conditions) {
    if (condition.type == "OuterFence") digest = condition.message.substr(std::strlen("digest "), 64);
  }
  const std::string evidence = read_text(host.state(kId) + "/driver/evidence.json");
  EXPECT_EQ(digest, boundary_digest(kGeneration, evidence));
  const std::string guarantees =
      R"("established":["default_deny_egress","no_unmanaged_egress_path","revocation_verified","controller_loss_fails_closed"])";
  for (const char* file : {"/supervisor/descriptor.json", "/sandbox/bootstrap.json"}) {
    const std::string half = read_text(host.runtime(kId) + file);
    EXPECT_THAT(half, HasSubstr(guarantees)) << file;
    EXPECT_THAT(half, HasSubstr(digest)) << file;
    EXPECT_THAT(half, HasSubstr("process.netns")) << file;
  }
  for (const char* key : {"\"fence_mode\"", "\"mounts\"", "\"capabilities\"", "\"network_with_launcher\"", "\"outside_seen\":[]",
                          "\"user_namespace_owner\""}) {
    EXPECT_THAT(evidence, HasSubstr(key));
  }
}

TEST(ProcessDriver, TwoSandboxesShareNothing) {
  Host host;
  host.start();
  create(host, spec(kId));
  create(host, spec(kOther));
  host.report(kId);
  host.report(kOther);
  if (as_root()) {
    struct stat one {
    }, two{};
    ASSERT_EQ(stat((host.state(kId) + "/workload/workspace/test").c_str(), &one), 0);
    ASSERT_EQ(stat((host.state(kOther) + "/workload/workspace/test").c_str(), &two), 0);
    EXPECT_EQ(one.st_uid, kFirst);
    EXPECT_EQ(two.st_uid, kFirst + 16);
  }
  EXPECT_EQ(host.driver().list()->size(), 2u);
  EXPECT_EQ(host.driver().list()->front().id.str(), kId) << "sorted by id";
}

TEST(ProcessDriver, StopKeepsTheWorkspaceAndStartMakesANewGeneration) {
  Host host;
  host.start();
  create(host, spec(kId));
  host.report(kId);
  ASSERT_TRUE(host.driver().stop(SandboxId{kId}).ok());
  host.wait_for(kId, "ContainerStopped");
  EXPECT_FALSE(fs::exists(host.runtime(kId)));
  EXPECT_TRUE(fs::exists(host.state(kId) + "/workload/workspace/test"));
  if (as_root()) {
    EXPECT_THAT(processes_with_uid(kFirst, kLast), IsEmpty());
  }
  EXPECT_TRUE(host.driver().stop(SandboxId{kId}).ok()) << "idempotent";

  const auto identity = host.driver().get(SandboxId{kId})->runtime_identity;
  EXPECT_TRUE(absl::IsFailedPrecondition(host.driver().start(spec(kId), launch(kNext), "another").status()));
  ASSERT_TRUE(host.driver().start(spec(kId), launch(kNext), identity).ok());
  host.wait_for(kId, "BackendReady");
  EXPECT_EQ(host.driver().get(SandboxId{kId})->generation.str(), kNext);
  EXPECT_TRUE(host.driver().start(spec(kId), launch(kGeneration), identity).ok()) << "running already: unchanged";
  EXPECT_EQ(host.driver().get(SandboxId{kId})->generation.str(), kNext);
  EXPECT_FALSE(fs::exists(host.state(kId) + "/workload/tmp/test2"));
  EXPECT_TRUE(absl::IsNotFound(host.driver().start(spec(kOther), launch(kNext), "").status()));
  EXPECT_TRUE(absl::IsAlreadyExists(host.driver().create(spec(kId), launch(kNext)).status()));
}

TEST(ProcessDriver, StopOfAStubbornSandboxKillsAfterTheGrace) {
  Host host;
  host.start();
  create(host, spec(kId));
  host.report(kId);
  std::ofstream(host.state(kId) + "/workload/workspace/.stubborn") << "";
  fs::remove(host.state(kId) + "/workload/workspace/report");
  ASSERT_TRUE(host.driver().stop(SandboxId{kId}).ok());
  host.wait_for(kId, "ContainerStopped");  // or what was told before the stop is taken for news of the start
  ASSERT_TRUE(host.driver().start(spec(kId), launch(kNext), "").ok());
  host.wait_for(kId, "BackendReady");
  host.report(kId);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(host.driver().stop(SandboxId{kId}).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds{2});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{6});
  if (as_root()) {
    EXPECT_THAT(processes_with_uid(kFirst, kLast), IsEmpty());
  }
}

// D53: a supervisor that ends before it confirmed ends the attempt at once, with its status in the message.
TEST(ProcessDriver, SupervisorThatEndsBeforeConfirmEndsTheAttempt) {  // FB-39
  for (const auto& [behaviour, text] : {std::pair{"exit7", "(exit code 7)"}, std::pair{"abort", "(signal 9)"}}) {
    Host host;
    host.start();
    SandboxSpec wanted = spec(kId);
    wanted.log_level = behaviour;
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(host.driver().create(wanted, launch(kGeneration)).ok());
    EXPECT_EQ(host.wait_for(kId, "SupervisorExited"), std::string("Supervisor exited before confirmation ") + text);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10});
    EXPECT_FALSE(fs::exists(host.runtime(kId)));
    EXPECT_TRUE(fs::exists(host.state(kId) + "/workload/workspace"));
    if (as_root()) {
      EXPECT_THAT(processes_with_uid(kFirst, kLast), IsEmpty());
    }
    EXPECT_THAT(Traces::cgroup_directories(), IsEmpty());
  }
}

TEST(ProcessDriver, SupervisorThatEndsAfterConfirmChangesNothingHere) {
  Host host;
  host.start();
  create(host, spec(kId));
  host.report(kId);
  while (!fs::exists(host.state(kId) + "/supervisor/state/confirmed")) usleep(1000);
  const auto marks = read_marks(host.state(kId));
  ASSERT_EQ(kill(marks.supervisor, SIGKILL), 0);
  while (read_text(host.state(kId) + "/driver/exit.json").find("supervisor") == std::string::npos) usleep(1000);
  EXPECT_EQ(kill(marks.init, 0), 0);
  EXPECT_EQ(host.driver().get(SandboxId{kId})->conditions.front().reason, "BackendReady");
  // Its own end is what is reported.
  ASSERT_EQ(kill(marks.init, SIGKILL), 0);
  EXPECT_EQ(host.wait_for(kId, "ContainerExited"), "Process sandbox ended (signal 9)");
}

TEST(ProcessDriver, FailedLaunchIsUndone) {
  const Traces before;
  Host host;
  host.adjust = [](ProcessDriverOptions& options) { options.supervisor_path = "/nonexistent/openshell-supervisor"; };
  host.start();
  ASSERT_TRUE(host.driver().create(spec(kId), launch(kGeneration)).ok());
  EXPECT_THAT(host.wait_for(kId, "LaunchFailed"), HasSubstr("/nonexistent/openshell-supervisor"));
  EXPECT_FALSE(fs::exists(host.runtime(kId)));
  EXPECT_TRUE(fs::exists(host.state(kId) + "/workload/workspace"));
  const Traces after;
  EXPECT_EQ(before.mounts, after.mounts);
  EXPECT_THAT(after.cgroups, IsEmpty());
  EXPECT_THAT(after.processes, IsEmpty());
}

TEST(ProcessDriver, StopDuringTheLaunchCancelsIt) {
  Host host;
  host.start();
  ASSERT_TRUE(host.driver().create(spec(kId), launch(kGeneration)).ok());
  ASSERT_TRUE(host.driver().stop(SandboxId{kId}).ok());
  host.wait_for(kId, "ContainerStopped");
  EXPECT_FALSE(fs::exists(host.runtime(kId)));
  EXPECT_EQ(host.driver().get(SandboxId{kId})->conditions.front().reason, "ContainerStopped");
  EXPECT_TRUE(*host.driver().remove(SandboxId{kId}));
}

// A gateway that was killed: the sandbox lives on, the next one finds it by pid, start time and boot id.
TEST(ProcessDriver, SandboxOutlivesAKilledGatewayAndIsAdopted) {
  Host host;
  const pid_t gateway = fork();
  if (gateway == 0) {
    host.start();
    if (!host.driver().create(spec(kId), launch(kGeneration)).ok()) _exit(1);
    host.wait_for(kId, "BackendReady");
    host.report(kId);
    while (!fs::exists(host.state(kId) + "/supervisor/state/confirmed")) usleep(1000);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(gateway, &status, 0), gateway);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto marks = read_marks(host.state(kId));
  ASSERT_EQ(kill(marks.init, 0), 0);

  host.start();
  host.wait_for(kId, "BackendReady");
  EXPECT_EQ(host.driver().get(SandboxId{kId})->generation.str(), kGeneration);
  EXPECT_EQ(read_marks(host.state(kId)).init, marks.init);
  ASSERT_EQ(kill(marks.init, SIGKILL), 0);
  EXPECT_EQ(host.wait_for(kId, "ContainerExited"), "Process sandbox ended (signal 9)") << "the monitor was its parent all the time";
  EXPECT_TRUE(*host.driver().remove(SandboxId{kId}));
  EXPECT_FALSE(fs::exists(host.state(kId)));
  EXPECT_THAT(Traces::cgroup_directories(), IsEmpty());
}

TEST(ProcessDriver, SandboxThatEndedWithoutAGatewayIsReported) {
  Host host;
  host.start();
  create(host, spec(kId));
  host.report(kId);
  host.forget();
  const auto marks = read_marks(host.state(kId));
  ASSERT_EQ(kill(marks.init, SIGKILL), 0);
  host.start();
  host.wait_for(kId, "ContainerExited");
  EXPECT_FALSE(fs::exists(host.runtime(kId)));
  EXPECT_NE(kill(marks.supervisor, 0), 0) << "the supervisor of a lost sandbox is ended too";
  ASSERT_TRUE(host.driver().start(spec(kId), launch(kNext), "").ok());
  host.wait_for(kId, "BackendReady");
}

// What lies in the workspace may be hostile: symlinks out, deep trees, directories without permissions.
TEST(ProcessDriver, DeleteFollowsNoSymlinkAndEndsDeepTrees) {
  Host host;
  host.start();
  create(host, spec(kId));
  host.report(kId);
  const std::string workspace = host.state(kId) + "/workload/workspace", victim = host.path + "/victim";
  fs::create_directories(victim + "/inner");
  std::ofstream(victim + "/inner/file") << "stays";
  fs::create_symlink(victim, workspace + "/link");
  fs::create_symlink("/", workspace + "/root");
  fs::create_directories(workspace + "/closed/inner");
  fs::permissions(workspace + "/closed", fs::perms::none);
  const int old = open(".", O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(chdir(workspace.c_str()), 0);
  for (int depth = 0; depth < 300; ++depth) {
    ASSERT_EQ(mkdir("d", 0755), 0);
    ASSERT_EQ(chdir("d"), 0);
  }
  ASSERT_EQ(fchdir(old), 0);
  close(old);
  const auto removed = host.driver().remove(SandboxId{kId});
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_FALSE(fs::exists(host.state(kId)));
  EXPECT_EQ(read_text(victim + "/inner/file"), "stays");
}

TEST(ProcessDriver, ASecondGatewayOnTheSameStateIsRefused) {
  Host host;
  host.start();
  EXPECT_THAT(std::string(make_process_driver(host.options()).status().message()), HasSubstr("another gateway uses"));
}

TEST(ProcessDriver, ADirectoryThatOthersCanNotPassIsRefusedAsRoot) {
  if (!as_root()) GTEST_SKIP() << "rootless, all parties are one user";
  Host host;
  fs::create_directories(host.path + "/closed");
  fs::permissions(host.path + "/closed", fs::perms::owner_all);
  ProcessDriverOptions options = host.options();
  options.state_dir = host.path + "/closed/state";
  EXPECT_THAT(std::string(make_process_driver(options).status().message()), HasSubstr("chmod o+x"));
}

TEST(ProcessDriver, SlotsRunOut) {
  if (!as_root()) GTEST_SKIP() << "slots are of the root mode";
  Host host;
  host.adjust = [](ProcessDriverOptions& options) { options.sandbox_uid_range = {kFirst, kFirst + 15}; };
  host.start();
  create(host, spec(kId));
  const auto second = host.driver().create(spec(kOther), launch(kNext));
  EXPECT_TRUE(absl::IsResourceExhausted(second.status()));
  EXPECT_EQ(second.status().message(), "sandbox_uid_range is exhausted");
}

TEST(ProcessDriver, LimitsStandInTheCgroup) {
  Host host;
  host.start();
  SandboxSpec wanted = spec(kId);
  wanted.resources.memory_limit = "64Mi";
  wanted.resources.cpu_limit = "500m";
  create(host, wanted);
  if (!host.driver().capabilities().resources.memory_limit) {
    EXPECT_THAT(host.driver().capabilities().notes, ::testing::Contains(HasSubstr("limits not enforced")));
    return;
  }
  std::string memory;
  for (const std::string& directory : Traces::cgroup_directories()) {
    memory += read_text(directory + "/memory.max") + read_text(directory + "/memory.limit_in_bytes");
  }
  EXPECT_THAT(memory, HasSubstr("67108864"));
  EXPECT_THAT(host.report(kId), HasSubstr("pids_max=2048"));
}

TEST(ProcessDriver, MemoryLimitThatIsReachedIsSaid) {
  Host host;
  host.start();
  if (!host.driver().capabilities().resources.memory_limit) GTEST_SKIP() << "no cgroup limits memory here";
  SandboxSpec wanted = spec(kId);
  wanted.resources.memory_limit = "16Mi";
  create(host, wanted);
  host.report(kId);
  std::ofstream(host.state(kId) + "/workload/workspace/.greedy") << "";
  fs::remove(host.state(kId) + "/workload/workspace/report");
  ASSERT_TRUE(host.driver().stop(SandboxId{kId}).ok());
  ASSERT_TRUE(host.driver().start(wanted, launch(kNext), "").ok());
  EXPECT_EQ(host.wait_for(kId, "OOMKilled"), "Process sandbox was killed at its memory limit");
}

// Ten at once: launches run beside each other and all stand.
TEST(ProcessDriver, ManyStartTogether) {
  Host host;
  host.adjust = [](ProcessDriverOptions& options) { options.sandbox_uid_range = {kFirst, kFirst + 255}; };
  host.start();
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kCount = 10;
  const auto id = [](int i) { return std::string("00000000-0000-4000-8000-00000000000") + std::to_string(i); };
  for (int i = 0; i < kCount; ++i) ASSERT_TRUE(host.driver().create(spec(id(i)), launch(kGeneration)).ok());
  for (int i = 0; i < kCount; ++i) host.wait_for(id(i), "BackendReady");
  std::printf("%d sandboxes: %ld ms\n", kCount,
              static_cast<long>((std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds{1}));
  std::vector<std::future<bool>> removals;
  for (int i = 0; i < kCount; ++i)
    removals.push_back(std::async(std::launch::async, [&host, &id, i] { return host.driver().remove(SandboxId{id(i)}).ok(); }));
  for (auto& removal : removals) EXPECT_TRUE(removal.get());
  EXPECT_TRUE(host.driver().list()->empty());
}

// The real runtime, up to the point where it waits for its supervisor: it accepts what the driver made, consumes the bootstrap and listens.
TEST(ProcessDriver, RealSandboxListensAndConsumesItsBootstrap) {
  const char* given = getenv("OPENSHELL_TEST_BUNDLE");
  const std::string bundle = given != nullptr ? given : OPENSHELL_BIN_DIR "/../bundle";
  if (!fs::exists(bundle + "/openshell-sandbox")) GTEST_SKIP() << "no bundle at " << bundle;
  Host host;
  host.adjust = [&bundle](ProcessDriverOptions& options) {
    options.bundle_dir = bundle;
    options.init_argv.clear();
  };
  host.start();
  SandboxSpec wanted = spec(kId);
  wanted.log_level = "unconfirmed";
  create(host, wanted);
  const std::string socket = host.runtime(kId) + "/channel/control.sock";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  while (!fs::exists(socket) && std::chrono::steady_clock::now() < deadline &&
         host.driver().get(SandboxId{kId})->conditions.front().reason == "BackendReady") {
    usleep(2000);
  }
  ASSERT_TRUE(fs::exists(socket)) << host.driver().get(SandboxId{kId})->conditions.front().message
                                  << read_text(host.state(kId) + "/driver/sandbox.log");
  EXPECT_FALSE(fs::exists(host.runtime(kId) + "/sandbox/bootstrap.json"));
  EXPECT_FALSE(fs::exists(host.runtime(kId) + "/sandbox/key.pem"));
  struct stat info {};
  ASSERT_EQ(stat(socket.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_EQ(info.st_gid, as_root() ? kFirst + 15 : getegid());
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::strncpy(to.sun_path, socket.c_str(), sizeof to.sun_path - 1);
  int result = -1;
  while (result != 0 && std::chrono::steady_clock::now() < deadline) {  // bound, and listening a moment later
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    result = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
    close(fd);
  }
  EXPECT_EQ(result, 0);
  EXPECT_EQ(host.driver().get(SandboxId{kId})->conditions.front().reason, "BackendReady")
      << read_text(host.state(kId) + "/driver/sandbox.log");
}

// The real supervisor takes flags, environment and launch files; without a gateway it retries and confirms nothing.
TEST(ProcessDriver, RealSupervisorAcceptsItsLaunchMaterial) {
  const std::string bin =
      getenv("OPENSHELL_TEST_SUPERVISOR") != nullptr ? getenv("OPENSHELL_TEST_SUPERVISOR") : OPENSHELL_BIN_DIR "/openshell-supervisor";
  const std::string bundle = getenv("OPENSHELL_TEST_BUNDLE") != nullptr ? getenv("OPENSHELL_TEST_BUNDLE") : OPENSHELL_BIN_DIR "/../bundle";
  if (!fs::exists(bin) || !fs::exists(bundle + "/openshell-sandbox"))
    GTEST_SKIP() << "no supervisor at " << bin << " or no bundle at " << bundle;
  const int gateway = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(gateway, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(gateway, 8), 0);
  ASSERT_EQ(getsockname(gateway, reinterpret_cast<sockaddr*>(&at), &size), 0);
  Host host;
  host.adjust = [&](ProcessDriverOptions& options) {
    options.gateway_endpoint = "https://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    options.bundle_dir = bundle;
    options.supervisor_path = bin;
    options.init_argv.clear();
    options.gateway_ca_pem = pki_ca();
  };
  host.start();
  SandboxSpec wanted = spec(kId);
  wanted.log_level = "info";
  create(host, wanted);
  // It calls its gateway when all of it was taken, and again when the gateway hangs up; what it does then is its own tests' matter.
  int calls = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (calls < 2 && std::chrono::steady_clock::now() < deadline &&
         host.driver().get(SandboxId{kId})->conditions.front().reason == "BackendReady") {
    pollfd called{gateway, POLLIN, 0};
    if (poll(&called, 1, 50) != 1) continue;
    close(accept4(gateway, nullptr, nullptr, SOCK_CLOEXEC));
    ++calls;
  }
  close(gateway);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(host.driver().get(SandboxId{kId})->conditions.front().reason, "BackendReady")
      << host.driver().get(SandboxId{kId})->conditions.front().message << "\n"
      << read_text(host.state(kId) + "/driver/supervisor.log") << read_text(host.state(kId) + "/driver/sandbox.log");
  std::printf("%s", read_text(host.state(kId) + "/driver/supervisor.log").c_str());
}

}  // namespace
}  // namespace openshell::drivers::test
