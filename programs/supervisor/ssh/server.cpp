#include "programs/supervisor/ssh/server.hpp"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <libssh/libssh.h>
#include <libssh/server.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "isolation/unix_address.hpp"
#include "programs/supervisor/ssh/connection.hpp"

namespace openshell::supervisor {
namespace {

constexpr int kBacklog = 16;
constexpr int kWatchMs = 500;  // while connections exist: whether a client keeps its thread busy
constexpr std::chrono::milliseconds kFirstRetry{100}, kLongestRetry{5'000};
constexpr int kUnknownErrors = 10;

bool out_of_resources(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || error == ENOSR; }
bool of_the_network(int error) {
  return error == ECONNABORTED || error == EPROTO || error == EPERM || error == ENETDOWN || error == EINTR || error == EAGAIN;
}

}  // namespace

struct SshServer::Client {
  std::unique_ptr<SshConnection> connection;
  std::thread thread;
  std::atomic<bool> done{false};
};

SshServer::SshServer(Options options) : options_{std::move(options)} {}

absl::StatusOr<std::unique_ptr<SshServer>> SshServer::start(Options options) {
  std::unique_ptr<SshServer> server{new SshServer{std::move(options)}};
  if (auto status = server->listen(); !status.ok()) return status;
  server->accepting_ = std::thread{[raw = server.get()] { raw->accept_loop(); }};
  spdlog::info("SSH server listening on {}", server->options_.socket);
  return server;
}

absl::Status SshServer::listen() {
  auto address = isolation::unix_address(options_.socket);
  if (!address.ok()) return address.status();
  bind_ = ssh_bind_new();
  const bool no_config = false;  // nothing of the host's configuration of another server
  ssh_key key = ssh_key_dup(options_.key->handle());
  if (bind_ == nullptr || key == nullptr || ssh_bind_options_set(bind_, SSH_BIND_OPTIONS_PROCESS_CONFIG, &no_config) != SSH_OK ||
      ssh_bind_options_set(bind_, SSH_BIND_OPTIONS_IMPORT_KEY, key) != SSH_OK)
    return absl::InternalError("the SSH server cannot take its host key");
  if (options_.socket.front() != '@') ::unlink(options_.socket.c_str());
  listener_ = isolation::FileDescriptor{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  stop_ = isolation::FileDescriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  ended_ = isolation::FileDescriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // The file gets the mode of the socket. Not by the umask, which other threads have as well.
  if (::fchmod(listener_.get(), 0600) != 0 || ::bind(listener_.get(), address->get(), address->length) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0)
    return absl::UnavailableError(absl::StrCat("the SSH server cannot listen on ", options_.socket, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

SshServer::~SshServer() {
  if (stop_.valid()) {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
  }
  if (accepting_.joinable()) accepting_.join();
  for (auto& client : clients_) client.connection->cut();
  for (auto& client : clients_) client.thread.join();
  clients_.clear();
  if (listener_.valid() && options_.socket.front() != '@') ::unlink(options_.socket.c_str());
  if (bind_ != nullptr) ssh_bind_free(bind_);
}

std::size_t SshServer::connections() const {
  const std::lock_guard lock{mutex_};
  return clients_.size();
}

void SshServer::accept_loop() {
  int unknown = 0;
  auto retry = kFirstRetry;
  while (true) {
    pollfd ready[3] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}};
    const bool full = connections() >= options_.limits.connections;
    if (full) ready[0].events = 0;  // whoever comes waits in the backlog
    (void)::poll(ready, 3, connections() > 0 ? kWatchMs : -1);
    if (ready[1].revents != 0) return;
    std::uint64_t count = 0;
    if (ready[2].revents != 0) (void)!::read(ended_.get(), &count, sizeof count);
    look_after();
    if ((ready[0].revents & POLLIN) == 0) continue;
    if (accept_one()) {
      unknown = 0;
      retry = kFirstRetry;
      continue;
    }
    const int error = errno;
    if (error == EBADF || error == EINVAL || error == ENOTSOCK ||
        (!out_of_resources(error) && !of_the_network(error) && ++unknown >= kUnknownErrors)) {
      spdlog::error("the SSH server ends: {}", std::strerror(error));
      return;
    }
    if (error == EAGAIN || error == EINTR) continue;
    spdlog::warn("SSH accept error (retrying in {}ms): {}", retry.count(), std::strerror(error));
    pollfd stop{stop_.get(), POLLIN, 0};
    (void)::poll(&stop, 1, static_cast<int>(retry.count()));
    if (out_of_resources(error)) retry = std::min(retry * 2, kLongestRetry);
  }
}

bool SshServer::accept_one() {
  isolation::FileDescriptor socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (!socket.valid()) return false;
  serve(std::move(socket));
  return true;
}

void SshServer::serve(isolation::FileDescriptor socket) {
  isolation::FileDescriptor copy{::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)};
  ssh_session session = copy.valid() ? ssh_new() : nullptr;
  if (session == nullptr) return;
  if (ssh_bind_accept_fd(bind_, session, socket.get()) != SSH_OK) {
    spdlog::warn("SSH connection failed: {}", ssh_get_error(bind_));
    ssh_free(session);
    return;
  }
  (void)socket.release();  // the session's
  spdlog::info("SSH connection accepted on supervisor Unix socket");
  const std::lock_guard lock{mutex_};
  auto& client = clients_.emplace_back();
  client.connection = std::make_unique<SshConnection>(session, std::move(copy), options_.workload, options_.limits);
  client.thread = std::thread{[this, &client] {
    client.connection->run();
    client.done = true;
    const std::uint64_t one = 1;
    (void)!::write(ended_.get(), &one, sizeof one);
  }};
}

/// Buries what ended; cuts what a client made endless.
void SshServer::look_after() {
  std::list<Client> ended;
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock{mutex_};
    for (auto each = clients_.begin(); each != clients_.end();) {
      const auto next = std::next(each);
      if (each->done) {
        ended.splice(ended.end(), clients_, each);
      } else if (each->connection->stuck(now)) {
        spdlog::warn("SSH connection cut: its client keeps the server busy");
        each->connection->cut();
      }
      each = next;
    }
  }
  for (auto& client : ended) client.thread.join();
}

absl::StatusOr<isolation::FileDescriptor> dial_ssh_socket(const std::string& socket) {
  auto address = isolation::unix_address(socket);
  if (!address.ok()) return address.status();
  isolation::FileDescriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd.valid() || ::connect(fd.get(), address->get(), address->length) != 0)
    return absl::UnavailableError(absl::StrCat("the SSH server cannot be reached: ", std::strerror(errno)));
  if (socket.front() != '@') return fd;
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid != ::getpid())
    return absl::PermissionDeniedError(absl::StrCat("SSH relay peer PID mismatch: expected ", ::getpid(), ", got ", peer.pid));
  return fd;
}

}  // namespace openshell::supervisor
