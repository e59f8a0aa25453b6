// A client that speaks to a proxy: one CONNECT or one absolute-form request a connection. Its name is resolved here and nowhere else, and
// nothing is dialed before the policy and every address of the name allow it (NP-03, NP-04, NP-09).
#include <fmt/format.h>

#include "egress/decisions.hpp"
#include "egress/destination/address_rules.hpp"
#include "egress/dns/names.hpp"
#include "egress/http/proxy_request.hpp"
#include "egress/http/refusal.hpp"
#include "egress/pipeline/open.hpp"
#include "egress/relay/relay.hpp"

namespace openshell::egress {
namespace {

using http::ProxyRequest;

constexpr std::chrono::seconds kProxyHeadWait{30};
constexpr std::string_view kNoCertificates = "tls_termination_unavailable";

/// An open that is refused, and what the client is told of it.
struct ProxyRefusal {
  OpenRefusal refusal;
  std::string_view code;
  std::string detail;
};

struct Call {
  std::shared_ptr<Relay> relay;
  ProxyRequest request;
  std::optional<IpAddress> literal;

  [[nodiscard]] bool tunnel() const { return request.form == ProxyRequest::Form::kConnect; }
  /// "CONNECT host:port" or "GET host:port/path": the path as far as it may be shown.
  [[nodiscard]] std::string shown() const {
    const auto where = fmt::format("{} {}:{}", request.method, request.host, request.port.value);
    if (tunnel()) return where;
    const auto target =
        request.head.substr(request.method.size() + 1, request.head.find(' ', request.method.size() + 1) - request.method.size() - 1);
    const auto path = redact_placeholders(target.substr(0, target.find('?')));
    return where + (path && !has_marker(*path) ? *path : std::string{"/[INVALID_REQUEST_TARGET]"});
  }
};

constexpr std::string_view bare(int status) {
  return status == 431 ? "HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n" : "HTTP/1.1 400 Bad Request\r\n\r\n";
}

/// The head, or the bytes to answer instead; empty: the connection just ends.
struct ReadHead {
  std::string head, answer;
};

Task<ReadHead> read_proxy_head(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client) {
  Watchdog watchdog{*relay->core.io, client};
  watchdog.arm(kProxyHeadWait);
  ReadHead out;
  while (true) {
    const auto seen = from_client.buffered().substr(0, http::kMaxProxyHeadBytes);
    if (const auto end = seen.find("\r\n\r\n"); end != std::string_view::npos) {
      out.head = seen.substr(0, end + 4);
      from_client.consume(end + 4);
      co_return out;
    }
    if (seen.size() == http::kMaxProxyHeadBytes) {
      out.answer = bare(431);
      co_return out;
    }
    const auto more = co_await from_client.fill();
    if (!more.ok() || !*more) co_return out;
  }
}

/// One atomic policy decision, as for every other open.
std::optional<ProxyRefusal> authorize(const Call& call) {
  Relay& relay = *call.relay;
  const auto connect = call.tunnel();
  const auto refused = [&](std::string reason, bool event) {
    return ProxyRefusal{{DenialKind::kPolicyDenied, std::move(reason), "policy_denied", event ? (connect ? "connect" : "forward") : "",
                         connect ? "connect_policy" : "forward_policy", false},
                        "policy_denied",
                        call.shown() + " not permitted by policy"};
  };
  if (!relay.generation || !relay.generation->matcher) {
    return refused(relay.generation ? relay.generation->quarantine_reason : "no policy is loaded", false);
  }
  relay.connection = relay.generation->matcher->connect(relay.destination());
  const bool allowed = relay.connection.allowed;
  if (const auto& sink = relay.core.options.decisions) {
    sink->decided(*relay.generation, relay.destination(), nullptr, allowed ? policy::Verdict::allow : policy::Verdict::deny);
  }
  if (allowed) return std::nullopt;
  return refused(relay.connection.reason.empty() ? "network connections not allowed by policy" : relay.connection.reason, true);
}

std::string_view failed_check(DestinationPlan::Mode mode) {
  switch (mode) {
    case DestinationPlan::Mode::kGatewayAlias:
      return "trusted-gateway check failed";
    case DestinationPlan::Mode::kAllowedIps:
    case DestinationPlan::Mode::kLiteral:
      return "allowed_ips check failed";
    case DestinationPlan::Mode::kDeclaredHost:
      return "declared endpoint check failed";
    case DestinationPlan::Mode::kPublicOnly:
      return "internal address";
  }
  return "internal address";
}

struct BadDestination {
  std::string_view what;  // that the client is told
  std::string why;        // of the log
};

/// All or nothing: one address that this endpoint may not reach refuses the request.
std::optional<BadDestination> check_all(const Relay& relay, const DestinationPlan& plan, const std::vector<IpAddress>& addresses) {
  for (const auto& address : addresses) {
    if (auto rejection = check_address(plan, relay.host, relay.port, address))
      return BadDestination{failed_check(plan.mode), rejection->text};
  }
  return std::nullopt;
}

/// By the endpoint that decides now: a new policy may have come since the last time.
std::optional<DestinationPlan> plan_of(const Relay& relay) {
  const auto* endpoint = relay.connection.deciding;
  if (endpoint == nullptr && !relay.connection.endpoints().empty()) endpoint = relay.connection.endpoints().front();
  return plan_destination(relay.host, endpoint, relay.connection.exact_declared_host, relay.generation->host_gateway_ip);
}

/// Where the name leads, judged by the endpoint that decides. Fills relay.addresses; nothing is to be made of the answer where the relay is
/// stale or closed.
Task<std::optional<BadDestination>> resolve_destination(const Call& call) {
  Relay& relay = *call.relay;
  constexpr std::string_view kNoGateway = "trusted-gateway check failed";
  auto plan = plan_of(relay);
  if (!plan) co_return BadDestination{kNoGateway, "no trusted address of the host is known"};
  std::vector<IpAddress> addresses;
  if (plan->mode == DestinationPlan::Mode::kGatewayAlias) {
    addresses = {plan->gateway};
  } else if (call.literal) {
    addresses = {*call.literal};
  } else {
    auto resolved = co_await relay.core.dns.resolve(relay.host);
    if (relay.stale || relay.closed) co_return std::nullopt;
    plan = plan_of(relay);  // of the endpoints of now: the others may be gone
    if (!plan) co_return BadDestination{kNoGateway, "no trusted address of the host is known"};
    addresses = std::move(resolved.addresses);
    if (addresses.empty())
      co_return BadDestination{"destination resolution failed",
                               fmt::format("DNS resolution returned no addresses for {}:{}", relay.host, relay.port.value)};
  }
  if (auto refused = check_all(relay, *plan, addresses)) co_return refused;
  relay.addresses = std::move(addresses);
  co_return std::nullopt;
}

/// TLS is only ended inside a tunnel, so a forwarded request needs no certificate of ours.
std::optional<ProxyRefusal> check_gates(const Call& call) {
  const Relay& relay = *call.relay;
  auto refusal = check_inspectable(relay.connection, !call.tunnel() || relay.core.leaves.available());
  if (!refusal) return std::nullopt;
  const bool unavailable = refusal->detail == kNoCertificates;
  auto detail = unavailable ? refusal->reason + "; refusing to tunnel \u2014 credential rewrite would be bypassed" : refusal->reason;
  const auto code = refusal->detail;
  return ProxyRefusal{std::move(*refusal), code, std::move(detail)};
}

std::string report(const Call& call, const ProxyRefusal& refused) {
  Relay& relay = *call.relay;
  const auto id = relay.report_denied(refused.refusal, fmt::format("{} denied: {}", call.shown(), refused.refusal.reason));
  return http::refused(refused.code == kNoCertificates ? 503 : 403, refused.code, refused.detail, id, relay.connection.policy);
}

ProxyRefusal policy_changed(const Call& call) {
  const auto what = call.tunnel() ? " not permitted because policy changed" : " not permitted by policy";
  return {{DenialKind::kPolicyDenied, "the policy changed meanwhile", "policy_stale", "", "policy_stale", false},
          "policy_denied",
          call.shown() + what};
}

ProxyRefusal bad_destination(const Call& call, BadDestination bad) {
  return {{DenialKind::kPolicyDenied, std::move(bad.why), "ssrf_denied", "ssrf", "ssrf", false},
          "ssrf_denied",
          fmt::format("{} blocked: {}", call.shown(), bad.what)};
}

/// Everything that has to hold before anything is dialed.
Task<std::optional<ProxyRefusal>> decide(const Call& call) {
  Relay& relay = *call.relay;
  if (auto refusal = authorize(call)) co_return refusal;
  relay.undecided = false;  // from here on a new policy judges it
  auto bad = co_await resolve_destination(call);
  if (relay.stale || relay.closed) co_return policy_changed(call);
  if (bad) co_return bad_destination(call, std::move(*bad));
  co_return check_gates(call);
}

/// The destination of a forwarded request, which is dialed once there is something to send: a request that its rules refuse touches nobody.
/// Where it is not reached it answers 502 itself.
class DialedLate final : public AsyncStream {
 public:
  explicit DialedLate(std::shared_ptr<Relay> relay) : relay_{std::move(relay)} {}

