#include <algorithm>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "egress/http/body.hpp"
#include "egress/http/refusal.hpp"
#include "egress/pipeline/request.hpp"
#include "egress/relay/judged_body.hpp"
#include "egress/relay/relay.hpp"

namespace openshell::egress {
namespace {

constexpr std::chrono::seconds kUnframedIdle{120};  // of a response that only its end delimits

/// One side's way through an exchange.
struct Side {
  AsyncStream& stream;
  Reader& reader;
};

enum class CopyEnd : std::uint8_t { kWhole, kMalformed, kSourceEnded, kSinkBroken };

/// Copies one body verbatim and not a byte of what follows it.
Task<CopyEnd> copy_body(Relay& relay, Reader& from, AsyncStream& to, http::Framing framing, http::ChunkedReader::Side side,
                        std::atomic<std::uint64_t>& bytes, std::uint64_t* progress = nullptr,
                        const std::function<void()>& before_last = nullptr) {
  http::ChunkedReader chunks{side};
  std::uint64_t left = framing.length;
  const bool chunked = framing.kind == http::Framing::Kind::kChunked;
  while (chunked ? !chunks.done() : left > 0) {
    if (from.buffered().empty()) {
      const auto more = co_await from.fill();
      if (!more.ok() || !*more) co_return CopyEnd::kSourceEnded;
    }
    const auto waiting = from.buffered();
    std::size_t take = 0;
    if (chunked) {
      const auto consumed = chunks.consume(waiting);
      if (!consumed.ok()) co_return CopyEnd::kMalformed;
      take = *consumed;
    } else {
      take = static_cast<std::size_t>(std::min<std::uint64_t>(left, waiting.size()));
      left -= take;
    }
    std::string piece;
    if (take == waiting.size()) {
      piece = from.take();
    } else {
      piece = waiting.substr(0, take);
      from.consume(take);
    }
    bytes.fetch_add(piece.size(), std::memory_order_relaxed);
    relay.wait_at_most(relay.core.options.waits.body);
    if (progress != nullptr) ++*progress;
    if (before_last && (chunked ? chunks.done() : left == 0)) before_last();
    const auto written = co_await to.write(std::move(piece));
    if (!written.ok()) co_return CopyEnd::kSinkBroken;
  }
  co_return CopyEnd::kWhole;
}

/// A request body on its way up while the response may already come down.
struct Upload {
  explicit Upload(asio::io_context& io) : finished{io} {}
  Gate finished;
  bool running = false;
  bool answered = false;  ///< response bytes are on their way to the client
  CopyEnd end = CopyEnd::kWhole;
};

Task<void> upload_body(std::shared_ptr<Relay> relay, std::shared_ptr<Upload> upload, Reader& from, AsyncStream& to, http::Framing framing) {
  upload->end = co_await copy_body(*relay, from, to, framing, http::ChunkedReader::Side::kRequest, relay->core.counters.bytes_up);
  upload->running = false;
  if (upload->end == CopyEnd::kWhole) {
    if (!upload->answered) relay->wait_at_most(relay->core.options.waits.response);  // counted from the end of the request
    relay->unwatched = &from;
  }
  // Upstream would wait for the rest for ever. Where nothing was answered yet, the exchange answers 400 once its wait for upstream breaks.
  if (upload->end == CopyEnd::kMalformed && !upload->answered) {
    if (relay->upstream) relay->upstream->reset();  // else it was never reached, and its answer of 502 waits
  } else if (upload->end == CopyEnd::kMalformed || upload->end == CopyEnd::kSourceEnded) {
    relay->close();
  }
  upload->finished.open();
}

void log_request(const RequestContext& context, Disposition disposition, std::string_view decision, std::string_view reason,
                 const DenialId& id, Severity severity, std::string_view rule_type, std::string_view detail) {
  const Relay& relay = context.relay;
  auto event = relay.event(EventClass::kHttp, disposition, severity);
  event.method = context.head.method;
  event.path = context.shown_path;
  event.tls = context.tls;
  event.denial_id = id;
  event.rule_type = rule_type;
  event.status_detail = detail;
  event.message = content_log_line(context, decision, reason);
  event.fields["credentials_injected"] = context.used.any() ? "true" : "false";
  relay.core.events->emit(std::move(event));
}

void log_refusal(const RequestContext& context, const RequestRefusal& refusal) {
  const Relay& relay = context.relay;
  ++relay.core.counters.requests_denied;
  if (refusal.denial_id.empty()) {
    auto event = relay.event(EventClass::kNetwork, Disposition::kDenied, refusal.severity);
    event.rule_type = refusal.rule_type;
    event.status_detail = refusal.reason;
    event.message = fmt::format("HTTP request rejected before policy evaluation for {}:{}", relay.host, relay.port.value);
    relay.core.events->emit(std::move(event));
  } else {
    log_request(context, Disposition::kDenied, "deny", refusal.reason, refusal.denial_id, refusal.severity, refusal.rule_type,
                refusal.detail);
  }
  if (refusal.severity == Severity::kHigh) {
    auto finding = relay.event(EventClass::kFinding, Disposition::kDenied, Severity::kHigh);
    finding.message = refusal.detail == "request_authority_mismatch" ? "openshell.http.request_authority_mismatch"
                                                                     : "openshell.provider_credential.endpoint_mismatch";
    finding.fields["denial_id"] = refusal.denial_id.str();
    relay.core.events->emit(std::move(finding));
  }
  relay.count(true, refusal.group);
  if (refusal.result) relay.observe(*refusal.result, context.decision.endpoint);
}

/// What the upstream's head means for the connection.
struct ResponsePlan {
  http::Framing framing;
  bool until_end = false;  ///< the end of the stream is the end of the body
  bool idle_limited = false;
};

absl::StatusOr<ResponsePlan> plan_response(http::ResponseHead& head, const std::string& method) {
  const auto framing = http::response_framing(head, method);
  if (!framing.ok()) return framing.status();
  ResponsePlan out;
  out.framing = *framing;
  if (framing->kind != http::Framing::Kind::kUntilClose) return out;
  const auto type = head.fields.first("content-type").value_or("");
  const bool events = http::equal_ignoring_case(type.substr(0, 17), "text/event-stream");
  const bool ends = head.fields.lists("connection", "close") || (head.minor_version == 0 && !head.fields.lists("connection", "keep-alive"));
  out.until_end = events || ends;
  out.idle_limited = !events;
  if (!out.until_end) out.framing = http::Framing{};  // a keep-alive response that declares no body has none
  return out;
}

/// Copies until the source ends. False: it broke instead, or paused too long.
Task<bool> copy_to_end(std::shared_ptr<Relay> relay, Reader& from, AsyncStream& upstream, AsyncStream& to, bool idle_limited) {
  Watchdog watchdog{*relay->core.io, upstream};
  while (true) {
    if (from.buffered().empty()) {
      if (idle_limited) watchdog.arm(kUnframedIdle);
      const auto more = co_await from.fill();
      if (!more.ok()) co_return false;
      if (!*more) co_return true;
    }
    auto piece = from.take();
    relay->core.counters.bytes_down.fetch_add(piece.size(), std::memory_order_relaxed);
    relay->wait_at_most(relay->core.options.waits.body);
    ++relay->progress;
    const auto written = co_await to.write(std::move(piece));
    if (!written.ok()) co_return false;
  }
}

enum class ExchangeEnd : std::uint8_t { kNext, kClose, kAbort, kUpgraded, kBadGateway };

void mask_echo(const RequestContext& context, http::ResponseHead& head) {
  if (!context.used.any() || !mask_head(head, context.used)) return;
  auto event = context.relay.event(EventClass::kFinding, Disposition::kNone, Severity::kHigh);
  event.message = "openshell.provider_credential.echoed_in_response";
  context.relay.core.events->emit(std::move(event));
}

/// Reads heads until the final one and carries the response. `context` is that of the request; `complete` runs before its last bytes are
/// written.
Task<ExchangeEnd> carry_response(std::shared_ptr<Relay> relay, const RequestContext& context, const std::string& method, Side client,
                                 Side upstream, const std::function<void()>& complete, bool& answered) {
  while (true) {
    auto length = http::head_length(upstream.reader.buffered(), "HTTP response");
    while (length.ok() && !*length) {
      const auto more = co_await upstream.reader.fill();
      if (!more.ok() || !*more) {
        length = absl::UnavailableError("upstream ended before a response");
        break;
      }
      length = http::head_length(upstream.reader.buffered(), "HTTP response");
    }
    auto head = length.ok() ? http::parse_response_head(upstream.reader.buffered().substr(0, **length))
                            : absl::StatusOr<http::ResponseHead>{length.status()};
    auto plan = head.ok() ? plan_response(*head, method) : absl::StatusOr<ResponsePlan>{head.status()};
    if (!plan.ok()) {
      if (relay->closed) co_return ExchangeEnd::kAbort;
      relay->observe(EndpointResult::kTransportFailed, context.decision.endpoint);
      co_return ExchangeEnd::kBadGateway;
    }
    upstream.reader.consume(**length);
    mask_echo(context, *head);
    if (head->status == 101 && !context.websocket_upgrade) co_return ExchangeEnd::kAbort;
    if (head->status == 101 && context.websocket && !websocket::check_accepted(*head, *context.websocket).ok()) {
      relay->observe(EndpointResult::kTransportFailed, context.decision.endpoint);
      co_return ExchangeEnd::kBadGateway;
    }
    if (plan->until_end) {
      head->fields.remove("connection");
      head->fields.add("Connection", "close");
    }
    const bool final_without_body =
        head->status / 100 != 1 && !plan->until_end && plan->framing.kind != http::Framing::Kind::kChunked && plan->framing.length == 0;
    if (final_without_body) complete();
    answered = true;
    const auto written = co_await client.stream.write(http::write_head(*head));
    if (!written.ok()) co_return ExchangeEnd::kAbort;
    if (head->status == 101) co_return ExchangeEnd::kUpgraded;
    if (head->status / 100 == 1) continue;
    relay->wait_at_most(relay->core.options.waits.body);  // also for the first piece of it
    if (relay->upstream)
      relay->observe(head->status < 400 ? EndpointResult::kHttpResponseReceived : EndpointResult::kUpstreamRejected,
                     context.decision.endpoint);
    bool whole = false;
    if (plan->until_end) {
      whole = co_await copy_to_end(relay, upstream.reader, upstream.stream, client.stream, plan->idle_limited);
    } else {
      const auto copied = co_await copy_body(*relay, upstream.reader, client.stream, plan->framing, http::ChunkedReader::Side::kResponse,
                                             relay->core.counters.bytes_down, &relay->progress, complete);
      whole = copied == CopyEnd::kWhole;
    }
    if (!whole) co_return ExchangeEnd::kAbort;  // a cut must be visible: never an invented end
    co_return plan->until_end ? ExchangeEnd::kClose : ExchangeEnd::kNext;
  }
}

void log_allowed(const RequestContext& context) {
  const Relay& relay = context.relay;
  ++relay.core.counters.requests_allowed;
  const bool audit = context.decision.verdict == policy::Verdict::audit;
  const auto decision = context.websocket_upgrade ? "allow_upgrade" : audit ? "audit" : "allow";
  log_request(context, audit ? Disposition::kAudit : Disposition::kAllowed, decision, context.decision.reason, {}, Severity::kInformational,
              rule_type_of(context), "");
  relay.count(false, "l7_policy");
}

OpenExchange pin(const RequestContext& context) {
  OpenExchange out{context.head.method, context.shown_path, context.query, {}, context.content};
  for (const auto& key : context.used.keys) out.credentials.emplace_back(key, context.relay.generation->credentials->identity(key));
  return out;
}

/// From a decided request to the end of its response.
Task<ExchangeEnd> exchange(std::shared_ptr<Relay> relay, RequestContext& context, Side client, Side upstream) {
  relay->exchange = pin(context);
  relay->wait_at_most(relay->core.options.waits.response);
  relay->core.counters.bytes_up.fetch_add(context.body.size(), std::memory_order_relaxed);
  std::string bytes = http::write_head(context.head);
  bytes += std::exchange(context.body, {});  // the response may last for long
  const auto sent = co_await upstream.stream.write(std::move(bytes));
  // Said while upstream works on it.
  log_allowed(context);
  if (!sent.ok()) co_return ExchangeEnd::kAbort;
  const auto upload = std::make_shared<Upload>(*relay->core.io);
  if (context.framing.kind == http::Framing::Kind::kChunked || context.framing.length > 0) {
    upload->running = true;
    asio::co_spawn(*relay->core.io, upload_body(relay, upload, client.reader, upstream.stream, context.framing), asio::detached);
  } else {
    relay->unwatched = &client.reader;
  }
  // With its last bytes on their way a request is over: a policy that no longer allows it has nothing left to cut.
  const std::function<void()> complete = [&] {
    if (!upload->running) relay->exchange.reset();
  };
  auto end = co_await carry_response(relay, context, context.head.method, client, upstream, complete, upload->answered);
  if (end == ExchangeEnd::kBadGateway) {
    std::string answer;
    if (upload->end == CopyEnd::kMalformed) {
      auto refusal = malformed_request(absl::InvalidArgumentError("chunked request body is malformed"));
      log_refusal(context, refusal);
      answer = std::move(refusal.response);
    } else {
      answer = http::refused(502, "upstream_invalid_response", "upstream sent no valid HTTP response");
    }
    const auto told = co_await client.stream.write(std::move(answer));
    end = told.ok() ? ExchangeEnd::kClose : ExchangeEnd::kAbort;
  }
  if (upload->running) {
    // The response is complete, or there is none; the rest of the body concerns nobody for longer than a moment.
    if (end == ExchangeEnd::kAbort) {
      relay->close();
    } else {
      Watchdog watchdog{*relay->core.io, [relay] { relay->close(); }};
      watchdog.arm(kAnswerWait);
      co_await upload->finished.wait();
    }
    co_await upload->finished.wait();
  }
  if (upload->end != CopyEnd::kWhole && end == ExchangeEnd::kNext) end = ExchangeEnd::kClose;
  relay->unwatched = nullptr;
  relay->exchange.reset();
  co_return end;
}

/// The stages behind the head, after as much of the body as they need. Closes the relay where the client broke off.
Task<std::optional<RequestRefusal>> read_body_and_decide(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client,
                                                         RequestContext& context) {
  if (const auto limit = body_to_judge(context)) {
    auto body = co_await read_judged_body(relay, client, from_client, context.head, context.framing, *limit);
    if (!body.ok() && absl::IsUnavailable(body.status())) {
      relay->close();
      co_return std::nullopt;
    }
    if (!body.ok() && absl::IsInvalidArgument(body.status())) {
      co_return malformed_request(absl::InvalidArgumentError("chunked request body is malformed"));
    }
    if (!body.ok()) co_return body_too_large(context, *limit);
    context.body = std::move(*body);
    context.framing = {};
    declare_length(context.head, context.body.size());
  }
  co_return decide_request(context);
}

Task<void> http_loop(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, AsyncStream& upstream, Reader& from_upstream,
                     bool tls) {
  // A connection on its way to its end has bounds of its own.
  const auto forget = [&relay] { relay->wait_for_ever(); };
  while (true) {
    auto raw = co_await read_head(relay, from_client);
    RequestContext context{*relay, tls, {}, {}, {}, {}, {}, {}, false, {}, false, false, {}, {}, {}};
    std::optional<RequestRefusal> refusal;
    if (!raw.ok() && absl::IsUnavailable(raw.status())) co_return relay->close();
    if (raw.ok() && !*raw) break;
    auto head = raw.ok() ? http::parse_request_head(**raw) : absl::StatusOr<http::RequestHead>{raw.status()};
    if (head.ok()) {
      context.head = std::move(*head);
      refusal = decide_head(context);
      if (!refusal) refusal = co_await read_body_and_decide(relay, client, from_client, context);
      if (relay->closed) co_return;
    } else {
      refusal = malformed_request(head.status());
    }
    if (refusal) {
      forget();
      log_refusal(context, *refusal);
      co_await answer_and_end(relay, client, from_client, std::move(refusal->response));
      co_return;
    }
    if (!from_upstream.buffered().empty()) co_return relay->close();  // an answer to no question would become one to the next
    const auto end = co_await exchange(relay, context, Side{client, from_client}, Side{upstream, from_upstream});
    if (end == ExchangeEnd::kUpgraded) {
      relay->wait_for_ever();
      if (context.websocket) {
        co_await websocket_relay(relay, pin(context), client, from_client, upstream, from_upstream, tls);
        co_return;
      }
      co_await raw_relay(relay, client, from_client, upstream, from_upstream);
      co_return;
    }
    if (end == ExchangeEnd::kAbort) co_return relay->close();
    if (end == ExchangeEnd::kClose || context.close_after) break;
  }
  forget();
  co_await upstream.shutdown_write();
  co_await end_politely(relay, client, from_client);
}

}  // namespace

void watch_client(const std::shared_ptr<Relay>& relay) {
  auto* client = std::exchange(relay->unwatched, nullptr);
  if (client == nullptr) return;
  client->read_ahead(*relay->core.io, [relay](bool broken) {
    if (broken) return relay->close();
    relay->watch_half_closed();
  });
}

Task<void> http_relay(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, AsyncStream& upstream, Reader& from_upstream,
                      bool tls) {
  co_await http_loop(relay, client, from_client, upstream, from_upstream, tls);
  if (from_client.reading_ahead()) relay->close();
  co_await from_client.settle();
}

}  // namespace openshell::egress
