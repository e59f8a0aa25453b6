#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "egress/http/refusal.hpp"
#include "egress/http/target.hpp"
#include "egress/relay/relay.hpp"
#include "egress/uuid.hpp"

namespace openshell::egress {
namespace {

constexpr std::chrono::seconds kExplainFirstByte{5};
constexpr std::chrono::seconds kExplainWhole{10};

void log_plain(const Relay& relay, Severity severity, std::string message, std::string_view detail) {
  auto event = relay.event(EventClass::kNetwork, Disposition::kNone, severity);
  event.message = std::move(message);
  event.status_detail = detail;
  relay.core.events->emit(std::move(event));
}

/// Refuses what is neither TLS nor HTTP/1 where something has to be inspected.
Task<void> refuse_protocol(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, FirstBytes kind) {
  const DenialId id{new_uuid()};
  const auto* detail = kind == FirstBytes::kHttp2 ? "HTTP/2 prior-knowledge (h2c) is not supported for L7-inspected endpoints"
                                                  : "Unsupported tunnel protocol for L7-inspected endpoint";
  auto event = relay->event(EventClass::kNetwork, Disposition::kDenied, Severity::kMedium);
  event.denial_id = id;
  event.rule_type = "l7";
  event.status_detail = "unsupported_l7_protocol";
  event.message = fmt::format("CONNECT_L7 blocked unsupported tunnel protocol for {}:{}", relay->host, relay->port.value);
  relay->core.events->emit(std::move(event));
  relay->count(true, "l7_parse_rejection");
  auto response = http::refused(403, "unsupported_l7_protocol", detail, id);
  co_await answer_and_end(relay, client, from_client, std::move(response));
}

/// The handshake with upstream, under way while the workload's own goes on.
struct UpstreamHandshake {
  explicit UpstreamHandshake(asio::io_context& io) : finished{io} {}
  absl::StatusOr<std::unique_ptr<TlsStream>> stream = absl::UnknownError("");
  absl::Status status;
  Gate finished;
};

Task<void> shake_upstream(std::shared_ptr<Relay> relay, std::shared_ptr<UpstreamHandshake> state, AsyncStream& upstream) {
  Core& core = relay->core;
  state->stream = TlsStream::client(*core.io, upstream, core.upstream_tls, relay->host, relay->port, &core.upstream_sessions);
  state->status = state->stream.status();
  if (state->status.ok()) state->status = co_await (*state->stream)->handshake();
  state->finished.open();
}

/// TLS towards the workload and towards the network, then HTTP in between.
Task<void> terminate_tls(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, AsyncStream& upstream) {
  Core& core = relay->core;
  const auto leaf = core.leaves.context_for(relay->host);
  if (!leaf.ok()) {
    log_plain(*relay, Severity::kHigh, "no certificate could be made for an inspected host", "tls_termination_unavailable");
    co_return relay->close();
  }
  const auto down = TlsStream::server(*core.io, client, *leaf);
  Watchdog watchdog{*core.io, [relay] { relay->close(); }};
  watchdog.arm(kHandshakeWait);
  const auto up = std::make_shared<UpstreamHandshake>(*core.io);
  asio::co_spawn(*core.io, shake_upstream(relay, up, upstream), asio::detached);
  const auto accepted = co_await down->handshake(from_client.take());
  if (!accepted.ok()) relay->close();  // a client that does not trust the sandbox CA: no news
  co_await up->finished.wait();
  watchdog.disarm();
  if (!accepted.ok()) co_return;
  const auto& connected = up->status;
  Reader from_down{*down};
  if (!connected.ok()) {
    if (relay->closed) co_return;
    log_plain(
        *relay, Severity::kLow,
        fmt::format("Upstream TLS establishment failed for {}:{}: {}", relay->host, relay->port.value, std::string{connected.message()}),
        "upstream_tls_failed");
    relay->observe(EndpointResult::kTlsFailed);
    const auto request = co_await read_head(relay, from_down);
    if (!request.ok() || !*request) co_return relay->close();
    auto response = http::refused(502, "upstream_tls_failed", fmt::format("TLS to {}:{} failed", relay->host, relay->port.value));
    co_await answer_and_end(relay, *down, from_down, std::move(response));
    co_return;
  }
  TlsStream& network = **up->stream;
  Reader from_up{network};
  co_await http_relay(relay, *down, from_down, network, from_up, true);
}

/// The upstream stands.
void log_open(const Relay& relay) {
  const bool raw = relay.connection.inspection == policy::Inspection::raw;
  auto event = relay.event(EventClass::kNetwork, Disposition::kAllowed, Severity::kInformational);
  event.status_detail = raw ? "transparent_tcp_allowed" : "";
  event.message = fmt::format("{} allowed {}:{}", relay.connection.inspection == policy::Inspection::requests ? "CONNECT_L7" : "CONNECT",
                              relay.host, relay.port.value);
  event.fields["real_address"] = relay.addresses.front().str();
  event.fields["dial_mode"] = "direct";
  relay.core.events->emit(std::move(event));
}

}  // namespace

void log_unreachable(const Relay& relay, const absl::Status& why) {
  log_plain(relay, Severity::kLow, fmt::format("connection to {}:{} failed: {}", relay.host, relay.port.value, std::string{why.message()}),
            "upstream_unreachable");
}

Task<void> run_relay(std::shared_ptr<Relay> relay) {
  Core& core = relay->core;
  auto dialed = co_await dial(core.io, relay->addresses, relay->port, core.options.dial_timeout, relay->dialing);
  if (relay->closed) co_return;
  if (!dialed.ok()) {
    log_unreachable(*relay, dialed.status());
    relay->observe(EndpointResult::kTransportFailed);
    co_return relay->close();
  }
  relay->upstream = std::move(dialed->stream);
  relay->addresses = {dialed->address};
  CarrierStream client{core.io, relay->client};
  Reader from_client{client};
  co_await carry(relay, client, from_client);
}

Task<void> carry(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client) {
  log_open(*relay);
  CarrierStream upstream{relay->core.io, relay->upstream};
  Reader from_upstream{upstream};
  if (relay->connection.inspection == policy::Inspection::raw) {
    relay->count(false, "unknown");
    co_await raw_relay(relay, client, from_client, upstream, from_upstream);
    co_return;
  }
  const auto kind = co_await detect(relay, client, from_client, kFirstBytesWait);
  if (relay->closed) co_return;
  if (kind == FirstBytes::kTls) {
    co_await terminate_tls(relay, client, from_client, upstream);
  } else if (kind == FirstBytes::kHttp) {
    co_await http_relay(relay, client, from_client, upstream, from_upstream, false);
  } else if (kind == FirstBytes::kUndecided) {
    relay->close();
  } else if (relay->connection.inspection == policy::Inspection::requests) {
    co_await refuse_protocol(relay, client, from_client, kind);
  } else {
    co_await raw_relay(relay, client, from_client, upstream, from_upstream);
  }
}

Task<void> run_explained(std::shared_ptr<Relay> relay) {
  Core& core = relay->core;
  CarrierStream carrier{core.io, relay->client};
  Reader from_carrier{carrier};
  Watchdog whole{*core.io, [relay] { relay->close(); }};
  whole.arm(kExplainWhole);
  const auto kind = co_await detect(relay, carrier, from_carrier, kExplainFirstByte);
  AsyncStream* client = &carrier;
  std::unique_ptr<TlsStream> tls;
  std::optional<Reader> from_tls;
  if (kind == FirstBytes::kTls) {
    const auto leaf = core.leaves.context_for(relay->host);
    if (!leaf.ok()) co_return relay->close();
    tls = TlsStream::server(*core.io, carrier, *leaf);
    const auto accepted = co_await tls->handshake(from_carrier.take());
    if (!accepted.ok()) co_return relay->close();
    client = tls.get();
    from_tls.emplace(*tls);
  } else if (kind != FirstBytes::kHttp) {
    co_return relay->close();
  }
  Reader& from_client = from_tls ? *from_tls : from_carrier;
  const auto raw = co_await read_head(relay, from_client);
  if (!raw.ok() || !*raw) co_return relay->close();
  const auto head = http::parse_request_head(**raw);
  const auto target = head.ok() ? http::canonical_target(head->target, true) : absl::StatusOr<http::Target>{head.status()};
  if (!target.ok()) co_return relay->close();
  const auto path = redact_placeholders(target->path).value_or(std::string{kRedacted});
  const http::PolicyDenial denial{relay->connection.policy,
                                  "l4",
                                  relay->explained->first,
                                  head->method,
                                  path,
                                  relay->host,
                                  relay->port,
                                  relay->binary,
                                  relay->explained->second,
                                  relay->generation->agent_proposals};
  auto response = http::policy_denied(denial);
  co_await answer_and_end(relay, *client, from_client, std::move(response));
}

}  // namespace openshell::egress
