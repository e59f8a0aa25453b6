// How many text messages are held at once, of all sessions: each may take kMaxTextBytes.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "egress/io/streams.hpp"

namespace openshell::egress::websocket {

/// I/O thread. First come, first served.
class TextAdmission {
 public:
  static constexpr std::size_t kActive = 32;   ///< messages that are being put together or written
  static constexpr std::size_t kWaiting = 64;  ///< sessions that wait for one of those places

  explicit TextAdmission(asio::io_context& io) : io_{io} {}

  /// False: the waiting room is full too. True: there is a place, which `leave` gives back.
  Task<bool> enter() {
    if (active_ < kActive) {
      ++active_;
      co_return true;
    }
    if (waiting_.size() >= kWaiting) co_return false;
    const auto turn = std::make_shared<Gate>(io_);
    waiting_.push_back(turn);
    co_await turn->wait();  // the place was handed over
    co_return true;
  }

  void leave() {
    if (waiting_.empty()) {
      --active_;
      return;
    }
    const auto next = waiting_.front();
    waiting_.pop_front();
    next->open();
  }

 private:
  asio::io_context& io_;
  std::size_t active_ = 0;
  std::deque<std::shared_ptr<Gate>> waiting_;
};

}  // namespace openshell::egress::websocket
