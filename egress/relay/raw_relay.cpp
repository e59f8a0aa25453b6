#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "egress/relay/relay.hpp"
#include "egress/relay/splice.hpp"

namespace openshell::egress {
namespace {

constexpr int kFullReads = 4;  // in a row, before a direction counts as bulk and is spliced

/// What the two directions share.
struct RawState {
  explicit RawState(Relay& relay) : watchdog{*relay.core.io, [&relay] { relay.close(); }}, done{*relay.core.io} {}
  Watchdog watchdog;  // armed once one direction has ended
  Gate done;
  std::vector<std::unique_ptr<Splice>> splices;
  bool half_closed = false;
  int left = 2;
};

/// One direction: where it reads, where it writes, and both as sockets, if they are.
struct Direction {
  Reader& from;
  AsyncStream& to;
  ByteStream* source;  // null: there is more than a socket between here and there
  ByteStream* sink;
  std::atomic<std::uint64_t>& bytes;
};

void note(RawState& state, const Direction& direction, std::size_t count) {
  if (state.half_closed) state.watchdog.arm(kHalfClosedIdle);
  direction.bytes.fetch_add(count, std::memory_order_relaxed);
}

/// The rest of a bulk direction. nullopt: it cannot be spliced.
Task<std::optional<SpliceEnd>> splice_rest(std::shared_ptr<Relay> relay, std::shared_ptr<RawState> state, Direction direction) {
  if (relay->closed) co_return SpliceEnd::kBroken;  // a read that was under way may end after the close
  if (direction.source == nullptr || direction.sink == nullptr) co_return std::nullopt;
  auto made = Splice::make(*relay->core.io, direction.source->native_socket(), direction.sink->native_socket());
  if (!made) co_return std::nullopt;
  Splice& splice = *made;
  state->splices.push_back(std::move(made));
  relay->on_close = [state] {
    for (const auto& one : state->splices) one->close();
  };
  const std::function<void(std::size_t)> moved = [&state, &direction](std::size_t count) { note(*state, direction, count); };
  const auto end = co_await splice.run(moved);
  // Its duplicates would keep the socket open behind the end of the stream, and its place is another's from here on.
  std::erase_if(state->splices, [&splice](const auto& one) { return one.get() == &splice; });
  co_return end;
}

Task<void> pump(std::shared_ptr<Relay> relay, std::shared_ptr<RawState> state, Direction direction) {
  int full = 0;
  while (true) {
    std::string chunk = direction.from.take();
    bool ended = false;
    if (chunk.empty()) {
      if (full >= kFullReads) {
        full = 0;
        const auto end = co_await splice_rest(relay, state, direction);
        if (end == SpliceEnd::kBroken) {
          relay->close();
          break;
        }
        ended = end == SpliceEnd::kSourceEnded;
      }
      if (!ended) {
        const auto more = co_await direction.from.fill();
        if (!more.ok()) {
          relay->close();
          break;
        }
        ended = !*more;
      }
      if (ended) {
        state->half_closed = true;
        state->watchdog.arm(kHalfClosedIdle);
        co_await direction.to.shutdown_write();
        break;
      }
      chunk = direction.from.take();
    }
    full = chunk.size() >= ByteStream::kMaxChunk / 2 ? full + 1 : 0;
    note(*state, direction, chunk.size());
    const auto written = co_await direction.to.write(std::move(chunk));
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
  // Otherwise TLS lies between the streams and the sockets.
  const bool plain = dynamic_cast<CarrierStream*>(&client) != nullptr && dynamic_cast<CarrierStream*>(&upstream) != nullptr;
  ByteStream* near = plain ? relay->client.get() : nullptr;
  ByteStream* far = plain ? relay->upstream.get() : nullptr;
  auto& counters = relay->core.counters;
  asio::co_spawn(*relay->core.io, pump(relay, state, Direction{from_client, upstream, near, far, counters.bytes_up}), asio::detached);
  co_await pump(relay, state, Direction{from_upstream, client, far, near, counters.bytes_down});
  co_await state->done.wait();
  relay->on_close = nullptr;  // it holds the state, and the state a watchdog of this relay
}

}  // namespace openshell::egress
