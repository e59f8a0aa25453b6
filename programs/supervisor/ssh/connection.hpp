#pragma once

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "isolation/file_descriptor.hpp"
#include "programs/supervisor/ssh/channel.hpp"
#include "programs/supervisor/ssh/limits.hpp"

namespace openshell::supervisor {

/// One client of the SSH server, on a thread of its own: libssh blocks nobody else, and nobody else calls libssh for it. Everybody who
/// reaches the socket is let in, as the relay that leads to it has been paid with a session token; what is defended here is the server.
class SshConnection {
 public:
  /// `session` has the accepted socket; this object frees it. `socket` is a duplicate, for `cut`.
  SshConnection(ssh_session session, isolation::FileDescriptor socket, std::shared_ptr<SshWorkload> workload, const SshLimits& limits);
  ~SshConnection();
  SshConnection(const SshConnection&) = delete;
  SshConnection& operator=(const SshConnection&) = delete;

  /// Until the client is gone or has to go. On the connection's own thread.
  void run();
  /// Ends it from any thread, in whatever libssh is.
  void cut();
  /// From any thread: one turn takes longer than `limits.stuck`.
  [[nodiscard]] bool stuck(std::chrono::steady_clock::time_point now) const;

 private:
  using Clock = std::chrono::steady_clock;

  static int on_none(ssh_session, const char* user, void* self);
  static int on_key(ssh_session, const char* user, ssh_key_struct* key, char state, void* self);
  static int on_message(ssh_session, ssh_message message, void* self);
  static int on_inbox(int fd, int events, void* self);

  bool turn();
  void pump();
  void keep_alive(Clock::time_point now);
  bool end(const std::string& why);
  std::chrono::milliseconds patience(Clock::time_point now) const;
  bool drained();
  bool check_bounds();
  int refuse_auth();
  int channel_open(ssh_message message);
  std::shared_ptr<SshChannel> accept(ssh_message message, SshChannel::Kind kind);
  int open_session(ssh_message message);
  int open_forward(ssh_message message);
  int channel_request(ssh_message message);
  std::shared_ptr<SshChannel> channel_of(ssh_message message) const;
  std::size_t count(SshChannel::Kind kind) const;

  const ssh_session session_;
  const isolation::FileDescriptor socket_;
  const std::shared_ptr<SshWorkload> workload_;
  const SshLimits& limits_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  ssh_event event_ = nullptr;
  ssh_server_callbacks_struct callbacks_{};
  ssh_counter_struct socket_bytes_{}, packets_{};
  std::map<ssh_channel, std::shared_ptr<SshChannel>> channels_;
  ssh_channel first_ = nullptr;  // whose turn it is to write first
  const Clock::time_point began_ = Clock::now();
  Clock::time_point heard_ = began_, asked_ = began_;
  std::uint64_t heard_bytes_ = 0, drained_bytes_ = 0, drained_packets_ = 0;
  std::atomic<Clock::rep> turn_began_{0};  // 0: in the poll
  std::atomic<bool> cut_{false};
  int refusals_ = 0;
  bool authenticated_ = false, over_ = false, moved_ = false;
};

}  // namespace openshell::supervisor
