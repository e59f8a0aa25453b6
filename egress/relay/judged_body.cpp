#include "egress/relay/judged_body.hpp"

#include <algorithm>

namespace openshell::egress {
namespace {

absl::Status too_large() { return absl::ResourceExhaustedError("request body exceeds its limit"); }

}  // namespace

Task<absl::StatusOr<std::string>> read_judged_body(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client,
                                                   const http::RequestHead& head, http::Framing framing, std::size_t limit) {
  const bool chunked = framing.kind == http::Framing::Kind::kChunked;
  if (!chunked && framing.length > limit) co_return too_large();
  if (head.minor_version == 1 && head.fields.lists("expect", "100-continue") && from_client.buffered().empty()) {
    std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const auto told = co_await client.write(std::move(go_on));
    if (!told.ok()) co_return absl::UnavailableError("the client is gone");
  }
  http::ChunkedReader chunks{http::ChunkedReader::Side::kRequest};
  std::string out;
  while (chunked ? !chunks.done() : out.size() < framing.length) {
    if (from_client.buffered().empty()) {
      relay->wait_at_most(relay->core.options.waits.body);
      const auto more = co_await from_client.fill();
      if (!more.ok() || !*more) co_return absl::UnavailableError("the client ended inside a request body");
    }
    const auto waiting = from_client.buffered();
    std::size_t used = 0;
    if (chunked) {
      const auto consumed = chunks.consume(waiting, &out);
      if (!consumed.ok()) co_return consumed.status();
      used = *consumed;
      if (out.size() > limit) co_return too_large();
    } else {
      used = static_cast<std::size_t>(std::min<std::uint64_t>(framing.length - out.size(), waiting.size()));
      out.append(waiting.substr(0, used));
    }
    from_client.consume(used);
  }
  co_return out;
}

void declare_length(http::RequestHead& head, std::size_t bytes) {
  for (const auto* name : {"transfer-encoding", "trailer", "expect"}) head.fields.remove(name);
  if (!head.fields.has("content-length")) head.fields.add("Content-Length", std::to_string(bytes));
}

}  // namespace openshell::egress
