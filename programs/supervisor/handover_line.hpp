// The supervisor's end of the connection over which the sandbox runtime passes relay sockets (isolation/boundary/socket_passing.hpp).
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "isolation/boundary/launch_material.hpp"
#include "isolation/file_descriptor.hpp"

namespace openshell::supervisor {

/// One thread, which connects, waits for sockets and connects again after a break. While there is no connection relays go over their calls.
/// The runtime is not trusted: what arrives is checked to be a connected TCP socket, and belongs to a call that expects one. Any thread.
class HandoverLine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<isolation::FileDescriptor>)>;

  static constexpr std::chrono::seconds kHandshakeDeadline{5};
  static constexpr std::chrono::seconds kSocketDeadline{10};  ///< from the decision to the arrival of its socket
  static constexpr std::chrono::milliseconds kFirstPause{100};
  static constexpr std::chrono::milliseconds kLongestPause{5'000};

  /// Null where the channel is no Unix socket.
  static std::shared_ptr<HandoverLine> start(const boundary::Descriptor& descriptor);
  ~HandoverLine();
  HandoverLine(const HandoverLine&) = delete;
  HandoverLine& operator=(const HandoverLine&) = delete;

  /// False: the decision must be `relay_ready`. True: it may be `relay_handover`, and `done` runs once, on the line's thread or within this
  /// call: with the socket, or UNAVAILABLE (the line broke), DEADLINE_EXCEEDED, FAILED_PRECONDITION (no TCP socket), RESOURCE_EXHAUSTED (no
  /// descriptor left).
  bool expect(const std::string& ticket, Done done);
  /// Nothing will come: the call failed. The socket, if it comes after all, is closed.
  void forget(const std::string& ticket);
  /// Joins the thread; all that is expected fails. Not from its own thread. Idempotent; the destructor does it too.
  void stop();
  [[nodiscard]] bool up() const noexcept { return up_; }

 private:
  struct Waiting {
    Done done;
    std::chrono::steady_clock::time_point deadline;
  };
  explicit HandoverLine(const boundary::Descriptor& descriptor, std::string path);
  void run();
  absl::StatusOr<isolation::FileDescriptor> connect();
  absl::Status handshake(int fd);
  void serve(int fd);
  void arrived(std::string ticket, absl::StatusOr<isolation::FileDescriptor> socket);
  void expire(std::chrono::steady_clock::time_point now);
  void fail_all(const absl::Status& why);
  bool pause(std::chrono::milliseconds time);

  const std::string path_;
  const boundary::Descriptor descriptor_;
  isolation::FileDescriptor stop_;  // eventfd: readable from stop on
  std::atomic<bool> up_{false};
  std::mutex mutex_;
  std::map<std::string, Waiting> waiting_;
  std::thread thread_;
};

}  // namespace openshell::supervisor
