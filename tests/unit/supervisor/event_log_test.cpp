// The thread between the data plane and the log.
#include "programs/supervisor/event_log.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>

namespace openshell::supervisor {
namespace {

egress::ActivityEvent numbered(int number, bool denied = false) {
  egress::ActivityEvent out;
  out.message = std::to_string(number);
  if (denied) out.denial_id = DenialId{"d"};
  return out;
}

TEST(EventLog, EveryEventIsWrittenOnceAndInOrderAlsoBehindTheEnd) {
  std::vector<std::string> written;
  EventLog log{[&](const std::vector<egress::ActivityEvent>& events) {
    for (const auto& event : events) written.push_back(event.message);
  }};
  const int count = static_cast<int>(EventLog::kMaxWaiting) * 3;
  for (int i = 0; i < count; ++i) log.push(numbered(i));
  log.stop();
  log.push(numbered(count));
  ASSERT_EQ(written.size(), static_cast<std::size_t>(count) + 1);
  for (int i = 0; i <= count; ++i) ASSERT_EQ(written[static_cast<std::size_t>(i)], std::to_string(i));
}

// A writer that is slow holds its callers up; it never makes memory grow.
TEST(EventLog, NoMoreThanTheLimitWaits) {
  std::promise<void> go_on;
  auto held = go_on.get_future().share();
  std::atomic<std::size_t> largest{0};
  EventLog log{[&](const std::vector<egress::ActivityEvent>& events) {
    held.wait();
    largest = std::max(largest.load(), events.size());
  }};
  std::atomic<std::size_t> pushed{0};
  std::thread pusher{[&] {
    for (std::size_t i = 0; i < EventLog::kMaxWaiting * 3; ++i) {
      log.push(numbered(0));
      ++pushed;
    }
  }};
  // What is being written, and what waits: the pusher stands still there.
  while (pushed < EventLog::kMaxWaiting) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_LE(pushed, EventLog::kMaxWaiting * 2);
  go_on.set_value();
  pusher.join();
  log.stop();
  EXPECT_LE(largest, EventLog::kMaxWaiting);
}

TEST(EventLog, ADeniedEventDoesNotWaitForOthers) {
  std::promise<void> came;
  EventLog log{[&](const std::vector<egress::ActivityEvent>& events) {
    if (!events.back().denial_id.empty()) came.set_value();
  }};
  log.push(numbered(0));
  log.push(numbered(1, true));
  EXPECT_EQ(came.get_future().wait_for(std::chrono::seconds{5}), std::future_status::ready);
}

}  // namespace
}  // namespace openshell::supervisor
