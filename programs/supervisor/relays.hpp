#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/supervisor/ports.hpp"
#include "egress/stream.hpp"
#include "programs/supervisor/boundary_client.hpp"

namespace openshell::supervisor {

/// Copies both directions of two streams, each with its own end; 120 s after a one-sided end without a byte both are closed.
class Bridge;

/// The relays that the gateway opens: exec (its own messages), the SSH server of this process, and TCP into the sandbox. Any thread.
class Relays final : public RelayHost, public std::enable_shared_from_this<Relays> {
 public:
  static constexpr std::size_t kMaxRelays = 512;  ///< open or being opened
  static constexpr std::chrono::seconds kOneSidedIdle{120};

  using OpenRelay = std::function<std::shared_ptr<egress::ByteStream>(const std::string& channel_id)>;

  /// A connection to this process's SSH server; empty function: it has none.
  using DialSsh = std::function<absl::StatusOr<std::shared_ptr<egress::ByteStream>>()>;

  Relays(std::shared_ptr<BoundaryClient> boundary, OpenRelay open_relay, DialSsh dial_ssh, std::shared_ptr<TimerThread> timers)
      : boundary_{std::move(boundary)}, open_relay_{std::move(open_relay)}, dial_ssh_{std::move(dial_ssh)}, timers_{std::move(timers)} {}

  /// A service of this process that the gateway may open by its id (`openshell.NAME/VERSION`), at most `limit` times at once; needs no
  /// sandbox. Starts serving `relay`, and says how to abort it; `ended` is to be called once. Before the session begins.
  using Serve = std::function<std::function<void()>(std::shared_ptr<egress::ByteStream> relay, std::function<void()> ended)>;
  void offer(std::string service_id, Serve serve, std::size_t limit = kMaxRelays) {
    services_.emplace(std::move(service_id), Service{std::move(serve), limit, 0});
  }

  void open(RelayRequest request, std::function<void(std::string error)> opened) override;
  void abort(const std::string& channel_id, const std::string& reason) override;

  /// False: exec is answered with "sandbox is not ready" (not confirmed, frozen, ending).
  void set_ready(bool ready);

 private:
  struct Service {
    Serve serve;
    std::size_t limit;
    std::size_t live;  // under the mutex
  };
  struct Live {
    std::function<void()> abort;  // empty: it is being opened
    bool aborted = false;         // meanwhile
  };

  void open_exec(const std::string& channel_id);
  void open_service(const std::string& channel_id, Service& service);
  void open_ssh(const std::string& channel_id, const std::function<void(std::string error)>& opened);
  void bridge(const std::string& channel_id, std::shared_ptr<egress::ByteStream> target);
  void open_tcp(const RelayRequest& request, std::function<void(std::string error)> opened);
  /// From here on it can be aborted; it is at once, if that was said before.
  void keep(const std::string& channel_id, std::function<void()> abort);
  void forget(const std::string& channel_id);

  const std::shared_ptr<BoundaryClient> boundary_;
  const OpenRelay open_relay_;
  const DialSsh dial_ssh_;
  const std::shared_ptr<TimerThread> timers_;
  std::map<std::string, Service> services_;
  std::mutex mutex_;
  std::map<std::string, Live> live_;  // by channel
  bool ready_ = false;
};

}  // namespace openshell::supervisor
