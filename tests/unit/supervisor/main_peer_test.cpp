#include "programs/supervisor/ssh/main_peer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace openshell::supervisor {
namespace {

const std::string kDetach = "\x10\x11";

std::string fed(DetachFilter& filter, const std::string& bytes, bool* detach = nullptr) {
  auto result = filter.feed(bytes);
  if (detach != nullptr) *detach = result.detach;
  return result.forward;
}

TEST(DetachFilter, FindsThePairAlsoAcrossPieces) {
  DetachFilter filter;
  bool detach = false;
  EXPECT_EQ(fed(filter, "ls\n" + kDetach + "rest", &detach), "ls\n");
  EXPECT_TRUE(detach);
  EXPECT_EQ(fed(filter, "a\x10", &detach), "a");
  EXPECT_FALSE(detach);
  EXPECT_EQ(fed(filter, "\x11more", &detach), "");
  EXPECT_TRUE(detach);
}

TEST(DetachFilter, AnotherKeyBehindCtrlPForwardsBoth) {
  DetachFilter filter;
  EXPECT_EQ(fed(filter, "\x10x"), "\x10x");
  EXPECT_EQ(fed(filter, "\x10"), "") << "held back until the next key";
  EXPECT_EQ(fed(filter, "\x10"), "\x10") << "the second one is pending now";
  bool detach = false;
  EXPECT_EQ(fed(filter, "\x11", &detach), "");
  EXPECT_TRUE(detach);
  EXPECT_EQ(fed(filter, "\x11\x03"), "\x11\x03") << "Ctrl-Q alone and Ctrl-C are keys like others";
}

/// Main with one lease, shared by the followers of a test.
struct FakeMain {
  const void* owner = nullptr;
  std::string typed;
  bool full = false;
};

class FakeFollower final : public MainFollower {
 public:
  explicit FakeFollower(std::shared_ptr<FakeMain> main) : main_{std::move(main)} {}
  void read(ReadDone done) override { waiting = std::move(done); }
  absl::Status acquire_input() override {
    if (main_->owner != nullptr && main_->owner != this)
      return absl::FailedPreconditionError("canonical main process already has an input owner");
    main_->owner = this;
    return absl::OkStatus();
  }
  void release_input() override {
    if (main_->owner == this) main_->owner = nullptr;
  }
  bool owns_input() const override { return main_->owner == this; }
  void write(std::string bytes, WriteDone done) override {
    if (main_->full) return done(absl::ResourceExhaustedError("canonical stdin buffer is full"));
    main_->typed += bytes;
    done(absl::OkStatus());
  }
  void resize(std::uint32_t, std::uint32_t) override {}
  void signal(boundary::ProcessSignal) override {}
  void detach() override {
    release_input();
    detached = true;
    if (waiting) std::exchange(waiting, nullptr)(absl::CancelledError("detached"));
  }

  ReadDone waiting;
  bool detached = false;

 private:
  const std::shared_ptr<FakeMain> main_;
};

class MainPeerTest : public ::testing::Test {
 protected:
  struct Attached {
    std::shared_ptr<MainPeer> peer;
    FakeFollower* follower;
  };
  Attached attach(bool read_only = false, const std::string& line_end = "\n") {
    auto follower = std::make_unique<FakeFollower>(main_);
    auto* raw = follower.get();
    return {MainPeer::make(std::move(follower), read_only, line_end), raw};
  }
  /// What the client would see next, or "-" when there is nothing yet.
  static std::string next(MainPeer& peer) {
    auto text = std::make_shared<std::string>("-");
    peer.read([text](PeerOutput output) {
      switch (output.kind) {
        case PeerOutput::Kind::output:
          *text = "out:" + output.bytes;
          break;
        case PeerOutput::Kind::error_output:
          *text = "err:" + output.bytes;
          break;
        case PeerOutput::Kind::exit:
          *text = "exit:" + std::to_string(output.code);
          break;
        default:
          *text = "broken";
      }
    });
    return *text;
  }
  static void type(MainPeer& peer, const std::string& bytes) {
    bool done = false;
    peer.write(bytes, [&](const absl::Status& status) { done = status.ok(); });
    EXPECT_TRUE(done);
  }