  Task<absl::StatusOr<std::string>> read() override {
    if (!answer_.empty()) co_return std::exchange(answer_, {});
    if (!stream_) co_return std::string{};
    co_return co_await stream_->read();
  }
  Task<absl::Status> write(std::string bytes) override {
    if (!std::exchange(dialed_, true)) co_await connect();
    if (!stream_) co_return absl::OkStatus();
    co_return co_await stream_->write(std::move(bytes));
  }
  Task<void> shutdown_write() override {
    if (stream_) co_await stream_->shutdown_write();
  }
  void reset() override {
    if (stream_) stream_->reset();
  }

 private:
  Task<void> connect() {
    Relay& relay = *relay_;
    auto dialed = co_await dial(relay.core.io, relay.addresses, relay.port, relay.core.options.dial_timeout, relay.dialing);
    if (relay.closed) co_return;
    if (!dialed.ok()) {
      log_unreachable(relay, dialed.status());
      relay.observe(EndpointResult::kTransportFailed);
      answer_ = http::refused(502, "upstream_unreachable", fmt::format("connection to {}:{} failed", relay.host, relay.port.value));
      co_return;
    }
    relay.upstream = std::move(dialed->stream);
    relay.addresses = {dialed->address};
    stream_ = std::make_unique<CarrierStream>(relay.core.io, relay.upstream);
  }

