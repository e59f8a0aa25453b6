// Watching processes, and telling subscribers. One thread waits for pidfds and for exit.json of every sandbox; it calls all subscribers, so
// that no two calls happen at a time.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

#include <array>

#include "drivers/process/driver_state.hpp"

namespace openshell::drivers::process {
namespace {

constexpr std::uint64_t kWakeTag = 0;
constexpr std::uint64_t kInotifyTag = ~std::uint64_t{0};

}  // namespace

Workers::Workers(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock{mutex_};
    ending_ = true;
    tasks_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::post(std::function<void()> task) {
  {
    const std::lock_guard lock{mutex_};
    if (ending_) return;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Workers::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock{mutex_};
      wake_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

class Subscription final : public Watch {
 public:
  Subscription(ProcessDriver& driver, std::uint64_t number) : driver_{driver}, number_{number} {}
  ~Subscription() override {
    const std::lock_guard lock{driver_.delivery_};
    driver_.subscribers_.erase(number_);
  }

 private:
  ProcessDriver& driver_;
  std::uint64_t number_;
};

ProcessDriver::ProcessDriver(DriverContext context, absl::Status unusable, std::vector<std::string> notes, Descriptor state_lock)
    : context_{std::move(context)},
      unusable_{std::move(unusable)},
      notes_{std::move(notes)},
      state_lock_{std::move(state_lock)},
      slots_{context_.options.slots_dir, context_.options.sandbox_uid_range, context_.files.state_dir()},
      epoll_{epoll_create1(EPOLL_CLOEXEC)},
      wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
      inotify_{inotify_init1(IN_CLOEXEC | IN_NONBLOCK)},
      workers_{kWorkerThreads} {
  for (const auto& [descriptor, tag] : {std::pair{wake_.get(), kWakeTag}, std::pair{inotify_.get(), kInotifyTag}}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
  }
  watcher_ = std::thread{[this] { watch_processes(); }};
}

ProcessDriver::~ProcessDriver() {
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [id, sandbox] : sandboxes_) {
      if (sandbox->attempt != nullptr) sandbox->attempt->cancel();
    }
  }
  ending_ = true;
  wake();
  watcher_.join();
  context_.cgroups.tidy();  // stays where a sandbox lives on
}

void ProcessDriver::wake() {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void ProcessDriver::changed(const std::string& id) {
  {
    const std::lock_guard lock{mutex_};
    changed_.insert(id);
  }
  wake();
}

void ProcessDriver::tell(PlatformEvent event, const std::string& id) {
  {
    const std::lock_guard lock{mutex_};
    if (events_.size() == kMaxQueuedEvents) events_.pop_front();
    events_.emplace_back(id, std::move(event));
  }
  wake();
}

// Processes of a generation: each end is reported once.
void ProcessDriver::follow(const std::string& id, const RunningGeneration& running) {
  for (const Descriptor* process : {&running.init, &running.supervisor, &running.monitor}) {
    if (*process) follow(id, process->get());
  }
}

void ProcessDriver::follow(const std::string& id, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  {
    const std::lock_guard lock{mutex_};
    event.data.u64 = next_followed_++;
    followed_[event.data.u64] = id;
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
}

void ProcessDriver::follow_exits(const std::string& id) {
  const int watch = inotify_add_watch(inotify_.get(), (context_.files.paths(id).state + "/driver").c_str(), IN_MOVED_TO);
  if (watch < 0) return;
  const std::lock_guard lock{mutex_};
  exit_watches_[watch] = id;
}

void ProcessDriver::watch_processes() {
  std::array<epoll_event, 64> events;
  while (!ending_) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    std::set<std::string> ids;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
      if (tag == kWakeTag) {
        std::uint64_t drained = 0;
        (void)!read(wake_.get(), &drained, sizeof drained);
      } else if (tag == kInotifyTag) {
        alignas(inotify_event) std::array<char, 16384> buffer;
        const ssize_t got = read(inotify_.get(), buffer.data(), buffer.size());
        for (ssize_t at = 0; at < got;) {
          const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
          at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
          const std::lock_guard lock{mutex_};
          const auto known = exit_watches_.find(event->wd);
          if (known == exit_watches_.end()) continue;
          if ((event->mask & IN_IGNORED) != 0)
            exit_watches_.erase(known);
          else if (std::string_view(event->name) == "exit.json")
            ids.insert(known->second);
        }
      } else {
        const std::lock_guard lock{mutex_};
        const auto known = followed_.find(tag);
        if (known == followed_.end()) continue;
        ids.insert(known->second);
        followed_.erase(known);
      }
    }
    for (const std::string& id : ids) workers_.post([this, id] { examine(id); });
    deliver();
  }
}

void ProcessDriver::deliver() {
  const std::lock_guard delivery{delivery_};
  std::vector<WatchEvent> news, everything;
  {
    const std::lock_guard lock{mutex_};
    const auto describe = [this](const std::string& id) {
      WatchEvent event;
      event.id = SandboxId{id};
      const auto found = sandboxes_.find(id);
      if (found == sandboxes_.end())
        event.deleted = true;
      else
        event.observed = observe(*found->second);
      return event;
    };
    for (const std::string& id : changed_) news.push_back(describe(id));
    changed_.clear();
    for (auto& [id, platform] : events_) {
      WatchEvent event;
      event.id = SandboxId{id};
      event.event = std::move(platform);
      news.push_back(std::move(event));
    }
    events_.clear();
    for (const auto& [id, sandbox] : sandboxes_) everything.push_back(describe(id));
  }
  for (auto& [number, subscriber] : subscribers_) {
    if (!subscriber.has_snapshot) {
      for (const WatchEvent& event : everything) subscriber.callback(event);
      subscriber.has_snapshot = true;
    }
    for (const WatchEvent& event : news) subscriber.callback(event);
  }
}

std::unique_ptr<Watch> ProcessDriver::watch(std::function<void(const WatchEvent&)> callback) {
  std::uint64_t number = 0;
  {
    const std::lock_guard delivery{delivery_};
    number = next_subscriber_++;
    subscribers_[number] = {std::move(callback), false};
  }
  wake();
  return std::make_unique<Subscription>(*this, number);
}

}  // namespace openshell::drivers::process