  std::shared_ptr<FakeMain> main_ = std::make_shared<FakeMain>();
  const std::string kViewer = "err:openshell: canonical main process already has an input owner; attached read-only; press Ctrl-C to exit";
};

TEST_F(MainPeerTest, CX_07_TheFirstOwnsTheInputAndTheSecondIsToldThatItDoesNot) {
  auto owner = attach(), viewer = attach(false, "\r\n");
  EXPECT_EQ(next(*viewer.peer), kViewer + "\r\n");
  type(*owner.peer, "ls\n");
  type(*viewer.peer, "rm\n");
  EXPECT_EQ(main_->typed, "ls\n");
}

TEST_F(MainPeerTest, ThePairDetachesTheOwnerBehindWhatWasTyped) {
  auto owner = attach();
  type(*owner.peer, "ls\n" + kDetach + "never");
  EXPECT_EQ(main_->typed, "ls\n");
  EXPECT_EQ(next(*owner.peer), "exit:0");
  EXPECT_EQ(main_->owner, nullptr);
}

TEST_F(MainPeerTest, CtrlCOfTheOwnerIsForwardedAndOfAViewerClosesOnlyIt) {
  auto owner = attach(), viewer = attach();
  type(*owner.peer, "\x03");
  EXPECT_EQ(main_->typed, "\x03");
  EXPECT_EQ(next(*viewer.peer), kViewer + "\n");
  type(*viewer.peer,
       "abc\x03"
       "def");
  EXPECT_EQ(next(*viewer.peer), "exit:0");
  EXPECT_EQ(main_->typed, "\x03");
  EXPECT_TRUE(owner.follower->owns_input());
}

TEST_F(MainPeerTest, AViewerTakesAFreeLeaseWithItsFirstBytesUnlessItWantedNone) {
  auto owner = attach(), viewer = attach(), silent = attach(true);
  EXPECT_EQ(next(*viewer.peer), kViewer + "\n");
  type(*viewer.peer, "lost\n");
  owner.peer->close_input();
  type(*silent.peer, "nothing\n");
  EXPECT_EQ(main_->typed, "");
  type(*viewer.peer, "id\n");
  EXPECT_EQ(next(*viewer.peer), "err:openshell: input enabled\n");
  EXPECT_EQ(main_->typed, "id\n");
  type(*owner.peer, "late\n");
  EXPECT_EQ(main_->typed, "id\n") << "a healthy owner is never displaced";
}

TEST_F(MainPeerTest, TheExitAndALaggingFollowerAndAFullBufferAreSaid) {
  auto one = attach();
  EXPECT_EQ(next(*one.peer), "-");
  std::exchange(one.follower->waiting, nullptr)(ProcessOutput{ProcessOutput::Kind::exit, {}, 3});
  auto two = attach(true);
  EXPECT_EQ(next(*two.peer), "-");
  std::exchange(two.follower->waiting, nullptr)(absl::DataLossError("fell behind by 7 output chunks"));
  EXPECT_EQ(next(*two.peer), "broken");
  one.peer->close();
  main_->owner = nullptr;
  main_->full = true;
  auto three = attach();
  type(*three.peer, "x");
  EXPECT_EQ(next(*three.peer), "err:openshell: canonical stdin buffer is full; closing attachment\n");
  EXPECT_EQ(next(*three.peer), "broken");
}

TEST_F(MainPeerTest, ClosingDetaches) {
  auto one = attach();
  EXPECT_EQ(next(*one.peer), "-");
  one.peer->close();
  EXPECT_TRUE(one.follower->detached);
  EXPECT_EQ(main_->owner, nullptr);
}

}  // namespace
}  // namespace openshell::supervisor
