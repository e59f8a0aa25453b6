// A sandbox for the SSH server's tests: what it was asked for, and peers that a test drives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "programs/supervisor/ssh/peer.hpp"

namespace openshell::supervisor::test {

/// Says what the test gives it, keeps what it is sent.
class FakePeer final : public ChannelPeer {
 public:
  /// What happens with input: nothing by default; `echo` says it again and exits 0 at its end.
  explicit FakePeer(bool echo = false) : echo_{echo} {}

  void read(ReadDone done) override {
    std::unique_lock lock{mutex_};
    ++reads_;
    changed_.notify_all();
    if (output_.empty()) {
      waiting_ = std::move(done);
      return;
    }
    auto next = std::move(output_.front());
    output_.pop_front();
    lock.unlock();
    done(std::move(next));
  }
  void write(std::string bytes, WriteDone done) override {
    std::unique_lock lock{mutex_};
    input_ += bytes;
    if (hold_) {
      held_ = std::move(done);
      changed_.notify_all();
      return;
    }
    changed_.notify_all();
    lock.unlock();
    if (echo_) say({PeerOutput::Kind::output, std::move(bytes), 0});
    done(absl::OkStatus());
  }
  void close_input() override {
    {
      const std::lock_guard lock{mutex_};
      input_closed_ = true;
    }
    changed_.notify_all();
    if (echo_) say({PeerOutput::Kind::exit, {}, 0});
  }
  void resize(std::uint32_t columns, std::uint32_t rows) override {
    note([&] { sizes_.emplace_back(columns, rows); });
  }
  void signal(boundary::ProcessSignal signal) override {
    note([&] { signals_.push_back(signal); });
  }
  void close() override {
    note([&] { closed_ = true; });
  }

  void say(PeerOutput output) {
    std::unique_lock lock{mutex_};
    if (!waiting_) {
      output_.push_back(std::move(output));
      return;
    }
    auto done = std::exchange(waiting_, nullptr);
    lock.unlock();
    done(std::move(output));
  }
  void hold_writes() {
    note([&] { hold_ = true; });
  }

  /// Waits until `what` holds, 30 s at most.
  bool wait(const std::function<bool(const FakePeer&)>& what) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, std::chrono::seconds{30}, [&] { return what(*this); });
  }

  std::string input_;
  bool input_closed_ = false, closed_ = false, hold_ = false;
  int reads_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sizes_;
  std::vector<boundary::ProcessSignal> signals_;

 private:
  void note(const std::function<void()>& change) {
    {
      const std::lock_guard lock{mutex_};
      change();
    }
    changed_.notify_all();
  }

  const bool echo_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PeerOutput> output_;
  ReadDone waiting_;
  WriteDone held_;
};

class FakeWorkload final : public SshWorkload {
 public:
  using Answer = std::function<absl::StatusOr<std::shared_ptr<ChannelPeer>>(const ProcessRequest&)>;

  void start(ProcessRequest request, Opened done) override {
    Answer answer;
    {
      const std::lock_guard lock{mutex_};
      requests_.push_back(request);
      asked_.notify_all();
      answer = answer_;
    }
    done(answer ? answer(request) : absl::StatusOr<std::shared_ptr<ChannelPeer>>{std::make_shared<FakePeer>(true)});
  }
  void connect(const std::string& host, std::uint16_t port, Opened done) override {
    {
      const std::lock_guard lock{mutex_};
      targets_.push_back(host + ":" + std::to_string(port));
    }
    if (port == kClosedPort) return done(absl::UnavailableError("loopback_connect: Connection refused"));
    done(std::static_pointer_cast<ChannelPeer>(connection_));
  }
  absl::StatusOr<std::shared_ptr<ChannelPeer>> attach_main(bool read_only, const std::string& line_end) override {
    const std::lock_guard lock{mutex_};
    attached_.push_back((read_only ? "read-only" : "owner") + std::string{line_end == "\n" ? " LF" : " CRLF"});
    if (!main_) return absl::FailedPreconditionError("canonical main process already finished");
    return std::static_pointer_cast<ChannelPeer>(main_);
  }

  static constexpr std::uint16_t kClosedPort = 9;

  /// A client hears of the success before the server asks for the process: so the caller says how many it waits for, for 30 s.
  std::vector<ProcessRequest> requests(std::size_t at_least = 0) {
    std::unique_lock lock{mutex_};
    asked_.wait_for(lock, std::chrono::seconds{30}, [&] { return requests_.size() >= at_least; });
    return requests_;
  }
  std::vector<std::string> targets() {
    const std::lock_guard lock{mutex_};
    return targets_;
  }

  std::mutex mutex_;
  std::condition_variable asked_;
  Answer answer_;
  std::vector<ProcessRequest> requests_;
  std::vector<std::string> targets_, attached_;
  std::shared_ptr<FakePeer> connection_ = std::make_shared<FakePeer>();
  std::shared_ptr<FakePeer> main_;
};

}  // namespace openshell::supervisor::test
