// `forward service`: a local port to a port of the sandbox over the gateway alone, without ssh.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
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
#include "cli/endpoint.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/ssh/byte_forward.hpp"
#include "cli/ssh/forward_records.hpp"
#include "cli/ssh/session.hpp"
#include "cli/ssh/socket_name.hpp"
#include "cli/terminal.hpp"
#include "cli/write_all.hpp"
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
  Context& context;  // its client is open: nothing in it changes any more
  GatewayClient& client;
  const Options& options;
  const std::string sandbox;
  std::mutex mutex;                     // of `fatal`
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
    } else if (!write_all(fd, **bytes).ok()) {
      forward->cancel();
    }
  }
  const linger now{1, 0};
  const bool broken = !status.ok() && !ended;  // no end: the program here sees a reset, and nothing before it that looks like one
  if (broken) (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::shutdown(fd, broken ? SHUT_RD : SHUT_RDWR);
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
    auto made = create_session(shared.context, shared.sandbox);
    status = made.status();
    if (made.ok()) session = *std::move(made);
    if (session) init.set_authorization_token(std::string{session->token.reveal()});
  }
  if (status.ok()) status = relay(fd, shared.client.open_forward(init));
  if (session) revoke_session(shared.context, *session);
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
  auto request = shared.context.scoped<v1::GetSandboxRequest>();
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
  auto spec = local.empty() ? ForwardSpec{"127.0.0.1", default_port} : parse_forward_spec(local, 0);
  if (!spec.ok()) return absl::InvalidArgumentError(absl::StrCat("--local: ", spec.status().message()));
  auto where = socket_name(spec->bind, spec->port);
  if (!where) return absl::InvalidArgumentError(absl::StrCat("--local: '", spec->bind, "' is no address"));
  const int fd = ::socket(where->name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, where->get(), where->length) != 0 || ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    return absl::UnavailableError(absl::StrCat("cannot listen on ", bracketed(spec->bind), ":", spec->port, ": ", std::strerror(error)));
  }
  (void)::getsockname(fd, reinterpret_cast<sockaddr*>(&where->name), &where->length);
  return Listener{fd, absl::StrCat(bracketed(spec->bind), ":", where->port())};
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
