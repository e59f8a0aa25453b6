#include "actors/outbox/outbox_queue.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace openshell::supervisor {

void OutboxQueue::push(PolicyStatus status) {
  if (in_memory() >= limits_.capacity) {
    ++dropped_;
    if (!drop_oldest()) return;  // there is the one in flight alone
  }
  newest_.push_back({std::move(status), ++pushes_, 0});
  given_up_ = false;
  refill();
}

bool OutboxQueue::drop_oldest() {
  auto& from = window_.size() > (in_flight_ ? 1U : 0U) ? window_ : newest_;
  const auto oldest = from.begin() + (&from == &window_ && in_flight_ ? 1 : 0);
  if (oldest == from.end()) return false;
  forget(oldest->number, oldest->seq);
  from.erase(oldest);
  return true;
}

/// The window takes what comes next as long as it has room.
void OutboxQueue::refill() {
  while (on_disk_ == 0 && !newest_.empty() && window_.size() < (journaled_ ? limits_.window : limits_.capacity)) {
    window_.push_back(std::move(newest_.front()));
    newest_.pop_front();
  }
}

std::optional<PolicyStatus> OutboxQueue::offer() {
  if (in_flight_ || backing_off_ || window_.empty()) return std::nullopt;
  if (window_.front().seq == 0 && !in_memory_) return std::nullopt;  // written first
  in_flight_ = true;
  return window_.front().status;
}

std::optional<std::uint64_t> OutboxQueue::settled() {
  assert(in_flight_ && !window_.empty());
  const auto seq = window_.front().seq;
  forget(window_.front().number, seq);
  window_.pop_front();
  in_flight_ = false;
  failures_ = 0;
  refill();
  return seq == 0 ? std::nullopt : std::optional{seq};
}

OutboxQueue::Duration OutboxQueue::failed() {
  assert(in_flight_);
  in_flight_ = false;
  backing_off_ = true;
  const auto doublings = std::min(failures_++, 20U);  // 2^20 s is beyond any cap and still fits
  return std::min(limits_.first_backoff * (1 << doublings), limits_.longest_backoff);
}

/// It leaves the queue while its write may be under way.
void OutboxQueue::forget(std::uint64_t number, std::uint64_t seq) {
  if (seq != 0) return;
  const auto place = std::find(writing_.begin(), writing_.end(), number);
  if (place != writing_.end()) settled_early_.push_back(static_cast<std::size_t>(place - writing_.begin()));
}

std::vector<PolicyStatus> OutboxQueue::take_unwritten() {
  std::vector<PolicyStatus> out;
  if (!journaled_ || given_up_ || !writing_.empty()) return out;
  for (const auto* part : {&window_, &newest_}) {
    for (const auto& entry : *part) {
      if (entry.seq != 0) continue;
      if (out.size() == limits_.batch) return out;
      writing_.push_back(entry.number);
      out.push_back(entry.status);
    }
  }
  return out;
}

OutboxQueue::Entry* OutboxQueue::find(std::uint64_t number) {
  for (auto* part : {&window_, &newest_}) {
    const auto found = std::find_if(part->begin(), part->end(), [&](const Entry& entry) { return entry.number == number; });
    if (found != part->end()) return &*found;
  }
  return nullptr;
}

std::vector<std::uint64_t> OutboxQueue::written(std::uint64_t first) {
  std::vector<std::uint64_t> done;
  for (const auto place : settled_early_) done.push_back(first + place);
  for (std::size_t i = 0; i < writing_.size(); ++i) {
    if (auto* entry = find(writing_[i])) entry->seq = first + i;
  }
  writing_.clear();
  settled_early_.clear();
  in_memory_ = false;
  // What the window has no room for need not stay in memory.
  while (!newest_.empty() && newest_.front().seq != 0) {
    if (on_disk_++ == 0) disk_first_ = newest_.front().seq;
    disk_last_ = newest_.front().seq;
    newest_.pop_front();
  }
  refill();
  return done;
}

void OutboxQueue::not_written() {
  writing_.clear();
  settled_early_.clear();
  in_memory_ = given_up_ = true;
}

void OutboxQueue::adopt(std::uint64_t first, std::uint64_t last, std::uint64_t count) {
  if (count == 0 || std::exchange(adopted_, true)) return;
  // Whatever was not offered yet follows them.
  while (window_.size() > (in_flight_ || backing_off_ ? 1U : 0U)) {
    newest_.push_front(std::move(window_.back()));
    window_.pop_back();
  }
  on_disk_ = count;
  disk_first_ = first;
  disk_last_ = last;
}

std::optional<std::uint64_t> OutboxQueue::take_missing() {
  if (on_disk_ == 0 || reading_ || window_.size() > limits_.window / 2) return std::nullopt;
  reading_ = true;
  return disk_first_;
}

void OutboxQueue::read_back(std::vector<Numbered> statuses) {
  if (!reading_) return;
  reading_ = false;
  for (auto& [seq, status] : statuses) {
    if (seq < disk_first_ || seq > disk_last_) continue;  // behind the gap: in memory
    disk_first_ = seq + 1;
    // A head that was offered before its journal could be opened is in memory and among them.
    if (std::any_of(window_.begin(), window_.end(), [seq = seq](const Entry& entry) { return entry.seq == seq; })) continue;
    window_.push_back({std::move(status), ++pushes_, seq});
    if (on_disk_ > 0) --on_disk_;
  }
  // One that was settled while it was read is counted twice: the count alone never ends the reading.
  on_disk_ = statuses.empty() || disk_first_ > disk_last_ ? 0 : std::max<std::uint64_t>(on_disk_, 1);
  refill();
}

void OutboxQueue::take_over() {
  in_flight_ = backing_off_ = false;
  failures_ = 0;
  disk_restarted();
}

void OutboxQueue::disk_restarted() {
  writing_.clear();
  settled_early_.clear();
  reading_ = given_up_ = false;
}

std::size_t OutboxQueue::unjournaled() const {
  if (!journaled_) return in_memory();
  const auto count = [](const std::deque<Entry>& part) {
    return static_cast<std::size_t>(std::count_if(part.begin(), part.end(), [](const Entry& entry) { return entry.seq == 0; }));
  };
  return count(window_) + count(newest_);
}

}  // namespace openshell::supervisor
