// The supervisor's end of `openshell.actors/1`: T86b.
#include "programs/supervisor/actors_relay.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;

/// The gateway's end of a relay; it takes what is written only while it reads.
class FakeRelay final : public egress::ByteStream {
 public:
  void read(ReadDone done) override {
    std::unique_lock lock{mutex_};
    if (reset_) return lock.unlock(), done(absl::AbortedError("reset"));
    if (to_supervisor_.empty()) {
      reading_ = std::move(done);
      return;
    }
    auto bytes = std::exchange(to_supervisor_, {});
    lock.unlock();
    done(std::move(bytes));
  }
  void write(std::string bytes, WriteDone done) override {
    std::unique_lock lock{mutex_};
    if (reset_) return lock.unlock(), done(absl::AbortedError("reset"));
    writing_.emplace_back(std::move(bytes), std::move(done));
    changed_.notify_all();
  }
  void shutdown_write() override {}
  void reset() override {
    std::unique_lock lock{mutex_};
    reset_ = true;
    auto reading = std::move(reading_);
    auto writing = std::exchange(writing_, {});
    changed_.notify_all();
    lock.unlock();
    if (reading) reading(absl::AbortedError("reset"));
    for (auto& [bytes, done] : writing) done(absl::AbortedError("reset"));
  }

  void say(const actors_wire::ToSupervisor& message) { say(encode_actors_frame(message)); }
  void say(std::string bytes) {
    std::unique_lock lock{mutex_};
    if (!reading_) {
      to_supervisor_ += bytes;
      return;
    }
    auto done = std::move(reading_);
    reading_ = nullptr;
    lock.unlock();
    done(std::move(bytes));
  }
  /// The next message; nothing when none comes within `wait`.
  std::optional<actors_wire::ToGateway> take(std::chrono::milliseconds wait = 3'000ms) {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, wait, [&] { return !writing_.empty() || reset_; }) || writing_.empty()) return std::nullopt;
    auto [bytes, done] = std::move(writing_.front());
    writing_.erase(writing_.begin());
    lock.unlock();
    done(absl::OkStatus());
    ActorsFrameDecoder decoder{kMaxActorsMessage};
    actors_wire::ToGateway message;
    if (!decoder.append(bytes).ok() || !message.ParseFromString(decoder.next().value_or("x"))) return std::nullopt;
    return message;
  }
  bool ends(std::chrono::milliseconds wait = 3'000ms) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, wait, [&] { return reset_; });
  }
  /// True once something was written that nobody took.
  bool writes(std::chrono::milliseconds wait = 3'000ms) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, wait, [&] { return !writing_.empty(); });
  }
  std::size_t unsent() {
    const std::lock_guard lock{mutex_};
    return writing_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string to_supervisor_;
  ReadDone reading_;
  std::vector<std::pair<std::string, WriteDone>> writing_;
  bool reset_ = false;
};

class Relay : public testing::Test {
 protected:
  Relay() {
    sources_.epoch = 7;
    sources_.actors = [this](ActorSources::Then<ActorChanges> then) {
      ++asked_;
      ActorChanges out;
      out.whole = true;
      ActorSnapshot one;
      one.id = one.kind = "policy_poller";
      one.handled = handled_;
      out.actors = {one};
      then(out);
    };
    sources_.runtime = [this](ActorSources::Then<ActorSources::Runtime> then) {
      ++asked_runtime_;
      if (!runtime_.ok()) return then(runtime_);
      ActorSources::Runtime out;
      ActorSnapshot one;
      one.id = one.kind = "exec_registry";
      out.actors = {one};
      then(out);
    };
    sources_.inquire = [](const std::string& id, ActorSources::Then<ActorSnapshot> then) {
      ActorSnapshot one;
      one.id = id;
      id == "stuck" ? then(absl::DeadlineExceededError("the actor does not answer")) : then(one);
    };
  }
  ~Relay() override {
    if (relay_) relay_->abort();
  }
  void run(ActorsRelay::Limits limits = {.pace = 30ms, .sign_of_life = 200ms, .watch_deadline = 300ms, .stale_runtime = 100ms}) {
    relay_ = std::make_shared<ActorsRelay>(stream_, sources_, timers_, limits, [this] { ended_ = true; });
    relay_->run();
  }
  void watch(bool runtime = true) {
    actors_wire::ToSupervisor message;
    message.mutable_watch()->set_sandbox_runtime(runtime);
    stream_->say(message);
  }

