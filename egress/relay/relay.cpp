#include "egress/relay/relay.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "egress/decisions.hpp"
#include "egress/destination/address_rules.hpp"
#include "egress/http/head.hpp"
#include "egress/http/refusal.hpp"
#include "egress/pipeline/content.hpp"
#include "egress/pipeline/open.hpp"
#include "egress/uuid.hpp"

namespace openshell::egress {
namespace {

bool addresses_still_good(const Relay& relay, const policy::Connection& next, const Generation& generation) {
  // Every address that may be connected to, or is, must be acceptable to one of the endpoints that now admit this connection.
  return std::all_of(relay.addresses.begin(), relay.addresses.end(), [&](const IpAddress& address) {
    return std::any_of(next.endpoints().begin(), next.endpoints().end(), [&](const policy::Endpoint* endpoint) {
      const auto plan = plan_destination(relay.host, endpoint, next.exact_declared_host, generation.host_gateway_ip);
      return plan && !check_address(*plan, relay.host, relay.port, address);
    });
  });
}

std::string_view rule_type_of(const OpenRefusal& refusal) {
  if (refusal.event_stage == "ssrf" || refusal.group == "transparent_tcp_destination") return "ssrf";
  if (refusal.group == "uninspected_credentials") return "credentials";
  if (refusal.group == "tls_termination_unavailable") return "tls";
  return "opa";
}

}  // namespace

policy::RequestDecision judge_request(const policy::Connection& connection, policy::Request request, const RequestContent* content) {
  if (content == nullptr) return connection.request(request);
  if (content->graphql) request.graphql = &*content->graphql;
  return content->calls.empty() ? connection.request(request) : connection.requests(request, content->calls);
}

void Relay::called_by(const SuppliedIdentity& identity, std::int64_t process) {
  pid = process;
  const auto* known = std::get_if<ResolvedIdentity>(&identity);
  if (known == nullptr) return;
  binary = known->executable.path;
  for (const auto& ancestor : known->ancestors) ancestors.push_back(ancestor.path);
  cmdline_paths = known->cmdline_paths;
}

CredentialScope Relay::scope(std::string_view path) const {
  CredentialScope out{host, port, path, false};
  out.explicit_endpoint = !generation->gateway_global_policy &&
                          std::any_of(connection.endpoints().begin(), connection.endpoints().end(), [&](const policy::Endpoint* endpoint) {
                            return endpoint->exact_host && endpoint->inspects() && !endpoint->provider_rule &&
                                   !endpoint->advisor_proposed && endpoint->covers_path(path);
                          });
  return out;
}

bool Relay::judge(const std::shared_ptr<const Generation>& next) {
  if (undecided) return true;  // it will be asked of the policy of then
  if (closed || !next->matcher) return false;
  if (explained || local) return true;  // nothing is relayed; their own limits end them
  auto decision = next->matcher->connect(destination());
  if (!decision.allowed || !connection.same_handling(decision)) return false;
  if (!addresses_still_good(*this, decision, *next)) return false;
  const auto before = std::exchange(connection, std::move(decision));
  const auto generation_before = std::exchange(generation, next);
  if (!exchange) return true;
  const auto verdict = judge_request(connection, {exchange->method, exchange->path, exchange->query}, exchange->content.get());
  bool good = verdict.forwards();
  for (const auto& [key, identity] : exchange->credentials) {
    good = good && generation->credentials && generation->credentials->identity(key) == identity &&
           generation->credentials->allows(key, scope(exchange->path));
  }
  return good;
}

void Relay::close() {
  if (std::exchange(closed, true)) return;
  dialing->cancel();
  if (on_close) on_close();
  client->reset();
  if (upstream) upstream->reset();
}

void Relay::time_up() {
  if (!idle) return close();
  // Nothing is outstanding: the client is told so, and has a moment to end its side.
  idle = false;
  draining = true;
  wait_at_most(kLinger);
  client->shutdown_write();
}

void Relay::watch_half_closed() {
  half_closed.emplace(*core.io, kHalfClosedIdle);
  half_closed->async_wait([watched = weak_from_this(), seen = progress](const boost::system::error_code& error) {
    const auto relay = watched.lock();
    if (error || !relay || relay->closed) return;
    if (relay->progress == seen) return relay->close();
    relay->watch_half_closed();
  });
}

void Relay::record(const policy::Request& request, policy::Verdict verdict) const {
  if (core.options.decisions) core.options.decisions->decided(*generation, destination(), &request, verdict);
}

ActivityEvent Relay::event(EventClass kind, Disposition disposition, Severity severity) const {
  ActivityEvent out;
  out.event_class = kind;
  out.disposition = disposition;
  out.severity = severity;
  out.at = std::chrono::system_clock::now();
  out.host = host;
  out.port = port;
  out.binary = binary;
  out.ancestors = ancestors;
  out.pid = pid;
  out.policy = std::string{connection.policy};
  out.generation = generation ? generation->number : 0;
  return out;
}

void Relay::count(bool denied, std::string_view group) const { core.events->emit(ActivityCount{denied, std::string{group}}); }

void Relay::observe(EndpointResult result, const policy::Endpoint* endpoint) const {
  if (endpoint == nullptr) endpoint = connection.deciding;
  if (endpoint == nullptr) return;
  core.events->emit(
      EndpointObservation{std::string{endpoint->policy}, endpoint->index, host, port, result, generation ? generation->number : 0});
}

DenialId Relay::report_denied(const OpenRefusal& refusal, std::string message) const {
  const DenialId id{new_uuid()};
  ++core.counters.opens_denied;
  auto denied = event(EventClass::kNetwork, Disposition::kDenied, Severity::kMedium);
  denied.denial_id = id;
  denied.rule_type = rule_type_of(refusal);
  denied.status_detail = refusal.detail;
  denied.message = std::move(message);
  core.events->emit(std::move(denied));
  count(true, refusal.group);
  if (!refusal.event_stage.empty()) {
    DenialEvent proposal;
    proposal.id = id;
    proposal.at = std::chrono::system_clock::now();
    proposal.host = host;
    proposal.port = port;
    proposal.binary = binary.empty() ? "-" : binary;
    proposal.ancestors = ancestors;
    proposal.reason = refusal.reason;
    proposal.stage = refusal.event_stage;
    core.events->emit(std::move(proposal));
  }
  if (refusal.kind == DenialKind::kPolicyDenied) observe(EndpointResult::kPolicyDenied);
  return id;
}

FirstBytes classify_first_bytes(std::string_view bytes) {
  if (bytes.empty()) return FirstBytes::kUndecided;
  // TLS record of type handshake, version 3.0 to 3.4 (RFC 8446 section 5.1).
  if (bytes[0] == 0x16) {
    if (bytes.size() > 1 && bytes[1] != 0x03) return FirstBytes::kOther;
    if (bytes.size() > 2) return static_cast<unsigned char>(bytes[2]) <= 4 ? FirstBytes::kTls : FirstBytes::kOther;
    return FirstBytes::kUndecided;
  }
  constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const auto shown = bytes.substr(0, kPreface.size());
  if (kPreface.starts_with(shown)) return shown.size() >= 8 ? FirstBytes::kHttp2 : FirstBytes::kUndecided;
  const auto space = bytes.find(' ');
  const auto word = bytes.substr(0, space);
  if (!http::is_token(word) || word.size() > http::kMaxHeadBytes) return FirstBytes::kOther;
  return space == std::string_view::npos ? FirstBytes::kUndecided : FirstBytes::kHttp;
}

Task<FirstBytes> detect(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, std::chrono::milliseconds wait) {
  Watchdog watchdog{*relay->core.io, client};
  watchdog.arm(wait);
  while (true) {
    const auto kind = classify_first_bytes(from_client.buffered());
    if (kind != FirstBytes::kUndecided) co_return kind;
    const auto more = co_await from_client.fill();
    if (!more.ok() || !*more) co_return FirstBytes::kUndecided;
  }
}

Task<absl::StatusOr<std::optional<std::string>>> read_head(std::shared_ptr<Relay> relay, Reader& from_client) {
  const auto& waits = relay->core.options.waits;
  bool limited = false;
  while (true) {
    const auto length = http::head_length(from_client.buffered());
    if (!length.ok()) co_return length.status();
    if (*length) {
      relay->idle = false;
      std::string head{from_client.buffered().substr(0, **length)};
      from_client.consume(**length);
      co_return std::optional<std::string>{std::move(head)};
    }
    const bool begun = !from_client.buffered().empty();
    relay->idle = !begun;
    if (!begun) {
      relay->wait_at_most(waits.idle_connection);
    } else if (!std::exchange(limited, true)) {
      relay->wait_at_most(waits.request_head);
    }
    const auto more = co_await from_client.fill();
    if (!more.ok()) co_return absl::UnavailableError(std::string{more.status().message()});
    // What crossed our end of the connection is not carried out: its answer could not be written.
    if (*more && relay->draining) co_return absl::UnavailableError("the connection was idle for too long");
    if (!*more && !begun) co_return std::optional<std::string>{};
    if (!*more) co_return absl::UnavailableError("client ended inside a request head");
  }
}

Task<void> end_politely(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client) {
  Watchdog watchdog{*relay->core.io, client};
  watchdog.arm(kLinger);
  co_await client.shutdown_write();
  // Bytes that nobody reads would turn the end into a reset, which may overtake the answer.
  while (true) {
    from_client.take();
    const auto more = co_await from_client.fill();
    if (!more.ok() || !*more) co_return;
  }
}

Task<void> answer_and_end(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, std::string response) {
  Watchdog watchdog{*relay->core.io, client};
  watchdog.arm(kAnswerWait);
  const auto written = co_await client.write(std::move(response));
  watchdog.disarm();
  if (!written.ok()) co_return;
  co_await end_politely(relay, client, from_client);
}

}  // namespace openshell::egress
