#include "programs/supervisor/network_proxy.hpp"

#include <absl/strings/ascii.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "egress/engine.hpp"
#include "isolation/file_descriptor.hpp"
#include "openshell.pb.h"
#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "policy/rules_file.hpp"
#include "programs/supervisor/descriptor_budget.hpp"
#include "programs/supervisor/event_log.hpp"
#include "programs/supervisor/interception_ca.hpp"
#include "programs/supervisor/logging.hpp"
#include "programs/supervisor/startup.hpp"

namespace openshell::supervisor {
namespace {

constexpr int kBacklog = 128;
constexpr int kListenerLost = SIGUSR1;  // sent to this process by itself

absl::Status errno_status(const std::string& what) {
  return absl::InternalError(what + ": " + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): glibc's is safe
}

/// Events of the data plane for the log; nobody proposes or observes anything here.
class LoggedEvents final : public egress::EventSink {
 public:
  explicit LoggedEvents(std::shared_ptr<EventLog> log) : log_{std::move(log)} {}
  void emit(egress::Event event) noexcept override {
    if (auto* activity = std::get_if<egress::ActivityEvent>(&event)) log_->push(std::move(*activity));
  }

 private:
  const std::shared_ptr<EventLog> log_;
};

absl::StatusOr<std::shared_ptr<const policy::Matcher>> load(const std::string& path, const std::string& rules) {
  const auto text = read_text(path);
  if (!text.ok()) return absl::InvalidArgumentError("--policy-data: " + std::string{text.status().message()});
  const auto parsed = policy::load_policy(*text, path);
  for (const auto& one : parsed.diagnostics.messages(policy::Severity::warning)) spdlog::warn("{}", one);
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.diagnostics.render());
  policy::MatcherOptions options;
  options.require_binary_identity = false;  // which program speaks can not be told here (NP-11)
  auto matcher = policy::Matcher::compile(*parsed.policy, options);
  if (!matcher.ok() || rules.empty()) return matcher;
  const auto source = read_text(rules);
  if (!source.ok()) return absl::InvalidArgumentError("--policy-rules: " + std::string{source.status().message()});
  auto arbiter = policy::load_rules_file(*source, rules, **matcher);
  if (!arbiter.ok()) return arbiter.status();
  options.arbiter = *std::move(arbiter);
  return policy::Matcher::compile(*parsed.policy, options);
}

/// Where the public certificates lie. A directory that nobody named is this process's own, and goes with it (NP-17 to NP-20).
class TlsDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<TlsDirectory>> make(const std::string& named, const PublicCa& ca) {
    auto out = std::make_unique<TlsDirectory>();
    const bool own = named.empty();
    std::error_code none;
    const auto temporary = own ? std::filesystem::temp_directory_path(none) : std::filesystem::path{};
    if (none) return absl::InvalidArgumentError("there is no temporary directory (TMPDIR): " + none.message());
    out->path_ = own ? temporary / ("openshell-network-proxy-" + std::to_string(::getpid())) : std::filesystem::path{named};
    const auto shown = out->path_.string();
    if (::mkdir(shown.c_str(), 0755) != 0) {
      struct stat info {};
      const bool usable =
          errno == EEXIST && ::lstat(shown.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && (!own || info.st_uid == ::geteuid());
      if (!usable) return errno_status("--tls-dir: '" + shown + "' cannot be made");
    }
    out->own_ = own;  // from here on it goes with this process
    for (const auto& [name, content] : {std::pair{"/openshell-ca.pem", &ca.certificate_pem}, std::pair{"/ca-bundle.pem", &ca.bundle_pem}}) {
      if (auto status = write_durably(shown + name, *content); !status.ok()) return status;
      if (::chmod((shown + name).c_str(), 0644) != 0) return errno_status("--tls-dir: '" + shown + name + "'");
    }
    return out;
  }
  TlsDirectory() = default;
  ~TlsDirectory() {
    std::error_code ignored;
    if (own_) std::filesystem::remove_all(path_, ignored);
  }
  TlsDirectory(const TlsDirectory&) = delete;
  TlsDirectory& operator=(const TlsDirectory&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
  bool own_ = false;
};

absl::StatusOr<isolation::FileDescriptor> listen_at(const egress::IpAddress& address, Port port) {
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  if (address.is_v4()) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port.value);
    v4.sin_addr.s_addr = htonl(address.v4_value());
  } else {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port.value);
    std::memcpy(&v6.sin6_addr, address.bytes().data(), sizeof v6.sin6_addr);
  }
  const auto* name = address.is_v4() ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  const socklen_t size = address.is_v4() ? sizeof v4 : sizeof v6;
  isolation::FileDescriptor fd{::socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const int on = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 || ::bind(fd.get(), name, size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return errno_status("--listen: " + address.str() + ":" + std::to_string(port.value));
  }
  return fd;
}

