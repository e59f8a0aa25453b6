#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "egress/relay/relay.hpp"

namespace openshell::egress {
namespace {

/// What the two directions share.
struct RawState {
  explicit RawState(Relay& relay) : watchdog{*relay.core.io, [&relay] { relay.close(); }}, done{*relay.core.io} {}
  Watchdog watchdog;  // armed once one direction has ended
  Gate done;
  bool half_closed = false;
  int left = 2;
};

Task<void> pump(std::shared_ptr<Relay> relay, std::shared_ptr<RawState> state, Reader& from, AsyncStream& to,
                std::atomic<std::uint64_t>& bytes) {
  while (true) {
    std::string chunk = from.take();
    if (chunk.empty()) {
      const auto more = co_await from.fill();
      if (!more.ok()) {
        relay->close();
        break;
      }
      if (!*more) {
        state->half_closed = true;
        state->watchdog.arm(kHalfClosedIdle);
        co_await to.shutdown_write();
        break;
      }
      chunk = from.take();
    }
    if (state->half_closed) state->watchdog.arm(kHalfClosedIdle);
    bytes += chunk.size();
    const auto written = co_await to.write(std::move(chunk));
    if (!written.ok()) {
      relay->close();
      break;
    }
  }
  if (--state->left == 0) state->done.open();
}

}  // namespace

Task<void> raw_relay(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client, AsyncStream& upstream, Reader& from_upstream) {
  const auto state = std::make_shared<RawState>(*relay);
  asio::co_spawn(*relay->core.io, pump(relay, state, from_client, upstream, relay->core.counters.bytes_up), asio::detached);
  co_await pump(relay, state, from_upstream, client, relay->core.counters.bytes_down);
  co_await state->done.wait();
}

}  // namespace openshell::egress
