// The compiled policy: answers "may this program reach this host and port" and "may it send this request" from immutable tables.
//
// One Matcher is one generation's policy. It is compiled once, then shared read-only by every thread; connect() and request() take no lock,
// do no I/O and do not allocate when the answer is yes. An error on the way (a NUL in a host, a port 0) is a denial. (NET-58, BIN-20..24,
// FB-06)
//
//   auto matcher = Matcher::compile(policy);                      // policy canonical and admitted (validate.hpp)
//   Connection c = (*matcher)->connect({host, port, binary});
//   if (!c.allowed) deny(c.reason);
//   if (c.inspection == Inspection::requests) verdict = c.request({"GET", "/v1/items", query});
#pragma once

#include <absl/container/inlined_vector.h>
#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/diagnostic.hpp"
#include "policy/proto_fwd.hpp"
#include "policy/request_content.hpp"

namespace openshell::policy {

class Arbiter;
class Arbitrated;
class Matcher;
class Connection;
struct RuleSet;       // compiled request rules of one endpoint (rules.hpp)
struct EndpointList;  // many endpoints of one place (crowd.hpp)

enum class Protocol : std::uint8_t { none, tcp, sql, rest, websocket, graphql, json_rpc, mcp };
[[nodiscard]] std::string_view to_string(Protocol protocol);
/// The five whose requests are parsed (tls: skip aside).
[[nodiscard]] constexpr bool is_inspected(Protocol protocol) { return protocol >= Protocol::rest; }

enum class TlsMode : std::uint8_t { automatic, skip };     ///< automatic: terminated where the client speaks TLS. skip: never touched.
enum class Enforcement : std::uint8_t { audit, enforce };  ///< audit: a refused request is logged and forwarded.

/// What happens to the bytes of an allowed connection.
enum class Inspection : std::uint8_t {
  raw,          ///< tcp, sql or `tls: skip`: relayed unseen.
  passthrough,  ///< No protocol: TLS terminated, HTTP destination checks, no request rules.
  requests      ///< At least one endpoint inspects: each request is judged by Connection::request.
};
[[nodiscard]] std::string_view to_string(Inspection inspection);

/// An address block of `allowed_ips`. IPv4 addresses are kept as IPv4-mapped IPv6 (RFC 4291 2.5.5.2).
struct AddressBlock {
  std::array<std::uint8_t, 16> network{};
  std::uint8_t prefix = 128;  ///< Bits of `network` that count, of 128.
  [[nodiscard]] bool contains(const std::array<std::uint8_t, 16>& address) const noexcept;
  friend bool operator==(const AddressBlock&, const AddressBlock&) = default;
};
/// Accepts `10.0.0.0/8`, `2001:db8::/32` or a bare address. INVALID_ARGUMENT `invalid CIDR/IP in allowed_ips: X`.
[[nodiscard]] absl::StatusOr<AddressBlock> parse_address_block(std::string_view text);

/// One compiled endpoint; lives as long as its Matcher. Its address is the endpoint's handle within that generation; `id()` names it across
/// generations.
struct Endpoint {
  std::string_view policy;       ///< Rule key.
  std::string_view policy_name;  ///< Display name of the rule.
  std::uint32_t index = 0;       ///< Position in the rule's list.
  std::string_view host;         ///< Lower case name, pattern or literal; empty: hostless.
  bool exact_host = false;       ///< A name or literal, no pattern, not empty.
  bool literal = false;          ///< An IP literal.
  absl::InlinedVector<std::uint16_t, 4> ports;
  Protocol protocol = Protocol::none;
  TlsMode tls = TlsMode::automatic;
  Enforcement enforcement = Enforcement::audit;
  bool carries_metadata = false;  ///< A candidate for deciding how traffic is handled; a plain L4 endpoint only authorises.
  bool advisor_proposed = false;
  bool provider_rule = false;          ///< The rule came from an attached provider.
  bool provider_credentialed = false;  ///< A provider's credential is used here.
  bool allow_uninspected_credentials = false;
  bool allow_encoded_slash = false;
  bool request_body_credential_rewrite = false;
  bool websocket_credential_rewrite = false;
  bool graphql_messages = false;          ///< websocket: text messages are GraphQL and judged by their operations.
  bool mcp_strict_tool_names = true;      ///< mcp: tool names are checked before any rule.
  std::uint32_t body_limit = 0;           ///< Bytes of a body that is read to be judged (graphql, json-rpc, mcp); 0: none is.
  std::uint32_t connection_rank = 0;      ///< Larger decides the connection (host, port, owner); dense from 1, equal specificity is equal.
  std::uint32_t request_rank = 0;         ///< Larger decides a request (the path counts too).
  std::vector<AddressBlock> allowed_ips;  ///< Non-empty: every resolved address must lie inside.
  const pb::NetworkEndpoint* source = nullptr;  ///< The message, for what is not listed here (signing, credential_binding, mcp...).
  const RuleSet* rules = nullptr;

