#include "actors/supervisor/log_push.hpp"

#include <absl/status/status.h>
#include <caf/all.hpp>

#include <algorithm>

#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = LogPush::stateful_pointer<LogPushState>;
using OptionsPtr = std::shared_ptr<const LogPushOptions>;

std::size_t bytes_of(const LogLine& line) {
  std::size_t bytes = line.message.size() + line.target.size() + 64;
  for (const auto& [key, value] : line.fields) bytes += key.size() + value.size() + 8;
  return bytes;
}

ActorSnapshot snapshot(const LogPushState& state, const LogPushOptions& options) {
  ActorSnapshot out;
  out.waiting = options.queue->size();
  out.summary = std::to_string(state.sent) + " lines sent, " + std::to_string(options.queue->dropped() + state.oversized) + " lost" +
                (state.disabled ? ", disabled" : "");
  return out;
}

void pump(Self self, const OptionsPtr& options);

/// Everything was handed over or can not be. What was handed over may still be on its way: the end of the stream, which the gateway says
/// after its last line, is what proves that it is there.
void finish_flush(Self self, const OptionsPtr& options) {
  auto& state = self->state;
  if (!state.flushing) return;
  if (state.connected) {
    if (!std::exchange(state.finishing, true)) options->transport->finish();
    return;
  }
  state.flushing = false;
  deliver(state.flush, absl::OkStatus());
}

void arm(Self self, std::chrono::milliseconds wait) {
  if (std::exchange(self->state.waiting, true)) return;
  self->delayed_send(self, wait, tick_atom::value);
}

/// The next batch, within its bounds; a line that no request could hold is dropped.
std::vector<LogLine> next_batch(Self self, const OptionsPtr& options) {
  auto lines = options->queue->take(options->batch_lines);
  std::vector<LogLine> batch;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto size = bytes_of(lines[i]);
    if (size > options->batch_bytes) {
      ++self->state.oversized;
      continue;
    }
    if (bytes + size > options->batch_bytes) {
      options->queue->put_back(
          {std::make_move_iterator(lines.begin() + static_cast<std::ptrdiff_t>(i)), std::make_move_iterator(lines.end())});
      break;
    }
    bytes += size;
    batch.push_back(std::move(lines[i]));
  }
  return batch;
}

void connect(Self self, const OptionsPtr& options) {
  self->state.connected = true;
  self->state.connected_at = self->clock().now();
  options->transport->connect(
      [actor = caf::actor_cast<LogPush>(self)](int code) { caf::anon_send(actor, lost_atom::value, static_cast<std::int32_t>(code)); });
}

void pump(Self self, const OptionsPtr& options) {
  auto& state = self->state;
  if (state.sending) return;
  if (state.finishing) return;  // no line is taken by this stream any more
  if (state.disabled || options->queue->size() == 0) return finish_flush(self, options);
  if (!state.connected) {
    if (state.failures > 0 && state.waiting && !state.flushing) return;  // a flush has no time for a back-off: one attempt
    connect(self, options);
  }
  auto batch = next_batch(self, options);
  if (batch.empty()) return finish_flush(self, options);
  state.sending = true;
  auto kept = std::make_shared<std::vector<LogLine>>(batch);
  options->transport->send(std::move(batch), [actor = caf::actor_cast<LogPush>(self), queue = options->queue, kept](bool sent) {
    if (!sent) queue->put_back(std::move(*kept));
    caf::anon_send(actor, reported_atom::value, static_cast<std::uint64_t>(sent ? kept->size() : 0));
  });
}

}  // namespace

LogPush::behavior_type log_push(Self self, LogPushOptions given, Reporter reporter) {
  const auto options = std::make_shared<const LogPushOptions>(std::move(given));
  self->state.reporter = std::move(reporter);
  const auto touch = [=] { self->state.reporter.touch(self, [=] { return snapshot(self->state, *options); }); };
  arm(self, options->batch_delay);
  LogPush::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state, *options)); },
      [=](wake_atom, bool urgent) {
        if (urgent) {
          pump(self, options);
        } else {
          arm(self, options->batch_delay);
        }
      },
      [=](reported_atom, std::uint64_t lines) {
        self->state.sending = false;
        self->state.sent += lines;
        if (lines > 0) pump(self, options);  // else the stream's end follows
        touch();
      },
      [=](tick_atom) {
        self->state.waiting = false;
        pump(self, options);
      },
      [=](lost_atom, std::int32_t code) {
        auto& state = self->state;
        if (code == static_cast<std::int32_t>(absl::StatusCode::kUnauthenticated)) state.disabled = true;
        state.connected = false;
        state.sending = false;
        state.finishing = false;
        finish_flush(self, options);
        if (self->clock().now() - state.connected_at >= options->healthy) state.failures = 0;
        arm(self, std::min(options->first_backoff * (1 << std::min(state.failures++, 10U)), options->longest_backoff));
        touch();
      },
      [=](stop_atom) {
        auto promise = self->make_response_promise<void>();
        self->state.flush = promise;
        self->state.flushing = true;
        pump(self, options);  // a batch that is under way goes on from `reported`
        return promise;
      },
  };
  return self->state.reporter.watch(
      self, [=] { return snapshot(self->state, *options); }, std::move(handlers));
}

}  // namespace openshell::supervisor
