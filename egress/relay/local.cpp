// One request of a workload to http://policy.local: read, checked, given to the local service, answered. Nothing is dialed.
#include <boost/asio/post.hpp>

#include "egress/dns/names.hpp"
#include "egress/http/body.hpp"
#include "egress/http/head.hpp"
#include "egress/http/refusal.hpp"
#include "egress/local_api.hpp"
#include "egress/relay/relay.hpp"

namespace openshell::egress {
namespace {

constexpr std::chrono::seconds kBodyWait{15};
constexpr std::size_t kMaxLocalCalls = 64;  ///< requests that are being answered, of the whole sandbox
constexpr Port kHttp{80};

/// What the service answered, or nobody waits any more.
struct Awaited {
  explicit Awaited(asio::io_context& io) : ready{io} {}
  Gate ready;
  std::optional<LocalResponse> response;
};

std::string refusal(int status, std::string_view code, std::string_view detail) { return http::refused(status, code, detail); }

/// Why a head is no request to this service; empty: it is one.
std::string head_fault(const http::RequestHead& head) {
  if (!head.target.starts_with('/') || head.target.starts_with("//"))
    return refusal(400, "invalid_policy_local_scheme", "Use http://policy.local only");
  const auto hosts = head.fields.values("host");
  const auto authority = hosts.size() == 1 ? http::parse_authority(hosts.front())
                                           : absl::StatusOr<http::Authority>{absl::InvalidArgumentError("no single Host")};
  if (!authority.ok() || authority->host != dns::kPolicyLocalName || authority->port.value_or(kHttp) != kHttp)
    return refusal(400, "invalid_http_request", "a request to policy.local has exactly one Host, policy.local");
  return {};
}

/// Bytes of the body, or why there is none.
absl::StatusOr<std::size_t> body_length(const http::RequestHead& head) {
  const auto framing = http::request_framing(head);
  if (!framing.ok()) return framing.status();
  if (framing->kind == http::Framing::Kind::kChunked)
    return absl::InvalidArgumentError("the length of a body is given by Content-Length here");
  if (framing->length > LocalRequest::kMaxBodyBytes) return absl::ResourceExhaustedError("a body has at most 65536 bytes");
  return static_cast<std::size_t>(framing->length);
}

Task<bool> read_body(std::shared_ptr<Relay> relay, Reader& from_client, std::size_t length, std::string& body) {
  relay->wait_at_most(kBodyWait);
  while (from_client.buffered().size() < length) {
    const auto more = co_await from_client.fill();
    if (!more.ok() || !*more) co_return false;
  }
  body = from_client.buffered().substr(0, length);
  from_client.consume(length);
  co_return true;
}

Task<std::string> ask(std::shared_ptr<Relay> relay, Reader& from_client, LocalRequest request) {
  Core& core = relay->core;
  const auto awaited = std::make_shared<Awaited>(*core.io);
  relay->wait_for_ever();  // the service has bounds of its own
  relay->on_close = [awaited] { awaited->ready.open(); };
  core.options.local_api->handle(std::move(request), relay, [io = core.io, awaited](LocalResponse response) {
    asio::post(*io, [awaited, response = std::move(response)]() mutable {
      awaited->response = std::move(response);
      awaited->ready.open();
    });
  });
  from_client.read_ahead(*core.io, [relay](bool broken) {
    if (broken) relay->close();
  });
  co_await awaited->ready.wait();
  relay->on_close = nullptr;
  co_return awaited->response ? http::answered(awaited->response->status, awaited->response->json) : std::string{};
}

}  // namespace

Task<void> run_local(std::shared_ptr<Relay> relay) {
  Core& core = relay->core;
  CarrierStream client{core.io, relay->client};
  Reader from_client{client};
  const auto raw = co_await read_head(relay, from_client);
  if (raw.ok() ? !*raw : absl::IsUnavailable(raw.status())) co_return relay->close();
  const auto head = raw.ok() ? http::parse_request_head(**raw) : absl::StatusOr<http::RequestHead>{raw.status()};
  std::string answer;
  if (!head.ok()) {
    answer = refusal(400, "invalid_http_request", std::string{head.status().message()});
  } else if (answer = head_fault(*head); answer.empty()) {
    const auto length = body_length(*head);
    if (!length.ok()) {
      const bool large = absl::IsResourceExhausted(length.status());
      answer = refusal(large ? 413 : 400, large ? "body_too_large" : "invalid_body", std::string{length.status().message()});
    } else if (core.local_calls >= kMaxLocalCalls) {
      answer = refusal(503, "busy", "too many requests to policy.local are being answered");
    } else {
      LocalRequest request;
      request.method = head->method;
      const auto query = head->target.find('?');
      request.path = head->target.substr(0, query);
      if (query != std::string::npos) request.query = head->target.substr(query + 1);
      request.binary = relay->binary;
      if (head->fields.lists("expect", "100-continue") && *length > 0) {
        std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        const auto told = co_await client.write(std::move(go_on));
        if (!told.ok()) co_return relay->close();
      }
      ++core.local_calls;
      const bool whole = co_await read_body(relay, from_client, *length, request.body);
      if (whole) {
        answer = co_await ask(relay, from_client, std::move(request));
      } else if (!relay->closed) {
        answer = refusal(400, "invalid_body", "the body ended before its Content-Length");
      }
      --core.local_calls;
    }
  }
  if (!relay->closed && !answer.empty()) {
    relay->wait_at_most(kAnswerWait);
    co_await answer_and_end(relay, client, from_client, std::move(answer));
  }
  if (from_client.reading_ahead()) relay->close();
  co_await from_client.settle();
}

}  // namespace openshell::egress