  [[nodiscard]] bool inspects() const noexcept { return is_inspected(protocol) && tls != TlsMode::skip; }
  [[nodiscard]] bool raw() const noexcept { return tls == TlsMode::skip || protocol == Protocol::tcp || protocol == Protocol::sql; }
  [[nodiscard]] bool admits_address(const std::array<std::uint8_t, 16>& address) const noexcept;  ///< True without allowed_ips.
  /// True when request `path` (canonical form) falls under the endpoint's own `path`.
  [[nodiscard]] bool covers_path(std::string_view path) const;
  /// `policy#index`, stable while the rule keeps its place.
  [[nodiscard]] std::string id() const;
};

/// The program behind a connection. Views are borrowed for the call. The digest is no input of any rule; egress keeps it (trust on first
/// use).
struct BinaryIdentity {
  std::string_view path;                       ///< Real path of the executable; empty in relaxed mode.
  std::span<const std::string> ancestors;      ///< Executables of the ancestors, nearest first.
  std::span<const std::string> cmdline_paths;  ///< For texts only; never grants anything.
};

/// What a client wants to reach. Borrowed for the call.
struct Destination {
  std::string_view host;  ///< Lower case DNS name without final dot, or an IP literal as RFC 5952 writes it, without brackets.
  std::uint16_t port = 0;
  BinaryIdentity binary;
};

using QueryParameter = std::pair<std::string, std::string>;  ///< Decoded name and value, in order of the URL.

/// One inspected HTTP request or WebSocket message. Borrowed for the call.
struct Request {
  std::string_view method;  ///< As sent; `WEBSOCKET_TEXT` for a text message.
  std::string_view path;    ///< Canonical form, no query; of a message: that of its upgrade.
  std::span<const QueryParameter> query;
  const GraphqlContent* graphql = nullptr;  ///< Of a GraphQL request or message.
  const JsonRpcContent* jsonrpc = nullptr;  ///< Of a request to a json-rpc or mcp endpoint: one call of it.
};

/// What of a rule is compared, in the order of comparing.
enum class Field : std::uint8_t {
  none,
  host,
  port,
  binary,
  endpoint_path,  ///< the endpoint's own `path`
  method,         ///< of HTTP, JSON-RPC or MCP
  path,
  query,
  operation_type,
  operation_name,
  fields,
  persisted_query,  ///< not in the registry
  tool
};
/// The name by which a policy author knows it: `endpoint.path`, `operation_type`.
[[nodiscard]] std::string_view to_string(Field field);

/// Why nothing allowed it: the allow rule that came furthest, and the first field of it that did not fit.
struct Miss {
  const Endpoint* endpoint = nullptr;  ///< Null: no rule has even the host.
  int rule = -1;                       ///< Index in `rules` (presets in their order); -1: the endpoint itself did not fit, or has no rule.
  Field field = Field::none;
  std::string_view name;      ///< query: the parameter.
  std::size_t operation = 0;  ///< GraphQL: which operation of the request.
};

enum class Verdict : std::uint8_t {
  allow,
  audit,  ///< The rules refuse it, the deciding endpoint only audits: log and forward.
  deny,
  unsupported  ///< The deciding endpoint needs the content of the request and got none: refuse, whatever the enforcement.
};

struct RequestDecision {
  Verdict verdict = Verdict::deny;
  const Endpoint* endpoint =
      nullptr;  ///< The deciding endpoint: supplies enforcement, encoded slash, rewriting. Null: no candidate covers the path.
  Protocol protocol = Protocol::none;       ///< The deciding endpoint's.
  const Endpoint* rule_endpoint = nullptr;  ///< Whose rule allowed or denied; null where no rule matched.
  int rule = -1;                            ///< Index in `rules` (allow; access presets count in their order) or `deny_rules`, -1: none.
  bool deny_rule = false;                   ///< `rule` is a deny rule.
  std::string reason;                       ///< Empty when allowed.

  [[nodiscard]] bool forwards() const noexcept { return verdict == Verdict::allow || verdict == Verdict::audit; }
};

/// The answer to one open, and the handle by which the requests of that connection are judged. Keeps its Matcher alive. Immutable, any
/// thread.
class Connection {
 public:
  bool allowed = false;
  Inspection inspection = Inspection::raw;
  TlsMode tls = TlsMode::automatic;
  Protocol protocol = Protocol::none;  ///< Of the deciding endpoint; with Inspection::requests of the most specific one that inspects.
  bool exact_declared_host = false;  ///< A matching rule names this very host, not proposed by an advisor: private addresses are permitted.
  std::string_view policy;           ///< Smallest key of the matching rules; empty when denied.
  const Endpoint* deciding = nullptr;  ///< Supplies tls, raw or not, allowed_ips. Null: only plain L4 endpoints matched.
  std::string reason;                  ///< Why it was denied; empty when allowed.
  bool unknown_endpoint = false;       ///< Denied because no rule of any binary names host and port (else: the binary is not listed).
  Miss miss;                           ///< Of a denied one: host, port or binary.

