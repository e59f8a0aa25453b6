// The runtime's end of the line to the supervisor (isolation/boundary/socket_passing.hpp): opens go out, decisions come in, sockets follow.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "isolation/boundary/control.hpp"
#include "isolation/file_descriptor.hpp"

namespace openshell::sandbox {

/// Thread-safe; no function blocks. One connection at a time: the newest, since a supervisor makes another only when its last one broke.
/// Each connection has a thread of its own, which ends with it.
class SocketHandover : public std::enable_shared_from_this<SocketHandover> {
 public:
  /// Carries a decision out: allow() gives the relay socket, deny() fails the connect. Called on the line's thread.
  struct Gate {
    std::function<absl::StatusOr<isolation::FileDescriptor>(std::uint64_t open)> allow;
    std::function<void(std::uint64_t open, boundary::OpenDecision)> deny;
  };

  /// Runs `work` on a thread of its own. std::system_error: there is none to be had.
  using StartThread = std::function<void(std::function<void()> work)>;
  SocketHandover();
  explicit SocketHandover(StartThread start) : start_{std::move(start)} {}

  /// Before the first connection. Without it opens go over calls.
  void decide_with(Gate gate) { gate_ = std::move(gate); }

  /// `connection`: authenticated, its TLS handshake over. Without a thread for it, it is closed: opens go over calls.
  void adopt(isolation::FileDescriptor connection);
  /// Gives the supervisor a duplicate of `socket`, of an open that came over a call. UNAVAILABLE: there is no connection, or it does not
  /// take it.
  absl::Status pass(std::string_view ticket, int socket);

  /// Tells of an open. False: there is no line, or too much waits in it, and a call has to carry it.
  bool announce(std::uint64_t open, const boundary::NetworkConnected& what);
  /// The open is over without a decision. False: it was not announced here.
  bool over(std::uint64_t open);

  /// For whoever shows the figures of the gate: true once between two looks at them, so that opens over the line cost no message each.
  [[nodiscard]] bool is_news() { return !news_.exchange(true); }
  void looked() { news_ = false; }

 private:
  struct Line;
  void serve(const std::shared_ptr<Line>& line);
  void decided(const std::shared_ptr<Line>& line, const std::string& ticket, const std::string& payload);
  void broke(const std::shared_ptr<Line>& line);

  const StartThread start_;
  Gate gate_;
  std::atomic<bool> news_{false};
  std::mutex mutex_;  // around line_ and what each line has announced
  std::shared_ptr<Line> line_;
};

}  // namespace openshell::sandbox
