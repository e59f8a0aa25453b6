// The socket broker: answers the notifications of workload processes. It makes their INET sockets, performs their loopback connects, and
// asks a decider about every other connect. An allowed one ends at a relay socket that the caller of allow() owns; the workload's own
// descriptor is connected, never replaced. Requirements R-36..R-48, R-98..R-100.
//
// Life of an external connect: received -> identity read -> OpenDecider::open() -> (within 5 ms) answered, or, where the socket is
// non-blocking, held in SYN_SENT with EINPROGRESS -> allow() or deny().
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "isolation/file_descriptor.hpp"
#include "isolation/procfs_identity.hpp"
#include "isolation/seccomp_filter.hpp"
#include "isolation/socket_address.hpp"

namespace openshell::isolation {

/// How getpeername stays right.
enum class PeerNames {
  AnyIp,     ///< the namespace routes every address to `lo`: relay sockets bind the real destination
  Notified,  ///< getpeername is answered from a table
};

using OpenId = std::uint64_t;  ///< one external connect; never reused in a process

/// One external connect, waiting for a decision.
struct OpenRequest {
  OpenId id = 0;
  SocketAddress destination;                ///< normalised: a v4-mapped address arrives as IPv4
  bool ipv4_mapped = false;                 ///< how the caller wrote it
  absl::StatusOr<BinaryIdentity> identity;  ///< or why there is none; the decider then answers IdentityUnavailable
  std::uint64_t socket_cookie = 0;          ///< SO_COOKIE; the decision belongs to this socket
  bool nonblocking = false;
  std::chrono::steady_clock::time_point received;  ///< of the notification
  std::chrono::steady_clock::time_point deadline;  ///< 30 s after the first notification for that socket; later decisions are ignored
};

enum class DenyReason { PolicyDenied, IdentityUnavailable, InvalidDestination, ResourceExhausted, MediationUnavailable };
std::string_view to_string(DenyReason reason);
/// EACCES, EAGAIN or ECANCELED.
[[nodiscard]] int errno_of(DenyReason reason) noexcept;

/// Why an open ended without allow() or deny().
enum class OpenEnd { TimedOut, TaskGone, Frozen, Stopped };

/// Who decides. Called on broker threads, several at once; must not block and must not call back into the broker from within (post it).
class OpenDecider {
 public:
  virtual ~OpenDecider() = default;
  virtual void open(OpenRequest request) = 0;
  /// The open is over; allow() and deny() with its id now answer NotFound. Only for opens that were handed out by open().
  virtual void ended(OpenId id, OpenEnd why) = 0;
};

/// Counters for introspection; a snapshot.
struct BrokerStatistics {
  std::uint64_t notifications = 0, sockets = 0, connects = 0, continued = 0, external_opens = 0, allowed = 0, denied = 0, timed_out = 0,
                cancelled = 0;
  std::uint64_t held = 0;              ///< opens that went into a SYN-hold
  std::uint64_t peer_name_misses = 0;  ///< AnyIP binds that fell back to a loopback port
  std::uint64_t refused_capacity = 0;
  std::size_t pending = 0;
};

class Broker {
 public:
  static constexpr std::size_t kMaxPendingOpens = 256;
  static constexpr std::size_t kMaxBlockingConnects = 64;  ///< loopback, each on a worker thread while it lasts
  static constexpr std::size_t kMaxPeerNames = 4096;

  struct Options {
    CancellationMode cancellation = CancellationMode::Killable;
    PeerNames peer_names = PeerNames::AnyIp;
    std::vector<std::uint16_t> reserved_ports;           ///< the control listener's: EACCES at any address
    std::vector<std::uint16_t> external_loopback_ports;  ///< 127.0.0.1:<port> that is an external open (the GCP metadata port)
    std::chrono::milliseconds fast_path{5};
    std::chrono::milliseconds open_timeout{30'000};
    unsigned receivers = 0;  ///< 0: one per two CPUs, 1..4
  };

  /// Starts the receiver, watchdog and identity threads on a listener from Launcher::take_listener(). Never from the launcher thread. The
  /// decider outlives the broker.
  static absl::StatusOr<std::unique_ptr<Broker>> start(Options options, FileDescriptor listener, OpenDecider& decider);
  /// Answers all that is outstanding with ECANCELED and closes the listener; later notified calls of the workload are ENOSYS.
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  /// Connects the workload's socket and returns the other end: a connected loopback TCP socket, non-blocking, close-on-exec, TCP_NODELAY,
  /// owned by the caller. Takes about 0.1 ms; from any thread but the launcher. NotFound: the open is over (timed out, task gone, frozen).
  /// Unavailable: the connection could not be made; the workload got an error.
  absl::StatusOr<FileDescriptor> allow(OpenId id);
  /// Fails the connect: EACCES, EAGAIN or ECANCELED while the call still waits, ECONNREFUSED once it was told EINPROGRESS. NotFound as
  /// above.
  absl::Status deny(OpenId id, DenyReason reason);

  /// From now on external connects are ECANCELED at once; every outstanding notification is answered (ECANCELED) and every hold closed,
  /// when this returns. Loopback and socket() go on, so that tasks can be stopped. R-98: nothing hangs.
  void freeze();
  void resume();

  /// Another decider for opens from now on; only while none is pending (qualification). Returns the old one.
  OpenDecider& exchange_decider(OpenDecider& decider);

  [[nodiscard]] bool healthy() const noexcept;  ///< false once the listener failed
  /// The kernel tells a live notification from one that never was; for qualification.
  [[nodiscard]] bool rejects_unknown_notification() const noexcept;
  [[nodiscard]] BrokerStatistics statistics() const;
  [[nodiscard]] IdentityReader& identities() noexcept;

 private:
  class Impl;
  explicit Broker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace openshell::isolation
