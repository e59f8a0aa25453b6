// `forward service`: a local port to a port of the sandbox over the gateway alone, without ssh.
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/commands/commands.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/ssh/byte_forward.hpp"
#include "cli/ssh/forward_records.hpp"
#include "cli/ssh/session.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetry{50};  // while no connection more fits
constexpr std::chrono::seconds kLook{2};         // between looks at the sandbox
constexpr std::size_t kMaxConnections = 128;     // at once; the gateway's own limit
constexpr int kBacklog = 64;

struct Options {
  std::string name, host = "127.0.0.1", local;
  std::uint16_t port = 0;
};

/// What the threads of the connections share.
struct Shared {
  Context& context;
  GatewayClient& client;
  const Options& options;
  const std::string sandbox;
  std::mutex mutex;
  absl::Status fatal;                   // ends the command
  std::atomic<bool> with_token{false};  // the gateway asked for one
  std::atomic<std::size_t> open{0};
};

void stop_with(Shared& shared, const absl::Status& why) {
  const std::lock_guard lock{shared.mutex};
  if (shared.fatal.ok()) shared.fatal = why;
}

absl::Status fatal_status(Shared& shared) {
  const std::lock_guard lock{shared.mutex};
  return shared.fatal;
}

bool ends_all(const absl::Status& status) { return absl::IsNotFound(status) || absl::IsFailedPrecondition(status); }

bool write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const auto count = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return true;
}

void copy_out(int fd, const std::shared_ptr<ByteForward>& forward) {
  std::string buffer(ByteForward::kChunk, '\0');
  while (true) {
    const auto count = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return forward->cancel();
    if (count == 0) return forward->end_output();
    if (!forward->write(buffer.substr(0, static_cast<std::size_t>(count)))) return;
  }
}

/// Until both directions ended.
absl::Status relay(int fd, const std::shared_ptr<ByteForward>& forward) {
  std::thread out{[fd, forward] { copy_out(fd, forward); }};
  absl::Status status;
  bool ended = false;
  while (true) {
    auto bytes = forward->read();
    if (!bytes.ok()) status = bytes.status();
    if (!bytes.ok() || !*bytes) break;
    if ((*bytes)->empty()) {
      ended = true;
      ::shutdown(fd, SHUT_WR);
    } else if (!write_all(fd, **bytes)) {
      forward->cancel();
    }
  }
  const linger now{1, 0};
  if (!status.ok() && !ended) (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);  // a broken stream is no end
  ::shutdown(fd, SHUT_RDWR);
  out.join();
  return status;
}

v1::TcpForwardInit init_of(const Shared& shared) {
  v1::TcpForwardInit init;
  init.set_sandbox(shared.sandbox);
  init.set_workspace(shared.context.flags().workspace);
  init.set_service_id(absl::StrCat("service-forward:", shared.sandbox, ":", shared.options.host, ":", shared.options.port));
  init.mutable_tcp()->set_host(shared.options.host);
  init.mutable_tcp()->set_port(shared.options.port);
  return init;
}

bool wants_token(const absl::Status& status) {
  return absl::IsUnauthenticated(status) && absl::StrContains(status.message(), "authorization_token is required");
}

void serve(Shared& shared, int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto init = init_of(shared);
  std::optional<SshSession> session;
  absl::Status status;
  if (shared.with_token) {
    const std::lock_guard lock{shared.mutex};  // the context is not for several threads
    auto made = create_session(shared.context, shared.sandbox);
    status = made.status();
    if (made.ok()) session = *std::move(made);
    if (session) init.set_authorization_token(std::string{session->token.reveal()});
  }
  if (status.ok()) status = relay(fd, shared.client.open_forward(init));
  if (session) {
    const std::lock_guard lock{shared.mutex};
    revoke_session(shared.context, *session);
  }
  if (wants_token(status)) {
    shared.with_token = true;  // of the next connection; this one's bytes may have been read
  } else if (ends_all(status)) {
    stop_with(shared, absl::Status{status.code(), absl::StrCat("service forward stopped: ", describe(status))});
  } else if (!status.ok()) {
    note(absl::StrCat(mark(kWarning), " ", describe(status)));
  }
  ::close(fd);
  --shared.open;
}

