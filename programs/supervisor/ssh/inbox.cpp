#include "programs/supervisor/ssh/inbox.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace openshell::supervisor {

Inbox::Inbox() : event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}

void Inbox::post(std::function<void()> work) {
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    work_.push_back(std::move(work));
    if (work_.size() > 1) return;
  }
  const std::uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

std::vector<std::function<void()>> Inbox::take() {
  std::uint64_t count = 0;
  (void)!::read(event_.get(), &count, sizeof count);
  const std::lock_guard lock{mutex_};
  return std::exchange(work_, {});
}

void Inbox::close() {
  std::vector<std::function<void()>> dropped;
  const std::lock_guard lock{mutex_};
  closed_ = true;
  dropped.swap(work_);
}

}  // namespace openshell::supervisor
