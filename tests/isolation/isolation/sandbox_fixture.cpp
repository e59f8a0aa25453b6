#include "tests/isolation/isolation/sandbox_fixture.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <future>

#include "isolation/qualification.hpp"

namespace openshell::isolation::testing {

namespace {

constexpr uid_t kWorkloadUid = 64123;

#define MUST(expression)                                                            \
  do {                                                                              \
    if (!(expression)) {                                                            \
      std::fprintf(stderr, "fixture: %s: %s\n", #expression, std::strerror(errno)); \
      std::fflush(stderr);                                                          \
      ::_exit(99);                                                                  \
    }                                                                               \
  } while (false)

void write_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::fprintf(stderr, "fixture: %s: %s\n", path.c_str(), std::strerror(errno));
  if (fd >= 0) ::close(fd);
}

struct NetlinkRequest {
  nlmsghdr header{};
  char body[256]{};

  template <class Message>
  NetlinkRequest(int type, int flags, const Message& message) {
    header.nlmsg_type = static_cast<__u16>(type);
    header.nlmsg_flags = static_cast<__u16>(NLM_F_REQUEST | NLM_F_ACK | flags);
    header.nlmsg_len = NLMSG_LENGTH(sizeof message);
    std::memcpy(NLMSG_DATA(&header), &message, sizeof message);
  }
  void attribute(int type, const void* data, std::size_t size) {
    auto* attr = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(&header) + NLMSG_ALIGN(header.nlmsg_len));
    attr->rta_type = static_cast<unsigned short>(type);
    attr->rta_len = static_cast<unsigned short>(RTA_LENGTH(size));
    std::memcpy(RTA_DATA(attr), data, size);
    header.nlmsg_len = NLMSG_ALIGN(header.nlmsg_len) + RTA_ALIGN(attr->rta_len);
  }
  void send(int fd) {
    char answer[4096];
    MUST(::send(fd, &header, header.nlmsg_len, 0) == static_cast<ssize_t>(header.nlmsg_len));
    MUST(::recv(fd, answer, sizeof answer, 0) > 0);
    const auto* reply = reinterpret_cast<const nlmsghdr*>(answer);
    const auto* error = reinterpret_cast<const nlmsgerr*>(NLMSG_DATA(reply));
    errno = reply->nlmsg_type == NLMSG_ERROR ? -error->error : 0;
    MUST(errno == 0);
  }
};

void set_up_loopback(bool anyip) {
  const int control = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
  MUST(::ioctl(control, SIOCSIFFLAGS, &request) == 0);
  ::close(control);
  write_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  if (!anyip) return;
  write_file("/proc/sys/net/ipv6/ip_nonlocal_bind", "1");
  const int netlink = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  const unsigned lo = ::if_nametoindex("lo");
  for (int family : {AF_INET, AF_INET6}) {
    unsigned char address[16];
    const std::size_t size = family == AF_INET ? 4 : 16;
    ::inet_pton(family, family == AF_INET ? "192.0.2.1" : "2001:db8::1", address);
    ifaddrmsg add{};
    add.ifa_family = static_cast<unsigned char>(family);
    add.ifa_prefixlen = static_cast<unsigned char>(size * 8);
    add.ifa_flags = IFA_F_NODAD;
    add.ifa_index = lo;
    NetlinkRequest new_address{RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, add};
    new_address.attribute(IFA_LOCAL, address, size);
    new_address.attribute(IFA_ADDRESS, address, size);
    const __u32 flags = IFA_F_NODAD | IFA_F_NOPREFIXROUTE;
    new_address.attribute(IFA_FLAGS, &flags, sizeof flags);
    new_address.send(netlink);
    rtmsg route{};
    route.rtm_family = static_cast<unsigned char>(family);
    route.rtm_table = RT_TABLE_LOCAL;
    route.rtm_protocol = RTPROT_STATIC;
    route.rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
    route.rtm_type = RTN_LOCAL;
    NetlinkRequest new_route{RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route};
    new_route.attribute(RTA_OIF, &lo, sizeof lo);
    new_route.attribute(RTA_PREFSRC, address, size);
    new_route.send(netlink);
  }
  ::close(netlink);
}

/// A tmpfs root with the host's root children bound into it, and directories of the sandbox's own.
void set_up_root(uid_t owner) {
  MUST(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
  const std::string root = "/tmp";
  MUST(::mount("tmpfs", root.c_str(), "tmpfs", 0, "mode=755") == 0);
  const std::set<std::string> own{"tmp", "proc", ".openshell", "sandbox"};
  DIR* directory = ::opendir("/");
  MUST(directory != nullptr);
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || own.contains(name)) continue;
    const std::string from = "/" + name, to = root + "/" + name;
    struct stat info {};
    if (::lstat(from.c_str(), &info) != 0) continue;
    if (S_ISLNK(info.st_mode)) {
      char target[256]{};
      if (::readlink(from.c_str(), target, sizeof target - 1) > 0) MUST(::symlink(target, to.c_str()) == 0);
    } else if (S_ISDIR(info.st_mode)) {
      MUST(::mkdir(to.c_str(), 0755) == 0);
      MUST(::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0);
    }
  }
  ::closedir(directory);
  for (const auto& name : own) MUST(::mkdir((root + "/" + name).c_str(), 0755) == 0);
  for (const char* name : {"/tmp", "/sandbox", "/.openshell"}) MUST(::chown((root + name).c_str(), owner, owner) == 0);
  MUST(::mount("proc", (root + "/proc").c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0);
  MUST(::chdir(root.c_str()) == 0);
  MUST(::mount(root.c_str(), "/", nullptr, MS_MOVE, nullptr) == 0);
  MUST(::chroot(".") == 0);
  MUST(::chdir("/") == 0);
  // What a sandbox keeps for itself; the workload's uid owns it, so that only Landlock stands before it.
  const int secret = ::open("/.openshell/secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  MUST(secret >= 0 && ::write(secret, "token", 5) == 5 && ::fchown(secret, owner, owner) == 0);
  ::close(secret);
}

void drop_privileges(bool switch_uid) {
  for (int cap = 0; cap <= 63; ++cap) ::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
  if (switch_uid) {
    MUST(::setgroups(0, nullptr) == 0);
    MUST(::setresgid(kWorkloadUid, kWorkloadUid, kWorkloadUid) == 0);
    MUST(::setresuid(kWorkloadUid, kWorkloadUid, kWorkloadUid) == 0);
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2]{};
  MUST(::syscall(SYS_capset, &header, none) == 0);
  MUST(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
}

[[noreturn]] void run_outer(const FixtureOptions& options, const std::function<void()>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.rootless) {
    MUST(::setgroups(0, nullptr) == 0);
    MUST(::setresgid(kWorkloadUid, kWorkloadUid, kWorkloadUid) == 0);
    MUST(::setresuid(kWorkloadUid, kWorkloadUid, kWorkloadUid) == 0);
    ::prctl(PR_SET_DUMPABLE, 1);
    MUST(::unshare(CLONE_NEWUSER) == 0);
    const std::string map = std::to_string(kWorkloadUid) + " " + std::to_string(kWorkloadUid) + " 1";
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", map);
    write_file("/proc/self/gid_map", map);
  }
  MUST(::unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) == 0);
  const pid_t inner = ::fork();
  MUST(inner >= 0);
  if (inner == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_up_loopback(options.anyip);
    set_up_root(kWorkloadUid);
    drop_privileges(!options.rootless);
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(inner, &status, 0);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

std::string read_all(int fd) {
  std::string out;
  char buffer[4096];
  for (ssize_t size; (size = ::read(fd, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<std::size_t>(size));
  return out;
}

}  // namespace

void in_sandbox(const FixtureOptions& options, const std::function<void()>& body) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED, NOTHING IS PROVEN: isolation tests make namespaces as root; run them with sudo";
  std::fflush(nullptr);
  const pid_t outer = ::fork();
  ASSERT_GE(outer, 0);
  if (outer == 0) run_outer(options, body);
  int status = 0;
  ASSERT_EQ(::waitpid(outer, &status, 0), outer);
  ASSERT_TRUE(WIFEXITED(status)) << "the sandbox died of signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0)
      << "1: assertions above failed inside the sandbox; 98: its PID 1 was killed; 99: the fixture could not be set up";
}

ScriptedDecider::ScriptedDecider() : thread_{[this] { run(); }} {}
ScriptedDecider::~ScriptedDecider() { stop(); }

void ScriptedDecider::stop() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (auto& relay : relays_)
    if (relay.joinable()) relay.join();
}

void ScriptedDecider::open(OpenRequest request) {
  const int port = request.destination.port();
  const int hundreds = port / 100;
  const auto delay = std::chrono::milliseconds{(hundreds == 10 || hundreds == 20) ? port % 100 * 10 : 0};
  const std::lock_guard lock{mutex_};
  if (hundreds != 30) queue_.push({std::chrono::steady_clock::now() + delay, request.id, port});
  seen_.push_back(std::move(request));
  wake_.notify_all();
}

void ScriptedDecider::ended(OpenId id, OpenEnd why) {
  const std::lock_guard lock{mutex_};
  ends_[id] = why;
  wake_.notify_all();
}

std::vector<OpenRequest> ScriptedDecider::seen() const {
  const std::lock_guard lock{mutex_};
  return seen_;
}
std::map<OpenId, OpenEnd> ScriptedDecider::ends() const {
  const std::lock_guard lock{mutex_};
  return ends_;
}
bool ScriptedDecider::wait_for_opens(std::size_t count, std::chrono::milliseconds limit) const {
  std::unique_lock lock{mutex_};
  return wake_.wait_for(lock, limit, [&] { return seen_.size() >= count; });
}

void ScriptedDecider::run() {
  std::unique_lock lock{mutex_};
  while (!stop_) {
    if (queue_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const Timed timed = queue_.top();
    if (timed.at > std::chrono::steady_clock::now()) {
      wake_.wait_until(lock, timed.at);
      continue;
    }
    queue_.pop();
    lock.unlock();
    decide(timed);
    lock.lock();
  }
}

void ScriptedDecider::decide(const Timed& timed) {
  if (timed.port / 100 != 10) {
    (void)broker_.load()->deny(timed.id, DenyReason::PolicyDenied);
    return;
  }
  auto relay = broker_.load()->allow(timed.id);
  if (!relay.ok()) {
    failed_allows_.fetch_add(1);
    return;
  }
  relays_.emplace_back([fd = std::make_shared<FileDescriptor>(std::move(*relay)), port = timed.port] { echo(std::move(*fd), port); });
}

void ScriptedDecider::echo(FileDescriptor relay, int port) {
  ::fcntl(relay.get(), F_SETFL, ::fcntl(relay.get(), F_GETFL) & ~O_NONBLOCK);
  const std::string hello = "hello " + std::to_string(port) + "\n";
  if (::send(relay.get(), hello.data(), hello.size(), MSG_NOSIGNAL) < 0) return;
  char buffer[65536];
  for (ssize_t size; (size = ::recv(relay.get(), buffer, sizeof buffer, 0)) > 0;)
    if (::send(relay.get(), buffer, static_cast<std::size_t>(size), MSG_NOSIGNAL) < 0) return;
}

Workload::Workload(Options options) {
  EXPECT_TRUE(harden_self().ok());
  auto features = probe_landlock();
  EXPECT_TRUE(features.ok()) << features.status();
  landlock = *features;
  if (options.mediated_signals) landlock.abi = 5;
  Launcher::Options launch;
  launch.notify.signals = landlock.scopes_signals() ? SignalMode::LandlockScope : SignalMode::Mediated;
  launch.landlock = landlock;
  launch.notify.notify_getpeername = !options.anyip;
  launch.allow_killable = options.allow_killable;
  auto started = Launcher::start(launch, reaper);
  EXPECT_TRUE(started.ok()) << started.status();
  launcher = std::move(*started);
  Broker::Options broker_options;
  broker_options.cancellation = launcher->cancellation();
  broker_options.peer_names = options.anyip ? PeerNames::AnyIp : PeerNames::Notified;
  broker_options.open_timeout = options.open_timeout;
  broker_options.reserved_ports = options.reserved_ports;
  broker_options.receivers = options.receivers;
  auto running = Broker::start(broker_options, launcher->take_listener(), decider);
  EXPECT_TRUE(running.ok()) << running.status();
  broker = std::move(*running);
  decider.attach(*broker);
}

Workload::~Workload() {
  EXPECT_TRUE(tree.terminate(std::chrono::milliseconds{0}).ok());
  decider.stop();
  launcher.reset();
  broker.reset();
}

std::string probe_path() { return std::string{OPENSHELL_BIN_DIR} + "/isolation-probe"; }

RunResult Workload::run(std::vector<std::string> arguments, std::shared_ptr<const LandlockLayer> filesystem, const std::string& directory) {
  RunResult result;
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return result;
  const FileDescriptor out_reader{out[0]}, err_reader{err[0]};
  LaunchRequest request;
  request.program = arguments[0];
  request.arguments = std::move(arguments);
  request.environment = {"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"};
  request.working_directory = directory;
  request.standard_output.reset(out[1]);
  request.standard_error.reset(err[1]);
  request.filesystem = std::move(filesystem);
  auto exit = std::make_shared<std::promise<ExitStatus>>();
  auto exited = exit->get_future();
  request.on_exit = [exit](pid_t, ExitStatus status) { exit->set_value(status); };
  auto process = launcher->spawn_and_wait(std::move(request));
  if (!process.ok()) {
    result.launch = process.status();
    return result;
  }
  std::thread errors{[&] { result.err = read_all(err_reader.get()); }};
  result.out = read_all(out_reader.get());
  errors.join();
  result.status = exited.get();
  return result;
}

RunResult Workload::probe(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), probe_path());
  return run(std::move(arguments));
}

absl::StatusOr<LaunchedProcess> Workload::start_probe(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), probe_path());
  LaunchRequest request;
  request.program = arguments[0];
  request.arguments = std::move(arguments);
  request.environment = {"PATH=/usr/bin:/bin"};
  request.working_directory = "/tmp";
  return launcher->spawn_and_wait(std::move(request));
}

}  // namespace openshell::isolation::testing