  /// Every admitting endpoint of the matching rules, by connection_rank (largest first), then rule key, then index. Plain L4 endpoints come
  /// last.
  [[nodiscard]] std::span<const Endpoint* const> endpoints() const noexcept;
  /// Judges one request of an allowed, inspected connection. On any other connection: deny (raw) or allow (passthrough).
  [[nodiscard]] RequestDecision request(const Request& request) const;
  /// The same for a request that asks several things, `request` once with each of them (a JSON-RPC batch): the first refusal, else the last
  /// answer.
  [[nodiscard]] RequestDecision requests(Request request, std::span<const JsonRpcContent> contents) const;
  /// Why nothing allows `request`, which got `decision`; empty where something allows it or a deny rule refused it. Looks at every rule
  /// once more, so it is asked for by those who show it and not by those who relay.
  [[nodiscard]] Miss miss_of(const Request& request, const RequestDecision& decision) const;
  /// The endpoint that decides a request with this path, before anything else of the request is looked at (its allow_encoded_slash is
  /// needed for that).
  [[nodiscard]] const Endpoint* deciding_for(std::string_view canonical_path) const;
  /// True when any inspecting candidate permits `%2F` in a segment: the path is then canonicalised with it kept, and judged again by
  /// deciding_for.
  [[nodiscard]] bool may_allow_encoded_slash() const noexcept;
  /// An endpoint whose provider credential would pass unseen through this raw or unterminated connection; null when there is none.
  [[nodiscard]] const Endpoint* uninspected_credential() const noexcept;
  /// True when a live relay under `this` may go on under `next`: allowed, same tls and inspection, same handling of requests and the same
  /// address limits. Request rules may differ: the next request is judged by the new ones.
  [[nodiscard]] bool same_handling(const Connection& next) const;
  [[nodiscard]] const std::shared_ptr<const Matcher>& matcher() const noexcept { return matcher_; }

 private:
  friend class Matcher;
  void settle();
  void settle_inspection(const Endpoint* front);
  [[nodiscard]] const Endpoint* first_inspecting() const noexcept;
  bool find_denial(const Request& request, RequestDecision& out) const;
  bool find_allowance(const Request& request, RequestDecision& out) const;
  std::shared_ptr<const Matcher> matcher_;
  absl::InlinedVector<const Endpoint*, 6> endpoints_;
  std::shared_ptr<const Arbitrated> arbitrated_;  // null: the compiled rules decide
  const EndpointList* listed_ = nullptr;          // all of them, where the matcher has just this list; endpoints_ is empty then
};

struct MatcherOptions {
  bool require_binary_identity = true;  ///< false: relaxed mode, the binaries of the rules are ignored.
  /// Final targets of symlinked binary paths inside the workload's root: (path as written in the policy, target). Each adds an entry to its
  /// rules.
  std::vector<std::pair<std::string, std::string>> symlink_targets;
  std::shared_ptr<const Arbiter> arbiter;  ///< decides in place of the compiled rules; null: these do
};

class Matcher : public std::enable_shared_from_this<Matcher> {
 public:
  /// Takes a canonical, admitted policy. INVALID_ARGUMENT names the rule and endpoint that can not be compiled: the caller keeps its loaded
  /// generation.
  static absl::StatusOr<std::shared_ptr<const Matcher>> compile(const pb::SandboxPolicy& policy, const MatcherOptions& options = {});
  ~Matcher();

  /// Decides one open. A hostless endpoint admits IP literals only; whether the address lies in its allowed_ips is the destination check of
  /// egress (Endpoint::admits_address).
  [[nodiscard]] Connection connect(const Destination& destination) const;

  /// True when some endpoint names `host` (a DNS name), by name or pattern, on any port, for any binary: it may be looked up. Others never
  /// are.
  [[nodiscard]] bool knows_host(std::string_view host) const;
  /// Every endpoint that names `host`, by connection_rank: what policy DNS makes contracts of.
  [[nodiscard]] std::vector<const Endpoint*> endpoints_for(std::string_view host) const;
  [[nodiscard]] const pb::SandboxPolicy& policy() const noexcept;
  [[nodiscard]] const MatcherOptions& options() const noexcept;
  [[nodiscard]] std::span<const Endpoint> all_endpoints() const noexcept;

 private:
  struct Tables;
  explicit Matcher(std::unique_ptr<Tables> tables);
  void explain_denial(const Destination& destination, Connection& out) const;
  void arbitrate(const Destination& destination, Connection& out) const;
  std::unique_ptr<Tables> tables_;
  friend class Connection;
};

/// True for host.openshell.internal and its two synonyms: only an endpoint that names that very alias admits them.
[[nodiscard]] bool is_host_alias(std::string_view host);

}  // namespace openshell::policy
