// The SSH server of a sandbox: for people and their tools (connect, editors, copy, forwards). It listens on a Unix socket of the supervisor
// and nowhere else; every process that it starts is an exec of the sandbox's registry. [CX rows]
#pragma once

#include <absl/status/statusor.h>

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "isolation/file_descriptor.hpp"
#include "programs/supervisor/ssh/host_key.hpp"
#include "programs/supervisor/ssh/limits.hpp"
#include "programs/supervisor/ssh/peer.hpp"

struct ssh_bind_struct;

namespace openshell::supervisor {

class SshConnection;

/// One thread that accepts, one for each connection. No actor and no gRPC thread ever runs in libssh.
class SshServer {
 public:
  struct Options {
    std::string socket;  ///< path, at most 107 bytes, or `@name` of an abstract socket
    std::shared_ptr<const SshHostKey> key;
    std::shared_ptr<SshWorkload> workload;
    SshLimits limits;
  };

  /// Bound and listening when it returns, mode 0600; a stale socket is removed first.
  static absl::StatusOr<std::unique_ptr<SshServer>> start(Options options);
  /// Cuts every connection and joins all threads.
  ~SshServer();
  SshServer(const SshServer&) = delete;
  SshServer& operator=(const SshServer&) = delete;

  [[nodiscard]] std::size_t connections() const;

 private:
  struct Client;
  explicit SshServer(Options options);
  absl::Status listen();
  void accept_loop();
  bool accept_one();
  void serve(isolation::FileDescriptor socket);
  void look_after();

  const Options options_;
  ssh_bind_struct* bind_ = nullptr;
  isolation::FileDescriptor listener_, stop_, ended_;
  std::thread accepting_;
  mutable std::mutex mutex_;
  std::list<Client> clients_;
};

/// A connection to the server's socket. Of an abstract one the peer must be this process itself, since anybody could have taken the name.
absl::StatusOr<isolation::FileDescriptor> dial_ssh_socket(const std::string& socket);

}  // namespace openshell::supervisor
