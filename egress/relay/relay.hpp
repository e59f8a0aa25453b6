// One live connection of a workload, with everything that a new generation judges it by (FB-06).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "egress/core.hpp"
#include "egress/credentials/rewrite.hpp"
#include "egress/io/dialer.hpp"
#include "policy/matcher.hpp"

namespace openshell::egress {

struct OpenRefusal;
struct RequestContent;

/// The decision over a request and what it holds; `content` null: nothing beyond method, path and query.
policy::RequestDecision judge_request(const policy::Connection& connection, policy::Request request, const RequestContent* content);

/// A request that was let through and whose response is not complete.
struct OpenExchange {
  std::string method;
  std::string path;  ///< canonical, redacted
  std::vector<policy::QueryParameter> query;
  std::vector<std::pair<std::string, std::string>> credentials;  ///< key and identity
  std::shared_ptr<const RequestContent> content;
};

/// I/O thread. Kept alive by its coroutine; registered in Core while it lives.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(Core& core_in, std::shared_ptr<ByteStream> client_in) : core{core_in}, client{std::move(client_in)} {}

  Core& core;
  std::shared_ptr<const Generation> generation;
  std::string host;
  Port port;
  std::string binary;
  std::vector<std::string> ancestors;
  std::vector<std::string> cmdline_paths;
  std::int64_t pid = 0;
  policy::Connection connection;
  std::vector<IpAddress> addresses;  ///< the validated ones; one of them once connected
  std::shared_ptr<ByteStream> client;
  std::shared_ptr<ByteStream> upstream;
  std::shared_ptr<DialHandle> dialing = std::make_shared<DialHandle>();
  std::optional<OpenExchange> exchange;
  std::optional<std::pair<std::string, DenialId>> explained;  ///< a denied open that is only answered: reason and id
  bool local = false;                                         ///< to policy.local: nothing is relayed
  bool proxy = false;                                         ///< the client speaks to a proxy: its head says where to
  bool undecided = false;                                     ///< and was not read yet
  std::uint64_t progress = 0;                                 ///< chunks carried towards the workload
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();  ///< of the present wait
  Reader* unwatched = nullptr;  ///< of a client whose response is awaited: the next sweep begins to watch it
  bool idle = false;            ///< between two requests: its deadline ends it in order
  bool draining = false;        ///< this side was ended for idleness
  bool closed = false;
  bool stale = false;  ///< closed because a generation ended it
  std::optional<asio::steady_timer> half_closed;
  std::function<void()> on_stale;  ///< how a session ends that a new policy no longer admits; empty: by `close`
  std::function<void()> on_close;  ///< whoever holds more of the two sockets than the streams lets go of it

  /// Who opened it.
  void called_by(const SuppliedIdentity& identity, std::int64_t process);
  [[nodiscard]] policy::Destination destination() const { return {host, port.value, {binary, ancestors, cmdline_paths}}; }
  /// True: it goes on, and belongs to `next` from now on.
  bool judge(const std::shared_ptr<const Generation>& next);
  /// A credential scope of this connection.
  [[nodiscard]] CredentialScope scope(std::string_view path) const;
  /// Breaks both sides.
  void close();
  /// Something moved, or a wait begins: the next may take this long. Two stores: the sweep of the engine looks at all relays now and then.
  void wait_at_most(std::chrono::milliseconds limit) { deadline = std::chrono::steady_clock::now() + limit; }
  void wait_for_ever() { deadline = std::chrono::steady_clock::time_point::max(); }
  /// What the sweep does with a wait that took too long.
  void time_up();
  /// The client ended its direction: closes when kHalfClosedIdle passes without a byte towards it.
  void watch_half_closed();

  /// The policy was asked about a request of this connection: once for each call of a batch.
  void record(const policy::Request& request, policy::Verdict verdict) const;
  /// An event with everything known of this connection filled in.
  [[nodiscard]] ActivityEvent event(EventClass kind, Disposition disposition, Severity severity) const;
  void count(bool denied, std::string_view group) const;
  void observe(EndpointResult result, const policy::Endpoint* endpoint = nullptr) const;
  /// Log event, denial event, count and observation of an open that is denied.
  DenialId report_denied(const OpenRefusal& refusal, std::string message) const;
};

/// The life of a relay after its open was allowed: dial, look at the first bytes, carry.
Task<void> run_relay(std::shared_ptr<Relay> relay);
/// The life of a connection to http://policy.local.
Task<void> run_local(std::shared_ptr<Relay> relay);
/// The life of a connection of a client that speaks to a proxy.
Task<void> run_proxy_client(std::shared_ptr<Relay> relay);
/// The life of a denied open that is explained over HTTP.
Task<void> run_explained(std::shared_ptr<Relay> relay);

/// What the first bytes of a workload are.
enum class FirstBytes : std::uint8_t { kUndecided, kTls, kHttp, kHttp2, kOther };
FirstBytes classify_first_bytes(std::string_view bytes);

inline constexpr std::chrono::seconds kFirstBytesWait{30};   ///< for what could still become TLS or HTTP
inline constexpr std::chrono::seconds kAnswerWait{30};       ///< for the peer to take an answer of ours, or to end a body that nobody needs
inline constexpr std::chrono::seconds kHalfClosedIdle{120};  ///< without a byte in the direction that is left
inline constexpr std::chrono::seconds kHandshakeWait{30};
inline constexpr std::chrono::seconds kLinger{2};  ///< for the peer to take an answer in, after which it is cut

/// Parts of it.
/// From the connected upstream on: looks at the first bytes, then carries as the connection's inspection says.
Task<void> carry(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client);
/// A destination was not reached.
void log_unreachable(const Relay& relay, const absl::Status& why);
Task<void> raw_relay(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, AsyncStream& upstream, Reader& from_upstream);
Task<void> http_relay(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, AsyncStream& upstream, Reader& from_upstream,
                      bool tls);
/// A WebSocket session whose client's messages are judged, from the 101 to its end. `upgrade`: the request that opened it.
Task<void> websocket_relay(std::shared_ptr<Relay> relay, OpenExchange upgrade, AsyncStream& client, Reader& from_client,
                           AsyncStream& upstream, Reader& from_upstream, bool tls);
/// Watches a client that has nothing more to say while its response is awaited: one that breaks ends the relay at once, one that ended its
/// direction ends it when no byte comes down for a while. Not from the first moment on, since most responses come before anybody leaves.
void watch_client(const std::shared_ptr<Relay>& relay);
/// Reads until the class is known. kUndecided: the stream ended or time is up.
Task<FirstBytes> detect(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, std::chrono::milliseconds wait);
/// Ends the direction towards the peer and waits until it has had time to read what was sent.
Task<void> end_politely(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client);
/// Sends a last answer, then the same.
Task<void> answer_and_end(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, std::string response);
/// A complete request head at the front of `from_client`. nullopt: the peer ended before a byte. Errors as http::head_length has them,
/// UNAVAILABLE where the stream broke or the head did not come in time.
Task<absl::StatusOr<std::optional<std::string>>> read_head(std::shared_ptr<Relay> relay, Reader& from_client);

}  // namespace openshell::egress
