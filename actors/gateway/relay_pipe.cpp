#include "actors/gateway/relay_pipe.hpp"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace openshell::gateway {
namespace relay_internal {

/// Bytes that go one way.
struct Lane {
  std::string buffered;
  bool ended = false;
  std::function<void()> room;               // the writer that waits
  std::function<void(std::string)> reader;  // the reader that waits
  std::function<void(absl::Status)> reader_failed;
};

struct RelayShared {
  std::mutex mutex;
  Lane lanes[2];  // lanes[s]: written by side s
  bool aborted = false;
  absl::Status why;
  std::vector<std::function<void(absl::Status)>> on_abort;
};

}  // namespace relay_internal

namespace {

using relay_internal::Lane;

/// Gives a waiting reader what there is. Returns the calls to make once the lock is gone.
std::vector<std::function<void()>> settle(Lane& lane) {
  std::vector<std::function<void()>> calls;
  if (lane.reader && (!lane.buffered.empty() || lane.ended)) {
    calls.push_back(
        [reader = std::exchange(lane.reader, nullptr), bytes = std::exchange(lane.buffered, {})]() mutable { reader(std::move(bytes)); });
    lane.reader_failed = nullptr;
  }
  if (lane.room && lane.buffered.size() < kRelayBuffer) calls.push_back(std::exchange(lane.room, nullptr));
  return calls;
}

void run(std::vector<std::function<void()>> calls) {
  for (auto& call : calls) call();
}

}  // namespace

RelayEnd::RelayEnd(std::shared_ptr<relay_internal::RelayShared> shared, int side) : shared_{std::move(shared)}, side_{side} {}

RelayEnd::~RelayEnd() {
  bool ended = false;
  {
    std::lock_guard lock{shared_->mutex};
    ended = shared_->lanes[side_].ended;
  }
  if (!ended) abort(absl::UnavailableError("relay requester dropped"));
}

void RelayEnd::write(std::string bytes, std::function<void()> room) {
  std::vector<std::function<void()>> calls;
  {
    std::lock_guard lock{shared_->mutex};
    auto& lane = shared_->lanes[side_];
    if (shared_->aborted || lane.ended) return;
    lane.buffered += bytes;
    lane.room = std::move(room);
    calls = settle(lane);
  }
  run(std::move(calls));
}

void RelayEnd::end_output() {
  std::vector<std::function<void()>> calls;
  {
    std::lock_guard lock{shared_->mutex};
    auto& lane = shared_->lanes[side_];
    if (lane.ended) return;
    lane.ended = true;
    lane.room = nullptr;
    calls = settle(lane);
  }
  run(std::move(calls));
}

void RelayEnd::read(std::function<void(std::string)> then, std::function<void(absl::Status)> failed) {
  std::vector<std::function<void()>> calls;
  absl::Status why;
  {
    std::lock_guard lock{shared_->mutex};
    auto& lane = shared_->lanes[1 - side_];
    if (shared_->aborted) {
      why = shared_->why;
    } else {
      lane.reader = std::move(then);
      lane.reader_failed = std::move(failed);
      calls = settle(lane);
    }
  }
  if (!why.ok()) return failed(why);
  run(std::move(calls));
}

void RelayEnd::abort(absl::Status why) {
  if (why.ok()) why = absl::UnavailableError("relay closed");
  std::vector<std::function<void(absl::Status)>> calls;
  std::vector<std::function<void()>> dropped;  // closures are destroyed outside the lock
  {
    std::lock_guard lock{shared_->mutex};
    if (shared_->aborted) return;
    shared_->aborted = true;
    shared_->why = why;
    calls = std::exchange(shared_->on_abort, {});
    for (auto& lane : shared_->lanes) {
      if (lane.reader_failed) calls.push_back(std::exchange(lane.reader_failed, nullptr));
      if (lane.room) dropped.push_back(std::exchange(lane.room, nullptr));
      if (lane.reader) dropped.push_back([reader = std::exchange(lane.reader, nullptr)] {});
      lane.buffered.clear();
    }
  }
  for (auto& call : calls) call(why);
}

void RelayEnd::on_abort(std::function<void(absl::Status)> callback) {
  absl::Status why;
  {
    std::lock_guard lock{shared_->mutex};
    if (!shared_->aborted) {
      shared_->on_abort.push_back(std::move(callback));
      return;
    }
    why = shared_->why;
  }
  callback(why);
}

RelayPair make_relay() {
  auto shared = std::make_shared<relay_internal::RelayShared>();
  return {std::make_shared<RelayEnd>(shared, 0), std::make_shared<RelayEnd>(shared, 1)};
}

}  // namespace openshell::gateway
