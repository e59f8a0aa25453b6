// The data plane of the supervisor: every connection that a workload opens is decided and carried here.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egress/events.hpp"
#include "egress/generation.hpp"
#include "egress/open_intent.hpp"
#include "egress/stream.hpp"
#include "messages/values.hpp"

namespace openshell::pki {
class CertificateAuthority;
}

namespace openshell::egress {

class DecisionSink;
class LocalApi;

/// How long a relay may make no progress. There is no limit on a whole stream (decision of the L7 rows): only on silence.
struct WaitLimits {
  std::chrono::milliseconds idle_connection{300'000};  ///< between two requests of a keep-alive connection; ended in order
  std::chrono::milliseconds request_head{30'000};      ///< from the first byte of a head to its end
  std::chrono::milliseconds response{900'000};         ///< from a request to the head of its response: a model may think for long
  std::chrono::milliseconds body{3'600'000};           ///< between two pieces of a body, in either direction; server-sent events too
};

struct EngineOptions {
  std::string sandbox_id;                               ///< seeds the DNS epoch the first time
  std::string state_dir;                                ///< holds `policy-dns-epoch`; empty: epoch 0, for tests
  std::shared_ptr<const pki::CertificateAuthority> ca;  ///< the sandbox CA; null: nothing can be inspected, so only raw endpoints open
  std::vector<std::string> resolvers;       ///< `ADDRESS:PORT`, tried in order, 8 at most; empty: first nameserver of /etc/resolv.conf
  std::string additional_ca_bundle_pem;     ///< added to the upstream roots
  bool use_system_roots = true;             ///< the host's own bundle file
  bool endpoint_only_identity = false;      ///< binaries are not evaluated; set from the supervisor's own environment only
  std::size_t max_streams = 1024;           ///< live relays
  std::shared_ptr<LocalApi> local_api;      ///< what http://policy.local answers; null: nothing is there
  std::shared_ptr<DecisionSink> decisions;  ///< is told what the policy said; null: nobody
  std::chrono::milliseconds dial_timeout{10'000};
  WaitLimits waits;
};

/// What became of the live relays when a generation was published.
struct PublishReport {
  std::uint64_t number = 0;
  std::size_t kept = 0;
  std::size_t closed = 0;
};

struct EngineCounters {
  std::uint64_t opens_allowed = 0;
  std::uint64_t opens_denied = 0;
  std::uint64_t requests_allowed = 0;
  std::uint64_t requests_denied = 0;
  std::uint64_t dns_queries = 0;
  std::uint64_t bytes_up = 0;    ///< towards the network
  std::uint64_t bytes_down = 0;  ///< towards the workload
  std::size_t live_relays = 0;
  std::size_t dns_mappings = 0;
  std::size_t dns_denied_mappings = 0;
  std::uint64_t dns_denied_table_full = 0;
  std::size_t pinned_binaries = 0;
};

enum class DnsTransport : std::uint8_t { kUdp, kTcp };

/// Owns one I/O thread on which everything of the data plane runs; its public functions may be called from any thread and never block,
/// except `create`, `shutdown` and the destructor. Callbacks run on the I/O thread and must only post onwards.
class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> create(EngineOptions options, std::shared_ptr<EventSink> events);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Makes `generation` current. Every live relay is judged against it before another byte of it moves: one whose decision, inspection and
  /// credentials are unchanged goes on, every other is closed (FB-06). `done` runs after the last verdict.
  void publish(std::shared_ptr<const Generation> generation, absl::AnyInvocable<void(PublishReport)> done = nullptr);

  /// Decides one open. `decided` runs exactly once, before any byte is written to or read from `stream`. After RelayReady the engine
  /// owns the stream's life; after a denial it lets go of it without touching it, and the caller ends it.
  void open(OpenIntent intent, std::shared_ptr<ByteStream> stream, absl::AnyInvocable<void(OpenDecision)> decided);

  /// Serves a client that speaks to a proxy over `stream`: CONNECT and absolute-form requests, each decided like any other open.
  void serve_proxy_client(SuppliedIdentity identity, std::int64_t pid, std::shared_ptr<ByteStream> stream);

  /// Breaks every live relay: the channel to the sandbox is lost, and what was mediated over it ends with it (FB-12).
  void reset_relays();

  /// Runs `readable` on the I/O thread whenever `fd`, of which it keeps a duplicate, may be read, and hands it that; until it returns
  /// false. It must not block. Where no descriptor is left, `fd` is shut down.
  void watch(int fd, absl::AnyInvocable<bool(int fd)> readable);

  /// Makes a stream of a connected socket (`make_socket_stream`) and gives it over on the I/O thread, on which alone it may be used.
  void adopt_socket(int fd, absl::AnyInvocable<void(std::shared_ptr<ByteStream>)> adopted);

  /// Answers one DNS message of the workload. UDP: the bare message. TCP: with its two length bytes, as is the answer.
  /// nullopt: no answer may be given, and a TCP connection is to be closed.
  void answer(DnsTransport transport, std::string query, absl::AnyInvocable<void(std::optional<std::string>)> done);

  [[nodiscard]] EngineCounters counters() const;
  /// Resets every relay, answers pending opens with MediationUnavailable, joins the thread. Idempotent.
  void shutdown();

  class Impl;
  [[nodiscard]] Impl& impl() noexcept { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace openshell::egress
