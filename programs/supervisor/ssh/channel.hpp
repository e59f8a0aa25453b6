#pragma once

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "programs/supervisor/ssh/inbox.hpp"
#include "programs/supervisor/ssh/limits.hpp"
#include "programs/supervisor/ssh/peer.hpp"

namespace openshell::supervisor {

/// One channel of a connection and the peer in the sandbox that it was connected with. Everything happens on the connection's thread;
/// completions of the peer come through its inbox.
class SshChannel : public std::enable_shared_from_this<SshChannel> {
 public:
  enum class Kind { session, forward };

  SshChannel(ssh_channel handle, Kind kind, std::shared_ptr<Inbox> inbox, std::shared_ptr<SshWorkload> workload, const SshLimits& limits);
  ~SshChannel();
  SshChannel(const SshChannel&) = delete;
  SshChannel& operator=(const SshChannel&) = delete;

  // Requests of the client. True: success is answered, before anything that follows from it.
  void environment(const std::string& name, const std::string& value);
  bool may_start() const { return kind_ == Kind::session && !started_; }
  void shell();
  void exec(const std::string& command);
  bool subsystem(const std::string& name);
  /// After the open was confirmed.
  void connect(const std::string& host, std::uint16_t port);

  /// Moves what can be moved. `room`: the socket takes more. Returns whether something moved.
  bool pump(bool room);
  /// Both sides have closed: to be let go.
  [[nodiscard]] bool over() const { return over_; }
  /// The client sends more than its window.
  [[nodiscard]] bool overrun() const { return overrun_; }
  /// Bytes received and not taken by the peer.
  [[nodiscard]] std::size_t held() const { return unread_ + input_.size(); }
  [[nodiscard]] Kind kind() const { return kind_; }
  /// The connection is over.
  void abandon();

 private:
  static int on_data(ssh_session, ssh_channel, void* data, std::uint32_t length, int is_stderr, void* self);
  static void on_eof(ssh_session, ssh_channel, void* self);
  static void on_close(ssh_session, ssh_channel, void* self);
  static void on_signal(ssh_session, ssh_channel, const char* signal, void* self);
  static int on_pty(ssh_session, ssh_channel, const char* term, int columns, int rows, int, int, void* self);
  static int on_window_change(ssh_session, ssh_channel, int columns, int rows, int, int, void* self);

  void start(std::optional<std::string> command);
  void start(ProcessRequest request);
  void opened(absl::StatusOr<std::shared_ptr<ChannelPeer>> peer);
  SshWorkload::Opened when_open();
  void say(const std::string& text);
  void queue(PeerOutput output);
  bool pump_closed();
  bool take_input();
  bool feed();
  bool read_peer();
  bool write_out();
  void send_exit(int code);
  void close_ours();

  const ssh_channel handle_;
  const Kind kind_;
  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<SshWorkload> workload_;
  const SshLimits& limits_;
  ssh_channel_callbacks_struct callbacks_{};
  std::shared_ptr<ChannelPeer> peer_;

  std::optional<ProcessRequest::Terminal> terminal_;
  bool login_ = true, read_only_ = false, started_ = false;
  bool resized_ = false;                                // after the start and before the peer was there
  std::vector<boundary::ProcessSignal> early_signals_;  // then too

  std::string input_;           // taken from libssh, not yet by the peer
  std::size_t unread_ = 0;      // in libssh's buffer
  std::deque<PeerOutput> out_;  // the front is being written, from `written_` on
  std::size_t written_ = 0;
  bool writing_ = false, reading_ = false;
  bool input_end_ = false, input_closed_ = false;  // the client said so; the peer was told
  bool output_end_ = false;                        // nothing more is read from the peer
  bool eof_sent_ = false, closed_ours_ = false, closed_theirs_ = false;
  bool overrun_ = false, over_ = false;
  std::chrono::steady_clock::time_point linger_until_{};
};

}  // namespace openshell::supervisor
