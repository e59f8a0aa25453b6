#include <utility>

#include "egress/events.hpp"

namespace openshell::egress {
namespace {

template <class T>
void push_dropping_oldest(std::deque<T>& queue, T item, std::size_t limit, std::uint64_t& dropped) {
  if (queue.size() >= limit) {
    queue.pop_front();
    ++dropped;
  }
  queue.push_back(std::move(item));
}

template <class T>
std::vector<T> take(std::deque<T>& queue) {
  std::vector<T> out{std::make_move_iterator(queue.begin()), std::make_move_iterator(queue.end())};
  queue.clear();
  return out;
}

}  // namespace

EventQueue::EventQueue(Limits limits, absl::AnyInvocable<void()> wake) : limits_{limits}, wake_{std::move(wake)} {}

void EventQueue::emit(Event event) noexcept {
  bool wake = false;
  {
    const std::lock_guard lock{mutex_};
    if (auto* denial = std::get_if<DenialEvent>(&event)) {
      push_dropping_oldest(denials_, std::move(*denial), limits_.denials, dropped_.denials);
    } else if (auto* activity = std::get_if<ActivityEvent>(&event)) {
      push_dropping_oldest(activities_, std::move(*activity), limits_.activities, dropped_.activities);
    } else if (auto* count = std::get_if<ActivityCount>(&event)) {
      push_dropping_oldest(counts_, std::move(*count), limits_.counts, dropped_.counts);
    } else if (auto* seen = std::get_if<EndpointObservation>(&event)) {
      if (observations_.size() >= limits_.observations) {
        ++dropped_.observations;
      } else {
        observations_.push_back(std::move(*seen));
      }
    }
    wake = !std::exchange(woken_, true);
  }
  if (wake && wake_) wake_();
}

EventQueue::Batch EventQueue::drain() {
  const std::lock_guard lock{mutex_};
  woken_ = false;
  return {take(denials_), take(activities_), take(counts_), take(observations_)};
}

EventQueue::Dropped EventQueue::dropped() const {
  const std::lock_guard lock{mutex_};
  return dropped_;
}

}  // namespace openshell::egress
