// The supervisor's end of the line to the sandbox runtime (isolation/boundary/socket_passing.hpp): opens of the workload come in, decisions
// go out, relay sockets follow.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "egress/stream.hpp"
#include "isolation/boundary/control.hpp"
#include "isolation/boundary/launch_material.hpp"
#include "isolation/boundary/socket_passing.hpp"
#include "isolation/file_descriptor.hpp"

namespace openshell::supervisor {

/// One thread, which connects, sees to deadlines, and connects again after a break; messages are read where `watch` says. While there is no
/// connection opens come over calls and relays go over them. The runtime is not trusted: what arrives is checked to be a connected TCP
/// socket, and belongs to an open that expects one. Any thread.
class HandoverLine : public std::enable_shared_from_this<HandoverLine> {
 public:
  /// An open of the workload. `call` takes its decision frame by `write`; its `read` ends when the runtime is done with the open, with an
  /// error where there will be no socket. On the thread of `watch`.
  using Opened = std::function<void(const std::string& ticket, boundary::NetworkConnected open, std::shared_ptr<egress::ByteStream> call)>;
  /// Runs `readable` whenever the descriptor may be read, one call at a time, until it returns false (egress::Engine::watch).
  using Watch = std::function<void(int fd, absl::AnyInvocable<bool(int fd)> readable)>;
  using Done = absl::AnyInvocable<void(absl::StatusOr<isolation::FileDescriptor>)>;

  static constexpr std::chrono::seconds kHandshakeDeadline{5};
  static constexpr std::chrono::seconds kSocketDeadline{10};  ///< from the decision to the arrival of its socket
  static constexpr std::size_t kMaxCalls = 2'048;             ///< opens without an end on one connection; the broker keeps 256 at most
  static constexpr std::chrono::milliseconds kFirstPause{100};
  static constexpr std::chrono::milliseconds kLongestPause{5'000};

  /// Null where the channel is no Unix socket.
  static std::shared_ptr<HandoverLine> make(const boundary::Descriptor& descriptor, Watch watch, Opened opened);
  /// Once: connects, and goes on doing so. What `watch` and `opened` use stands by then.
  void start();
  ~HandoverLine();
  HandoverLine(const HandoverLine&) = delete;
  HandoverLine& operator=(const HandoverLine&) = delete;

  /// False: the decision must be `relay_ready`. True: it may be `relay_handover`, and `done` runs once, on the thread of `watch`, the
  /// line's, or within this call: with the socket, or UNAVAILABLE (the line broke), DEADLINE_EXCEEDED, FAILED_PRECONDITION (no TCP socket),
  /// RESOURCE_EXHAUSTED (no descriptor left).
  bool expect(const std::string& ticket, Done done);
  /// Nothing will come: the open failed. The socket, if it comes after all, is closed.
  void forget(const std::string& ticket);
  /// Joins the thread; all that is expected fails. Not from its own thread. Idempotent; the destructor does it too.
  void stop();
  [[nodiscard]] bool up() const noexcept { return up_; }

 private:
  class Call;
  struct Waiting {
    Done done;
    std::chrono::steady_clock::time_point deadline;
  };
  HandoverLine(const boundary::Descriptor& descriptor, std::string path, Watch watch, Opened opened);
  void run();
  absl::StatusOr<isolation::FileDescriptor> connect();
  absl::Status handshake(int fd);
  void watch_connection(int fd);
  void wait_for_end(int fd);
  bool is_current(std::uint64_t connection);
  absl::Status take(int fd, std::uint64_t connection, boundary::LineDecoder& decoder);
  absl::Status take_open(std::uint64_t connection, const std::string& ticket, const std::string& payload);
  void take_socket(std::string ticket, isolation::FileDescriptor socket);
  std::shared_ptr<Call> end_call(const std::string& ticket);
  absl::Status decide(std::uint64_t connection, const std::string& ticket, const std::string& frame);
  void arrived(std::string ticket, absl::StatusOr<isolation::FileDescriptor> socket);
  void expire(std::chrono::steady_clock::time_point now);
  void fail_all(const absl::Status& why);
  bool pause(std::chrono::milliseconds time);

  const std::string path_;
  const boundary::Descriptor descriptor_;
  const Watch watch_;
  const Opened opened_;
  isolation::FileDescriptor stop_;  // eventfd: readable from stop on
  std::atomic<bool> up_{false};
  std::mutex mutex_;
  std::map<std::string, Waiting> waiting_;
  std::map<std::string, std::weak_ptr<Call>> calls_;
  int socket_ = -1;               // while it is up; the thread owns it
  std::uint64_t connection_ = 0;  // number of the newest: what an older one brought belongs to nobody
  std::thread thread_;
};

}  // namespace openshell::supervisor
