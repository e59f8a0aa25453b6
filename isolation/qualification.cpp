#include "isolation/qualification.hpp"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "isolation/task_memory.hpp"

namespace openshell::isolation {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLimit{5};                                       ///< for all probes together; they take about 20 ms
constexpr std::uint32_t kAllowedHost = 0xcb00714dU, kDeniedHost = 0xcb00714eU;  // 203.0.113.77 and .78, documentation addresses
constexpr std::uint32_t kResolver = 0x7f000035U;                                // 127.0.0.53
constexpr std::uint16_t kProbePort = 443, kDnsPort = 53;
constexpr char kGreeting = 'k';

// ---- the child: fully confined, async-signal-safe ----

/// What the child found; one record on its standard output.
struct ChildReport {
  bool dumpable, core_limit_zero, no_new_privileges;
  bool socket_made, socket_flags_kept, pinned_to_loopback;
  bool protected_denied, open_allowed;
  bool memory_call_written, memory_file_written;
  bool udp_dns, tcp_dns, tcp_allowed, tcp_denied;
};

struct ChildInput {
  const char* protected_file;
  NoncePair nonce;
};

sockaddr_in address_of(std::uint32_t host, std::uint16_t port) noexcept {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(host);
  return address;
}

int connect_probe(int type, std::uint32_t host, std::uint16_t port, int& fd) noexcept {
  fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
  const sockaddr_in address = address_of(host, port);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

/// `qualification.openshell.invalid`, type A: whatever comes back with this id is an answer.
constexpr unsigned char kQuery[] = {0x4f, 0x53, 1,   0,   0,   1,   0,   0,   0,   0,   0,   0,   13,  'q', 'u', 'a', 'l',
                                    'i',  'f',  'i', 'c', 'a', 't', 'i', 'o', 'n', 9,   'o', 'p', 'e', 'n', 's', 'h', 'e',
                                    'l',  'l',  7,   'i', 'n', 'v', 'a', 'l', 'i', 'd', 0,   0,   1,   0,   1};

bool ask_dns(int type) noexcept {
  int fd = -1;
  if (connect_probe(type, kResolver, kDnsPort, fd) != 0) return false;
  unsigned char message[sizeof kQuery + 2] = {0, sizeof kQuery};  // TCP carries a length in front
  std::memcpy(message + 2, kQuery, sizeof kQuery);
  const std::size_t skip = type == SOCK_DGRAM ? 2 : 0;
  bool answered = false;
  if (::send(fd, message + skip, sizeof message - skip, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message - skip)) {
    pollfd entry{fd, POLLIN, 0};
    unsigned char reply[512];
    if (::poll(&entry, 1, 2000) == 1) {
      const ssize_t size = ::recv(fd, reply, sizeof reply, 0);
      const std::size_t at = type == SOCK_DGRAM ? 0 : 2;
      answered = size >= static_cast<ssize_t>(at + 2) && reply[at] == kQuery[0] && reply[at + 1] == kQuery[1];
    }
  }
  ::close(fd);
  return answered;
}

void probe_socket(ChildReport& report) noexcept {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  report.socket_made = fd >= 0;
  report.socket_flags_kept = (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
  char device[16] = {};
  socklen_t size = sizeof device;
  report.pinned_to_loopback = ::getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, &size) == 0 && std::strcmp(device, "lo") == 0;
  ::close(fd);
}

void probe_files(const char* protected_file, ChildReport& report) noexcept {
  int fd = ::open(protected_file, O_RDONLY | O_CLOEXEC);
  report.protected_denied = fd < 0 && errno == EACCES;
  if (fd >= 0) ::close(fd);
  fd = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  report.open_allowed = fd >= 0;
  if (fd >= 0) ::close(fd);
}

/// Tells the parent that the nonces stand, and watches them change.
void probe_memory(const NoncePair& nonce, ChildReport& report) noexcept {
  if (::write(STDOUT_FILENO, "m", 1) != 1) return;
  for (int look = 0; look < 400; ++look) {
    report.memory_call_written = nonce.by_call == NoncePair::kAfter;
    report.memory_file_written = nonce.by_file == NoncePair::kAfter;
    if (report.memory_call_written && report.memory_file_written) return;
    ::poll(nullptr, 0, 1);
  }
}

int run_probes(void* argument) {
  const auto* input = static_cast<const ChildInput*>(argument);
  ChildReport report{};
  report.dumpable = ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
  rlimit core{1, 1};
  report.core_limit_zero = ::getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0;
  report.no_new_privileges = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
  probe_memory(input->nonce, report);
  probe_socket(report);
  probe_files(input->protected_file, report);
  int fd = -1;
  report.tcp_denied = connect_probe(SOCK_STREAM, kDeniedHost, kProbePort, fd) == EACCES;
  ::close(fd);
  char byte = 0;
  report.tcp_allowed = connect_probe(SOCK_STREAM, kAllowedHost, kProbePort, fd) == 0 && ::recv(fd, &byte, 1, 0) == 1 && byte == kGreeting;
  ::close(fd);
  report.udp_dns = ask_dns(SOCK_DGRAM);
  report.tcp_dns = ask_dns(SOCK_STREAM);
  return ::write(STDOUT_FILENO, &report, sizeof report) == static_cast<ssize_t>(sizeof report) ? 0 : 1;
}

// ---- the parent ----

/// Queues the probe's opens for the qualifying thread.
class ProbeDecider : public OpenDecider {
 public:
  void open(OpenRequest request) override {
    const std::lock_guard lock{mutex_};
    requests_.push_back(std::move(request));
    const std::uint64_t one = 1;
    if (::write(event_.get(), &one, sizeof one) < 0) return;
  }
  void ended(OpenId, OpenEnd) override {}
  [[nodiscard]] int event() const { return event_.get(); }
  std::vector<OpenRequest> take() {
    const std::lock_guard lock{mutex_};
    std::uint64_t count = 0;
    if (::read(event_.get(), &count, sizeof count) < 0) return {};
    return std::exchange(requests_, {});
  }

 private:
  FileDescriptor event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::vector<OpenRequest> requests_;
};

/// Restores the real decider, whatever happens.
class DeciderSwap {
 public:
  DeciderSwap(Broker& broker, OpenDecider& decider) : broker_{broker}, old_{broker.exchange_decider(decider)} {}
  ~DeciderSwap() { broker_.exchange_decider(old_); }
  DeciderSwap(const DeciderSwap&) = delete;
  DeciderSwap& operator=(const DeciderSwap&) = delete;

 private:
  Broker& broker_;
  OpenDecider& old_;
};

/// Echoes on 127.0.0.53:53 where no stub stands there yet.
class EchoResolver {
 public:
  explicit EchoResolver(bool wanted) {
    if (!wanted) return;
    udp_ = bound(SOCK_DGRAM);
    tcp_ = bound(SOCK_STREAM);
    if (tcp_) ::listen(tcp_.get(), 4);
  }
  [[nodiscard]] int udp() const { return udp_.get(); }
  [[nodiscard]] int tcp() const { return tcp_.get(); }
  void serve_udp() const {
    std::array<char, 512> message{};
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t length = ::recvfrom(udp_.get(), message.data(), message.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &size);
    if (length > 0) ::sendto(udp_.get(), message.data(), static_cast<std::size_t>(length), 0, reinterpret_cast<sockaddr*>(&from), size);
  }
  void serve_tcp() const {
    const FileDescriptor client{::accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    std::array<char, 512> message{};
    pollfd entry{client.get(), POLLIN, 0};
    if (!client || ::poll(&entry, 1, 1000) != 1) return;
    const ssize_t length = ::recv(client.get(), message.data(), message.size(), 0);
    if (length > 0) ::send(client.get(), message.data(), static_cast<std::size_t>(length), MSG_NOSIGNAL);
    // The child closes first, and nothing of ours stays in TIME_WAIT on the port that the stub binds next.
    if (::poll(&entry, 1, 1000) == 1) (void)::recv(client.get(), message.data(), message.size(), MSG_DONTWAIT);
    const linger at_once{1, 0};
    ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

 private:
  static FileDescriptor bound(int type) {
    FileDescriptor fd{::socket(AF_INET, type | SOCK_CLOEXEC, 0)};
    const int one = 1;
    if (type == SOCK_STREAM) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const sockaddr_in address = address_of(kResolver, kDnsPort);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
    return fd;
  }
  FileDescriptor udp_, tcp_;
};

struct Observed {
  ChildReport report{};
  bool reported = false, identity_seen = false;
  TaskMemoryEvidence memory;
};

void decide(const QualificationInputs& inputs, ProbeDecider& decider, std::vector<FileDescriptor>& relays, Observed& seen) {
  for (auto& request : decider.take()) {
    seen.identity_seen = request.identity.ok();
    const bool wanted = request.destination == *SocketAddress::parse("203.0.113.77", kProbePort) && request.identity.ok();
    if (!wanted) {
      (void)inputs.broker.deny(request.id, DenyReason::PolicyDenied);
      continue;
    }
    auto relay = inputs.broker.allow(request.id);
    if (!relay.ok()) continue;
    if (::send(relay->get(), &kGreeting, 1, MSG_NOSIGNAL) == 1) relays.push_back(std::move(*relay));
  }
}

/// Plays the other side of every probe until the child has reported or the time is over.
Observed attend(const QualificationInputs& inputs, const LaunchedProcess& child, int report, ProbeDecider& decider,
                const ChildInput& input) {
  const EchoResolver resolver{!inputs.dns_is_served};
  Observed seen;
  std::vector<FileDescriptor> relays;
  bool memory_tried = false;
  const auto until = Clock::now() + kLimit;
  while (Clock::now() < until) {
    std::array<pollfd, 4> entries{
        {{report, POLLIN, 0}, {decider.event(), POLLIN, 0}, {resolver.udp(), POLLIN, 0}, {resolver.tcp(), POLLIN, 0}}};
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (::poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(rest, 1))) <= 0) continue;
    if (entries[1].revents != 0) decide(inputs, decider, relays, seen);
    if (entries[2].revents != 0) resolver.serve_udp();
    if (entries[3].revents != 0) resolver.serve_tcp();
    if (entries[0].revents == 0) continue;
    if (!memory_tried) {
      char ready = 0;
      if (::read(report, &ready, 1) != 1) break;
      seen.memory = try_task_memory(child.pid, input.nonce);
      memory_tried = true;
      continue;
    }
    seen.reported = ::read(report, &seen.report, sizeof seen.report) == static_cast<ssize_t>(sizeof seen.report);
    break;
  }
  if (!seen.reported) ::syscall(SYS_pidfd_send_signal, child.pidfd.get(), SIGKILL, nullptr, 0);
  return seen;
}

/// Readable by this process, so that only Landlock can be what denies it to the child.
std::string choose_protected_file(const std::string& given) {
  std::string path = given;
  if (path.empty()) {
    std::array<char, PATH_MAX> link{};
    const ssize_t size = ::readlink("/proc/self/exe", link.data(), link.size() - 1);
    if (size > 0) path.assign(link.data(), static_cast<std::size_t>(size));
  }
  if (!path.starts_with("/.openshell/")) return {};
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  return file ? path : std::string{};
}

bool is_native_architecture(const utsname& kernel) {
#if defined(__x86_64__)
  return std::strcmp(kernel.machine, "x86_64") == 0;
#else
  return std::strcmp(kernel.machine, "aarch64") == 0;
#endif
}

}  // namespace

absl::StatusOr<AuditEvidence> qualify(const QualificationInputs& inputs) {
  auto posture = read_posture();
  if (!posture.ok()) return posture.status();
  const std::string protected_file = choose_protected_file(inputs.protected_file);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return absl::ResourceExhaustedError("qualification: no descriptor is left");
  const FileDescriptor report{ends[0]};
  ProbeDecider decider;
  ChildInput input{protected_file.empty() ? "/nonexistent" : protected_file.c_str(), {}};
  Observed seen;
  {
    const DeciderSwap swap{inputs.broker, decider};
    auto child = inputs.launcher.spawn_probe(run_probes, &input, FileDescriptor{ends[1]}, {});
    if (!child.ok()) return absl::Status{child.status().code(), absl::StrCat("qualification: ", child.status().message())};
    seen = attend(inputs, *child, report.get(), decider, input);
  }

  AuditEvidence evidence;
  evidence.capabilities = posture->capabilities;
  evidence.no_new_privileges = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && seen.report.no_new_privileges;
  evidence.sandbox_dumpable = ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0;
  evidence.child_dumpable = seen.report.dumpable;
  evidence.core_limit_zero = seen.report.core_limit_zero;
  utsname kernel{};
  ::uname(&kernel);
  evidence.native_architecture = is_native_architecture(kernel);
  evidence.kernel_release = kernel.release;
  const bool killable = inputs.launcher.cancellation() == CancellationMode::Killable;
  auto& seccomp = evidence.seccomp;
  seccomp.new_listener = inputs.broker.healthy();
  seccomp.notification_round_trip = seen.report.tcp_denied;
  seccomp.id_validation = seen.report.tcp_allowed && inputs.broker.rejects_unknown_notification();
  seccomp.addfd_send = seen.report.socket_made && seen.report.socket_flags_kept;
  seccomp.retained_socket_operation = seen.report.tcp_allowed;
  seccomp.proc_fd_identity = seen.identity_seen;
  seccomp.task_memory_read = seen.memory.read_by_call || seen.memory.read_by_file;
  seccomp.task_memory_write =
      (seen.memory.write_by_call && seen.report.memory_call_written) || (seen.memory.write_by_file && seen.report.memory_file_written);
  seccomp.cancellation = killable;
  seccomp.task_memory_writes_disabled = !killable;
  evidence.landlock_abi = inputs.landlock.abi;
  evidence.landlock_allow_deny = !protected_file.empty() && seen.report.protected_denied && seen.report.open_allowed;
  evidence.udp_dns_round_trip = seen.report.udp_dns;
  evidence.tcp_dns_round_trip = seen.report.tcp_dns;
  evidence.tcp_allow_round_trip = seen.report.tcp_allowed;
  evidence.tcp_deny_round_trip = seen.report.tcp_denied;
  evidence.signal_mode = inputs.landlock.scopes_signals() ? SignalMode::LandlockScope : SignalMode::Mediated;
  evidence.cancellation_mode = inputs.launcher.cancellation();
  evidence.anyip = inputs.anyip;
  evidence.loopback_confinement = seen.report.pinned_to_loopback;
  return evidence;
}

absl::Status AuditEvidence::complete() const {
  std::vector<std::string> missing;
  const auto need = [&missing](bool holds, const char* what) {
    if (!holds) missing.emplace_back(what);
  };
  need(capabilities.empty(), "capabilities");
  need(no_new_privileges, "no_new_privileges");
  need(!sandbox_dumpable, "sandbox_dumpable");
  need(child_dumpable, "child_dumpable");
  need(core_limit_zero, "core_limit_zero");
  need(native_architecture, "native_architecture");
  need(seccomp.new_listener, "seccomp.new_listener");
  need(seccomp.notification_round_trip, "seccomp.notification_round_trip");
  need(seccomp.id_validation, "seccomp.id_validation");
  need(seccomp.addfd_send, "seccomp.addfd_send");
  need(seccomp.retained_socket_operation, "seccomp.retained_socket_operation");
  need(seccomp.proc_fd_identity, "seccomp.proc_fd_identity");
  need(seccomp.task_memory_read, "seccomp.task_memory_read");
  need(seccomp.task_memory_write, "seccomp.task_memory_write");
  need(seccomp.cancellation || seccomp.task_memory_writes_disabled, "seccomp.cancellation");
  need(landlock_abi >= kMinimumLandlockAbi, "landlock_abi");
  need(landlock_allow_deny, "landlock_allow_deny");
  need(udp_dns_round_trip, "udp_dns_round_trip");
  need(tcp_dns_round_trip, "tcp_dns_round_trip");
  need(tcp_allow_round_trip, "tcp_allow_round_trip");
  need(tcp_deny_round_trip, "tcp_deny_round_trip");
  need(loopback_confinement, "socket_loopback_confinement");
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("native Linux sandbox audit evidence is incomplete: ", absl::StrJoin(missing, ", ")));
}

}  // namespace openshell::isolation
