#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

namespace openshell::gateway {

/// One at a time, in the order of arrival: what a mutex is to threads, for one actor's asynchronous work. Pure; used by one actor only.
/// Whoever entered calls `leave` exactly once; the next one runs inside that call.
class Gate {
 public:
  void enter(std::function<void()> work) {
    if (busy_) {
      waiting_.push_back(std::move(work));
      return;
    }
    busy_ = true;
    work();
  }

  void leave() {
    if (waiting_.empty()) {
      busy_ = false;
      return;
    }
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    next();
  }

  [[nodiscard]] bool busy() const { return busy_; }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

 private:
  std::deque<std::function<void()>> waiting_;
  bool busy_ = false;
};

}  // namespace openshell::gateway