absl::Status look(Shared& shared) {
  v1::GetSandboxRequest request;
  {
    const std::lock_guard lock{shared.mutex};
    request = shared.context.scoped<v1::GetSandboxRequest>();
  }
  request.set_name(shared.sandbox);
  auto answer = shared.client.get_sandbox(request);
  if (absl::IsNotFound(answer.status()))
    return absl::NotFoundError(absl::StrCat("sandbox '", shared.sandbox, "' no longer exists; stopping service forward"));
  if (!answer.ok()) return absl::OkStatus();  // a gateway that is away comes back
  const auto& state = answer->sandbox().status();
  if (state.phase() == v1::SANDBOX_PHASE_READY || state.has_exit_code()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("sandbox '", shared.sandbox, "' is no longer ready (phase: ", phase_name(state.phase()), "); stopping service forward"));
}

struct Listener {
  int fd = -1;
  std::string shown;
};

absl::StatusOr<Listener> listen_on(const std::string& local, std::uint16_t default_port) {
  std::string host = "127.0.0.1", number = local.empty() ? std::to_string(default_port) : local;
  if (const auto colon = number.rfind(':'); colon != std::string::npos) {
    host = number.substr(0, colon);
    number = number.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  }
  std::uint32_t port = 0;
  if (!absl::SimpleAtoi(number, &port) || port > 65'535)
    return absl::InvalidArgumentError(absl::StrCat("--local expects [ADDR:]PORT, got '", local, "'"));
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(static_cast<std::uint16_t>(port));
  const bool is_v4 = ::inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1)
    return absl::InvalidArgumentError(absl::StrCat("--local: '", host, "' is no address"));
  auto* name = is_v4 ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  socklen_t length = is_v4 ? sizeof v4 : sizeof v6;
  const int fd = ::socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, name, length) != 0 || ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ":", port, ": ", std::strerror(error)));
  }
  (void)::getsockname(fd, name, &length);
  const auto bound = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
  return Listener{fd, is_v4 ? absl::StrCat(host, ":", bound) : absl::StrCat("[", host, "]:", bound)};
}

absl::StatusOr<int> service(Context& context, const Options& options) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  Shared shared{context, **client, options, *name, {}, {}, false, 0};
  if (auto status = look(shared); !status.ok()) return status;
  auto listener = listen_on(options.local, options.port);
  if (!listener.ok()) return listener.status();
  context.remember(*name);
  note(absl::StrCat("Forwarding ", listener->shown, " -> ", options.host, ":", options.port, " in sandbox ", *name, " via gRPC"));
  auto looked = Clock::now();
  absl::Status status;
  while (status.ok()) {
    pollfd ready{listener->fd, POLLIN, 0};
    const bool room = shared.open < kMaxConnections;
    if (::poll(&ready, room ? 1 : 0, static_cast<int>((room ? std::chrono::milliseconds{kLook} : kRetry).count())) == 1) {
      const int fd = ::accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) {
        ++shared.open;
        std::thread{[&shared, fd] { serve(shared, fd); }}.detach();
      } else {
        std::this_thread::sleep_for(kRetry);  // no descriptor is free: it stays ready
      }
    }
    status = fatal_status(shared);
    if (status.ok() && Clock::now() - looked >= kLook) {
      looked = Clock::now();
      status = look(shared);
    }
  }
  print_error(status);
  std::fflush(nullptr);
  std::_Exit(1);  // connections that still run end with the process
}

}  // namespace

void add_forward_service(CLI::App& forward, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = forward.add_subcommand("service", "Forward a local port over the gateway, without ssh");
  command->add_option("name", o->name, "Sandbox; default: the one last used");
  command->add_option("--target-port", o->port)->required()->check(CLI::Range(1, 65'535));
  command->add_option("--target-host", o->host, "Of the sandbox's loopback");
  command->add_option("--local", o->local, "[ADDR:]PORT; default: the target's port; 0: any free one");
  command->callback([&chosen, o] { chosen = [o](Context& c) { return service(c, *o); }; });
}

}  // namespace openshell::cli