  std::shared_ptr<FakeRelay> stream_ = std::make_shared<FakeRelay>();
  std::shared_ptr<TimerThread> timers_ = std::make_shared<TimerThread>();
  ActorSources sources_;
  std::shared_ptr<ActorsRelay> relay_;
  absl::Status runtime_;
  std::atomic<int> asked_{0}, asked_runtime_{0}, handled_{0};
  std::atomic<bool> ended_{false};
};

TEST_F(Relay, ACT_39_AfterWatchComesEverythingAndThenWhatChanged) {
  run();
  EXPECT_EQ(asked_, 0) << "nobody watches yet";
  watch();
  auto message = stream_->take();
  ASSERT_TRUE(message && message->has_snapshot());
  EXPECT_EQ(message->snapshot().epoch(), 7U);
  const auto first = message->snapshot().seq();
  ASSERT_EQ(message->snapshot().processes_size(), 2);
  EXPECT_EQ(message->snapshot().processes(0).kind(), actors_wire::Process::SUPERVISOR);
  EXPECT_EQ(message->snapshot().processes(0).actors(0).id(), "policy_poller");
  while (message && message->snapshot().processes_size() == 2 && message->snapshot().processes(1).actors_size() == 0)
    message = stream_->take();
  ASSERT_TRUE(message && message->snapshot().processes_size() == 2);
  EXPECT_EQ(message->snapshot().processes(1).actors(0).id(), "exec_registry");
  handled_ = 5;
  do message = stream_->take();
  while (message && message->snapshot().processes_size() == 0);
  ASSERT_TRUE(message);
  EXPECT_GT(message->snapshot().seq(), first);
  EXPECT_EQ(message->snapshot().processes(0).actors(0).handled(), 5U);
}

TEST_F(Relay, ACT_39_WithoutAChangeThereIsASignOfLife) {
  run();
  watch(false);
  auto message = stream_->take();
  ASSERT_TRUE(message);
  const auto seq = message->snapshot().seq();
  const auto begun = std::chrono::steady_clock::now();
  message = stream_->take();
  ASSERT_TRUE(message && message->has_snapshot());
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 150ms);
  EXPECT_EQ(message->snapshot().processes_size(), 0);
  EXPECT_EQ(message->snapshot().seq(), seq);
  EXPECT_EQ(asked_runtime_, 0) << "nobody asked for the sandbox";
}

TEST_F(Relay, ACT_39_AStalledReaderGetsTheNewestOnly) {
  run();
  watch(false);
  ASSERT_TRUE(stream_->writes()) << "the first message, which nobody takes yet";
  for (int i = 1; i <= 1'000; ++i) handled_ = i;
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(stream_->unsent(), 1U);
  EXPECT_EQ(asked_, 1) << "while it stalls nothing is read for it either";
  ASSERT_TRUE(stream_->take());
  const auto next = stream_->take();
  ASSERT_TRUE(next);
  ASSERT_EQ(next->snapshot().processes_size(), 2);
  EXPECT_EQ(next->snapshot().processes(0).actors(0).handled(), 1'000U);
}

TEST_F(Relay, ACT_39_NoWatchInTimeEndsIt) {
  run();
  EXPECT_TRUE(stream_->ends());
  EXPECT_TRUE(ended_);
}

TEST_F(Relay, ACT_39_WhatIsNoRequestEndsIt) {
  for (const auto& bytes : {std::string("\0\0\0\0", 4), std::string("\0\0\x10\1", 4), std::string("\0\0\0\2xx", 6)}) {
    stream_ = std::make_shared<FakeRelay>();
    run();
    stream_->say(bytes);
    EXPECT_TRUE(stream_->ends());
  }
  stream_ = std::make_shared<FakeRelay>();
  run();
  watch();
  watch();
  EXPECT_TRUE(stream_->ends()) << "twice";
  stream_ = std::make_shared<FakeRelay>();
  run();
  actors_wire::ToSupervisor early;
  early.mutable_inspect()->set_request(1);
  stream_->say(early);
  EXPECT_TRUE(stream_->ends()) << "before Watch";
}

TEST_F(Relay, ACT_39_ASandboxWithoutAnswerHasANote) {
  runtime_ = absl::UnavailableError("the sandbox is frozen");
  run();
  watch();
  auto message = stream_->take();
  while (message && (message->snapshot().processes_size() == 0 || message->snapshot().processes(1).note() == "not asked yet"))
    message = stream_->take();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->snapshot().processes(1).note(), "the sandbox is frozen");
  EXPECT_EQ(message->snapshot().processes(1).actors_size(), 0);
}

TEST_F(Relay, ACT_39_APeerThatDoesNotKnowItIsNotAskedAgain) {
  runtime_ = absl::InvalidArgumentError("unknown operation");
  run();
  watch();
  auto message = stream_->take();
  while (message && (message->snapshot().processes_size() == 0 || message->snapshot().processes(1).note() == "not asked yet"))
    message = stream_->take();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->snapshot().processes(1).note(), "introspection not offered by this boundary");
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(asked_runtime_, 1);
}

TEST_F(Relay, ACT_39_OneActorIsAskedOneAtATimeAndOneASecond) {
  run({.pace = 1'000ms, .sign_of_life = 10s, .watch_deadline = 10s});
  watch(false);
  ASSERT_TRUE(stream_->take());
  const auto ask = [&](std::uint64_t number, const std::string& actor, actors_wire::Process::Kind kind = actors_wire::Process::SUPERVISOR) {
    actors_wire::ToSupervisor message;
    message.mutable_inspect()->set_request(number);
    message.mutable_inspect()->set_process(kind);
    message.mutable_inspect()->set_actor(actor);
    stream_->say(message);
    auto answer = stream_->take();
    while (answer && !answer->has_inspected()) answer = stream_->take();
    return answer;
  };
  auto answer = ask(1, "policy_poller");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->inspected().request(), 1U);
  EXPECT_EQ(answer->inspected().actor().id(), "policy_poller");
  answer = ask(2, "policy_poller");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->inspected().error(), "one actor at a time, one a second");
  answer = ask(3, "exec_registry", actors_wire::Process::SANDBOX);
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->inspected().error().empty());
}

TEST_F(Relay, ACT_39_TheGatewaysEndEndsIt) {
  run();
  watch();
  ASSERT_TRUE(stream_->take());
  relay_->abort();
  EXPECT_TRUE(stream_->ends());
  EXPECT_TRUE(ended_);
}

}  // namespace
}  // namespace openshell::supervisor
