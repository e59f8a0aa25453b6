// How a socket that the workload made comes to be connected to the broker, without its descriptor being replaced: a loopback listener for
// decisions that come at once, SYN-hold for those that come later. A held socket is in SYN_SENT towards a listener whose queue is full,
// which drops its SYNs; on the decision a socket on the same address and port connects *to* it (simultaneous open, RFC 9293 3.5).
// Everything here acts on duplicates; the workload's number is never used. Requirements, IS-37.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "isolation/broker.hpp"
#include "isolation/file_descriptor.hpp"
#include "isolation/socket_address.hpp"

namespace openshell::isolation {

/// Thread-safe. Every call names the duplicate `socket` of the workload's descriptor; its O_NONBLOCK is shared with the workload and never
/// changed.
class Bridge {
 public:
  explicit Bridge(PeerNames mode);
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  /// Connects `socket`, which asked for `destination` (in the caller's form), now. About 60 us. Unavailable: the handshake did not come
  /// about.
  absl::StatusOr<FileDescriptor> connect_now(int socket, const SocketAddress& destination);

  class Hold;
  /// Puts a non-blocking `socket` in SYN_SENT, for `limit` at most (the kernel then says ETIMEDOUT).
  absl::StatusOr<std::unique_ptr<Hold>> hold(int socket, const SocketAddress& destination, std::chrono::milliseconds limit);
  /// Establishes a held socket and returns the relay end.
  absl::StatusOr<FileDescriptor> complete(Hold& hold, int socket);
  /// Ends a hold: the workload sees ECONNREFUSED within about 1 s, or ECONNRESET at once where other sockets are held for the same
  /// destination.
  void refuse(std::unique_ptr<Hold> hold, FileDescriptor socket);

  /// Leaves a held socket to the kernel's own timer, which says ETIMEDOUT at the next SYN, within about 1 s.
  void expire(std::unique_ptr<Hold> hold, FileDescriptor socket);

  /// True for a port on which a bridge of ours listens on a loopback address right now.
  [[nodiscard]] bool is_bridge_port(std::uint16_t port) const;
  [[nodiscard]] std::uint64_t peer_name_misses() const { return misses_.load(); }
  /// Lets go of refused and expired sockets whose last SYN is over; called every half second while true was returned.
  bool settle();
  static constexpr std::size_t kMaxExpired = Broker::kMaxPendingOpens;

 private:
  struct Place;
  struct Sink;
  std::shared_ptr<Place> place_of(const SocketAddress& destination);
  absl::StatusOr<FileDescriptor> connect_by_listener(int socket, const SocketAddress& destination, FileDescriptor listener);
  absl::StatusOr<FileDescriptor> connect_through_sink(Place& place, int socket, const SocketAddress& destination);
  absl::StatusOr<FileDescriptor> connect_on_loopback(int socket, const SocketAddress& destination);
  absl::StatusOr<std::unique_ptr<Hold>> hold_at_destination(int socket, const SocketAddress& destination);
  absl::StatusOr<std::unique_ptr<Hold>> hold_on_loopback(int socket, const SocketAddress& destination);

  const PeerNames mode_;
  mutable std::mutex mutex_;
  std::map<SocketAddress, std::weak_ptr<Place>> places_;  ///< AnyIP: who uses an address and port
  std::vector<std::pair<std::shared_ptr<Place>, std::chrono::steady_clock::time_point>>
      lingering_;  ///< places with refused sockets, kept alive
  struct Expired {
    std::unique_ptr<Hold> hold;
    FileDescriptor socket;
    std::chrono::steady_clock::time_point until;
  };
  std::vector<Expired> expired_;
  std::multiset<std::uint16_t> ports_;
  std::atomic<std::uint64_t> misses_{0};
};

/// One socket in SYN_SENT. Dropping it closes the sink; the socket itself stays with the caller.
class Bridge::Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  friend class Bridge;
  void leave();
  void slow_down(int socket, std::chrono::milliseconds limit);
  void restore(int socket) const;

  FileDescriptor partner;          ///< bound where the workload's socket believes its peer to be; never listens
  std::shared_ptr<Place> place;    ///< AnyIP
  std::unique_ptr<Sink> own_sink;  ///< otherwise
  Bridge* bridge = nullptr;
  unsigned saved_user_timeout = 0;
  int saved_syn_retries = 0, saved_rto_max = 0;
  bool has_rto_max = false;
};

}  // namespace openshell::isolation