std::string name_of(int fd, const egress::IpAddress& address) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  std::uint16_t port = 0;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0) {
    port =
        ntohs(name.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(name).sin_port : reinterpret_cast<sockaddr_in6&>(name).sin6_port);
  }
  return (address.is_v4() ? address.str() : "[" + address.str() + "]") + ":" + std::to_string(port);
}

/// Takes every connection that waits. Where no descriptor is left, one that is kept for that ends the connection, so that nobody is left
/// hanging and the listener does not wake for ever.
class Acceptor {
 public:
  explicit Acceptor(egress::Engine& engine) : engine_{engine}, spare_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)} {}

  /// False: the listener is of no more use.
  bool take(int listener) {
    while (true) {
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        engine_.serve_proxy_client(egress::ResolvedIdentity{}, 0, egress::make_socket_stream(engine_, fd));
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return false;
      spare_ = {};
      if (const isolation::FileDescriptor refused{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)}; !refused)
        return errno == EAGAIN || errno == EMFILE || errno == ENFILE;
      spare_ = isolation::FileDescriptor{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)};
    }
  }

 private:
  egress::Engine& engine_;
  isolation::FileDescriptor spare_;
};

class NetworkProxy {
 public:
  explicit NetworkProxy(const NetworkProxyOptions& options) : options_{options} {}
  ~NetworkProxy() {
    if (engine_) engine_->shutdown();
    if (log_) log_->stop();
  }
  NetworkProxy(const NetworkProxy&) = delete;
  NetworkProxy& operator=(const NetworkProxy&) = delete;

  absl::Status start() {
    start_logging({options_.log_level, {}, "error"}, nullptr);
    auto matcher = load(options_.policy_data, options_.policy_rules);
    if (!matcher.ok()) return matcher.status();
    auto ca = make_interception_ca(options_.additional_ca_bundle);
    if (!ca.ok()) return ca.status();
    log_ = std::make_shared<EventLog>(log_events);
    egress::EngineOptions engine;
    engine.ca = ca->authority;
    engine.resolvers = options_.resolvers;
    engine.additional_ca_bundle_pem = ca->additional_pem;
    engine.endpoint_only_identity = true;
    engine.max_streams = budget_descriptors(engine.max_streams);
    auto made = egress::Engine::create(std::move(engine), std::make_shared<LoggedEvents>(log_));
    if (!made.ok()) return made.status();
    engine_ = *std::move(made);
    publish(*std::move(matcher));
    auto listener = listen_at(options_.address, options_.port);
    if (!listener.ok()) return listener.status();
    auto directory = TlsDirectory::make(options_.tls_dir, ca->published);
    if (!directory.ok()) return directory.status();
    directory_ = *std::move(directory);
    engine_->watch(listener->get(), [acceptor = std::make_shared<Acceptor>(*engine_)](int fd) {
      if (acceptor->take(fd)) return true;
      ::kill(::getpid(), kListenerLost);
      return false;
    });
    std::printf("listening on %s; clients trust %s\n", name_of(listener->get(), options_.address).c_str(),
                (directory_->path() + "/ca-bundle.pem").c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  void reload() {
    auto matcher = load(options_.policy_data, options_.policy_rules);
    if (!matcher.ok()) {
      spdlog::error("the policy was not read again, generation {} stays: {}", number_,
                    std::string{absl::StripTrailingAsciiWhitespace(matcher.status().message())});
      return;
    }
    publish(*std::move(matcher));
    spdlog::warn("generation {} is in force", number_);
  }

 private:
  void publish(std::shared_ptr<const policy::Matcher> matcher) {
    auto generation = std::make_shared<egress::Generation>();
    generation->number = ++number_;
    generation->matcher = std::move(matcher);
    engine_->publish(std::move(generation));
  }

  const NetworkProxyOptions& options_;
  std::shared_ptr<EventLog> log_;
  std::unique_ptr<TlsDirectory> directory_;
  std::unique_ptr<egress::Engine> engine_;
  std::uint64_t number_ = 0;
};

}  // namespace

int run_network_proxy(const NetworkProxyOptions& options) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : {SIGTERM, SIGINT, SIGHUP, kListenerLost}) sigaddset(&signals, one);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread, so that all inherit it
  NetworkProxy proxy{options};
  if (auto status = proxy.start(); !status.ok()) {
    std::fprintf(stderr, "openshell-supervisor: %s\n", std::string{status.message()}.c_str());
    return 1;
  }
  while (true) {
    int number = 0;
    if (sigwait(&signals, &number) != 0) continue;
    if (number == SIGHUP) {
      proxy.reload();
    } else if (number == kListenerLost) {
      spdlog::error("no connection can be taken any more");
      return 1;
    } else {
      return 0;
    }
  }
}

}  // namespace openshell::supervisor