  std::shared_ptr<Relay> relay_;
  std::unique_ptr<CarrierStream> stream_;
  std::string answer_;
  bool dialed_ = false;
};

Task<void> forward(std::shared_ptr<Relay> relay, std::string head, AsyncStream& client, Reader& from_client) {
  DialedLate upstream{relay};
  Reader from_upstream{upstream};
  from_client.put_back(std::move(head));
  relay->on_stale = nullptr;
  co_await http_relay(relay, client, from_client, upstream, from_upstream, false);
}

Task<void> tunnel(std::shared_ptr<Relay> relay, const Call& call, AsyncStream& client, Reader& from_client) {
  Core& core = relay->core;
  auto dialed = co_await dial(core.io, relay->addresses, relay->port, core.options.dial_timeout, relay->dialing);
  if (relay->closed) co_return;
  std::string answer;
  if (relay->stale) {
    answer = report(call, policy_changed(call));
  } else if (!dialed.ok()) {
    log_unreachable(*relay, dialed.status());
    relay->observe(EndpointResult::kTransportFailed);
    answer = http::refused(502, "upstream_unreachable", fmt::format("connection to {}:{} failed", relay->host, relay->port.value));
  }
  if (!answer.empty()) {
    co_await answer_and_end(relay, client, from_client, std::move(answer));
    co_return;
  }
  relay->on_stale = nullptr;
  relay->upstream = std::move(dialed->stream);
  relay->addresses = {dialed->address};
  std::string established = "HTTP/1.1 200 Connection Established\r\n\r\n";
  const auto told = co_await client.write(std::move(established));
  if (!told.ok()) co_return relay->close();
  co_await carry(relay, client, from_client);
}

}  // namespace

Task<void> run_proxy_client(std::shared_ptr<Relay> relay) {
  Core& core = relay->core;
  CarrierStream client{core.io, relay->client};
  Reader from_client{client};
  auto read = co_await read_proxy_head(relay, client, from_client);
  auto request =
      read.head.empty() ? absl::StatusOr<ProxyRequest>{absl::InvalidArgumentError("no head")} : http::parse_proxy_request(read.head);
  if (!read.head.empty() && !request.ok()) read.answer = bare(400);
  if (request.ok() && request->form == ProxyRequest::Form::kHttpsUrl) {
    read.answer =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 26\r\nConnection: close\r\n\r\nUse CONNECT for HTTPS URLs";
  } else if (request.ok() && request->form == ProxyRequest::Form::kOtherScheme) {
    read.answer = http::refused(400, "unsupported_proxy_scheme", "Forward proxy requests must use http");
  }
  if (read.head.empty() && read.answer.empty()) co_return relay->close();
  if (!read.answer.empty()) {
    co_await answer_and_end(relay, client, from_client, std::move(read.answer));
    co_return;
  }
  const auto literal = IpAddress::parse(request->host);
  Call call{relay, std::move(*request), literal.ok() ? std::optional{*literal} : std::nullopt};
  relay->generation = core.current;
  relay->host = call.request.host;
  relay->port = call.request.port;
  relay->on_stale = [watched = std::weak_ptr<Relay>{relay}] {
    if (const auto one = watched.lock()) one->dialing->cancel();
  };
  auto refusal = co_await decide(call);
  if (relay->closed) co_return;
  if (refusal) {
    auto answer = report(call, *refusal);
    co_await answer_and_end(relay, client, from_client, std::move(answer));
    co_return;
  }
  ++core.counters.opens_allowed;
  if (call.tunnel()) {
    co_await tunnel(relay, call, client, from_client);
  } else {
    co_await forward(relay, std::move(call.request.head), client, from_client);
  }
}

}  // namespace openshell::egress
