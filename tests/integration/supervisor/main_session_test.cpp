// MainSession and ProcessSession over the channel's real transport, with a runtime whose main process a test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "messages/secret.hpp"
#include "programs/supervisor/main_session.hpp"
#include "programs/supervisor/process_session.hpp"
#include "tests/integration/supervisor/fake_boundary.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using boundary::Channel;
using Kind = ProcessOutput::Kind;

constexpr auto kPatience = 20s;

template <class T>
T await(std::future<T> future) {
  if (future.wait_for(kPatience) != std::future_status::ready) throw std::runtime_error("no completion in time");
  return future.get();
}

template <class Source>
absl::StatusOr<ProcessOutput> next(Source& source) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<ProcessOutput>>>();
  auto future = promise->get_future();
  source.read([promise](absl::StatusOr<ProcessOutput> output) { promise->set_value(std::move(output)); });
  return await(std::move(future));
}

template <class Source>
absl::Status write(Source& source, std::string bytes) {
  auto promise = std::make_shared<std::promise<absl::Status>>();
  auto future = promise->get_future();
  source.write(std::move(bytes), [promise](absl::Status status) { promise->set_value(std::move(status)); });
  return await(std::move(future));
}

/// Everything of one kind up to and without the exit.
template <class Source>
std::string text_until(Source& source, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    auto output = next(source);
    if (!output.ok() || output->kind == Kind::exit) break;
    text += output->bytes;
  }
  return text;
}

class MainSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/main-session-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    runtime_ = std::make_unique<test::FakeBoundary>(folder_);
    timers_ = std::make_shared<TimerThread>();
    boundary_ = BoundaryClient::make(runtime_->descriptor(), [] { return absl::StatusOr<Secret>{Secret{"Bearer sandbox-token"}}; },
                                     make_uuid(), timers_, {});
    ASSERT_TRUE(boundary_->discover_policy([] { return false; }).ok());
    ASSERT_TRUE(boundary_->attach({}).ok());
    ASSERT_TRUE(boundary_->confirm().ok());
  }
  void TearDown() override {
    if (main_) main_->close("the test ends");
    main_.reset();
    boundary_->stop_repairing();
    runtime_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::shared_ptr<MainSession> start(bool declared = false, MainSession::Limits limits = {}) {
    main_ = MainSession::make(boundary_, timers_, false, declared, limits);
    main_->started("generation-1:main:0");
    return main_;
  }
  std::shared_ptr<MainAttachment> attach() {
    auto attachment = main_->attach();
    EXPECT_TRUE(attachment.ok()) << attachment.status();
    return attachment.ok() ? *attachment : nullptr;
  }

  std::string folder_;
  std::unique_ptr<test::FakeBoundary> runtime_;
  std::shared_ptr<TimerThread> timers_;
  std::shared_ptr<BoundaryClient> boundary_;
  std::shared_ptr<MainSession> main_;
};

TEST_F(MainSessionTest, CX_06_ALateClientGetsWhatWasSaidBeforeAndThenFollows) {
  start();
  runtime_->main_says(Channel::stdout_data, "early ");
  runtime_->main_says(Channel::stderr_data, "warned");
  ASSERT_TRUE(runtime_->wait_for("attach_process"));
  auto client = attach();
  EXPECT_EQ(*next(*client), (ProcessOutput{Kind::standard_output, "early ", 0}));
  EXPECT_EQ(*next(*client), (ProcessOutput{Kind::standard_error, "warned", 0}));
  runtime_->main_says(Channel::stdout_data, "live");
  EXPECT_EQ(*next(*client), (ProcessOutput{Kind::standard_output, "live", 0}));
}

TEST_F(MainSessionTest, TheExitComesBehindAllOutputAndOnlyAfterTheGatewayTookIt) {
  start();
  auto client = attach();
  runtime_->main_says(Channel::stdout_data, "last words");
  runtime_->exit_main(3);
  runtime_->main_output_ends(3);
  main_->exited(3);
  EXPECT_EQ(next(*client)->bytes, "last words");
  auto promise = std::make_shared<std::promise<absl::StatusOr<ProcessOutput>>>();
  auto exit = promise->get_future();
  client->read([promise](absl::StatusOr<ProcessOutput> output) { promise->set_value(std::move(output)); });
  EXPECT_EQ(exit.wait_for(200ms), std::future_status::timeout) << "not before the acknowledgement";
  main_->acknowledged();
  EXPECT_EQ(await(std::move(exit)).value(), (ProcessOutput{Kind::exit, "", 3}));
  EXPECT_EQ(next(*client).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(MainSessionTest, CX_07_OneClientOwnsTheInputAndGivesItBack) {
  start();
  auto first = attach(), second = attach();
  EXPECT_TRUE(first->acquire_input().ok());
  EXPECT_TRUE(first->acquire_input().ok()) << "its own already";
  const auto refused = second->acquire_input();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(), "canonical main process already has an input owner");
  EXPECT_EQ(write(*second, "no").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(write(*first, "yes ").ok());
  EXPECT_TRUE(runtime_->main_hears("yes "));
  first.reset();  // detached
  EXPECT_TRUE(second->acquire_input().ok());
  EXPECT_TRUE(write(*second, "mine").ok());
  EXPECT_TRUE(runtime_->main_hears("yes mine")) << "main's stdin was not closed by the detach";
}

TEST_F(MainSessionTest, InputThatNobodyTakesIsRefusedAfterAWait) {
  MainSession::Limits limits;
  limits.input_chunks = 2;
  limits.input_wait = 100ms;
  start(false, limits);
  runtime_->main_reads = false;
  auto client = attach();
  ASSERT_TRUE(client->acquire_input().ok());
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) status = write(*client, std::string(60'000, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "canonical stdin buffer is full");
}

TEST_F(MainSessionTest, AViewerThatDoesNotReadFallsBehindAndIsToldByHowMuch) {
  MainSession::Limits limits;
  limits.retained_bytes = 40'000;
  start(false, limits);
  auto viewer = attach();
  auto other = attach();
  for (int i = 0; i < 10; ++i) {
    runtime_->main_says(Channel::stdout_data, std::string(10'000, static_cast<char>('a' + i)));
    EXPECT_EQ(text_until(*other, 10'000).size(), 10'000U) << "a viewer that reads misses nothing";
  }
  const auto behind = next(*viewer);
  EXPECT_EQ(behind.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(behind.status().message(), "fell behind by 6 output chunks");
}

TEST_F(MainSessionTest, TheInputOwnerSlowsTheProcessInsteadOfLosingItsOutput) {
  MainSession::Limits limits;
  limits.retained_bytes = 40'000;
  start(false, limits);
  auto owner = attach();
  ASSERT_TRUE(owner->acquire_input().ok());
  owner->release_input();  // its own input has ended (`create -- CMD < /dev/null`), its interest in the output has not
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(10'000, static_cast<char>('a' + i % 26));
    expected += piece;
    runtime_->main_says(Channel::stdout_data, piece);
  }
  // 3 MB, of which the log holds 40 kB and the channel its window: main cannot have been rid of all of it.
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(runtime_->main_events_sent(), 300U);
  EXPECT_EQ(text_until(*owner, expected.size()), expected);
}

TEST_F(MainSessionTest, AnOwnerThatStallsIsOverrunAfterItsTime) {
  MainSession::Limits limits;
  limits.retained_bytes = 40'000;
  limits.stalled = 200ms;
  start(false, limits);
  auto owner = attach();
  ASSERT_TRUE(owner->acquire_input().ok());
  for (int i = 0; i < 300; ++i) runtime_->main_says(Channel::stdout_data, std::string(10'000, 'x'));
  runtime_->main_output_ends(0);
  runtime_->exit_main(0);
  main_->exited(0);
  main_->acknowledged();
  auto other = [&] {  // the process is not blocked for ever
    for (const auto end = std::chrono::steady_clock::now() + kPatience; std::chrono::steady_clock::now() < end;) {
      if (runtime_->main_events_sent() == 300) return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }();
  EXPECT_TRUE(other);
  EXPECT_EQ(next(*owner).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(MainSessionTest, FB_24_CX_33_ADeclaredAttachmentIsServedAfterTheExit) {  // FB-27, FB-28
  start(true);
  runtime_->main_says(Channel::stdout_data, "gone in a moment");
  runtime_->exit_main(7);
  runtime_->main_output_ends(7);
  main_->exited(7);
  main_->acknowledged();
  std::promise<void> drained;
  auto done = drained.get_future();
  main_->drain([&] { drained.set_value(); });
  EXPECT_EQ(done.wait_for(200ms), std::future_status::timeout) << "somebody is awaited";
  auto client = attach();
  EXPECT_EQ(next(*client)->bytes, "gone in a moment");
  EXPECT_EQ(*next(*client), (ProcessOutput{Kind::exit, "", 7}));
  EXPECT_EQ(done.wait_for(100ms), std::future_status::timeout) << "and still attached";
  client.reset();
  EXPECT_EQ(done.wait_for(kPatience), std::future_status::ready);
  client = attach();
  EXPECT_EQ(next(*client)->bytes, "gone in a moment") << "CX-33: it stays";
}

TEST_F(MainSessionTest, FB_29_WithoutADeclarationNobodyIsAwaited) {
  start();
  auto client = attach();
  runtime_->exit_main(0);
  runtime_->main_output_ends(0);
  main_->exited(0);
  main_->acknowledged();
  EXPECT_EQ(next(*client)->kind, Kind::exit);
  client.reset();
  std::promise<void> drained;
  main_->drain([&] { drained.set_value(); });
  EXPECT_EQ(drained.get_future().wait_for(0s), std::future_status::ready);
  EXPECT_EQ(next(*attach())->kind, Kind::exit);
}

TEST_F(MainSessionTest, ADeclaredAttachmentThatNeverComesIsGivenUp) {
  MainSession::Limits limits;
  limits.awaited = 100ms;
  start(true, limits);
  runtime_->exit_main(0);
  runtime_->main_output_ends(0);
  main_->exited(0);
  main_->acknowledged();
  std::promise<void> drained;
  auto done = drained.get_future();
  main_->drain([&] { drained.set_value(); });
  EXPECT_EQ(done.wait_for(kPatience), std::future_status::ready);
}

TEST_F(MainSessionTest, AnAttachmentThatNeverEndsDoesNotHoldTheSandbox) {
  MainSession::Limits limits;
  limits.awaited = 50ms;
  limits.draining = 50ms;
  start(false, limits);
  auto client = attach();
  std::promise<void> drained;
  auto done = drained.get_future();
  main_->drain([&] { drained.set_value(); });
  EXPECT_EQ(done.wait_for(kPatience), std::future_status::ready);
}

TEST_F(MainSessionTest, CX_08_AfterARepairNothingIsShownTwiceAndAGapIsTold) {
  start();
  auto client = attach();
  runtime_->main_says(Channel::stdout_data, "one ");
  runtime_->main_says(Channel::stdout_data, "two ");
  EXPECT_EQ(text_until(*client, 8), "one two ");
  runtime_->cut_main_stream(0);  // all of it is retained
  runtime_->main_says(Channel::stdout_data, "three");
  EXPECT_EQ(next(*client)->bytes, "three");
  ASSERT_TRUE(runtime_->wait_for("attach_process", 2));

  runtime_->main_says(Channel::stdout_data, "lost");
  runtime_->main_says(Channel::stdout_data, "lost");
  EXPECT_EQ(text_until(*client, 8), "lostlost");
  runtime_->cut_main_stream(5);
  for (int i = 0; i < 2; ++i) runtime_->main_says(Channel::stdout_data, "kept");
  // Events 5 and 6 exist; the client had 0..4 and the runtime still holds all it lacks.
  EXPECT_EQ(text_until(*client, 8), "keptkept");
  runtime_->cut_main_stream(9);
  for (int i = 0; i < 3; ++i) runtime_->main_says(Channel::stdout_data, "late");  // 7, 8 and 9: two are gone for good
  auto behind = next(*client);
  while (behind.ok()) behind = next(*client);
  EXPECT_EQ(behind.status().code(), absl::StatusCode::kDataLoss) << behind.status();
}

TEST_F(MainSessionTest, CloseEndsReadsAndAttachesWithItsReason) {
  start();
  auto client = attach();
  main_->close("the sandbox is lost");
  EXPECT_EQ(next(*client).status().message(), "the sandbox is lost");
  EXPECT_EQ(main_->attach().status().message(), "the sandbox is lost");
}

TEST_F(MainSessionTest, ManySmallPiecesAreReadTogetherWithoutRecursion) {
  start();
  auto client = attach();
  constexpr int kPieces = 50'000;
  for (int i = 0; i < kPieces; ++i) runtime_->main_says(i % 2 == 0 ? Channel::stdout_data : Channel::stderr_data, "x");
  auto total = std::make_shared<std::atomic<int>>(0);
  auto finished = std::make_shared<std::promise<void>>();
  // Each completion asks for the next from inside, as a relay does.
  auto step = std::make_shared<std::function<void()>>();
  *step = [&, total, finished, weak = std::weak_ptr{step}] {
    auto self = weak.lock();
    client->read([total, finished, self](absl::StatusOr<ProcessOutput> output) {
      if (!output.ok()) return;
      if ((*total += static_cast<int>(output->bytes.size())) == kPieces) return finished->set_value();
      (*self)();
    });
  };
  (*step)();
  EXPECT_EQ(finished->get_future().wait_for(kPatience), std::future_status::ready);
}

class ProcessSessionTest : public MainSessionTest {
 protected:
  std::shared_ptr<ProcessSession> open(ProcessRequest request) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<std::shared_ptr<ProcessSession>>>>();
    auto future = promise->get_future();
    ProcessSession::open(boundary_, std::move(request), [promise](auto session) { promise->set_value(std::move(session)); });
    auto session = await(std::move(future));
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *session : nullptr;
  }
};

TEST_F(ProcessSessionTest, OutputOfBothKindsThenTheExit) {
  auto session = open({.command = "say"});
  EXPECT_EQ(*next(*session), (ProcessOutput{Kind::standard_output, "say", 0}));
  EXPECT_EQ(*next(*session), (ProcessOutput{Kind::standard_error, "err", 0}));
  EXPECT_EQ(*next(*session), (ProcessOutput{Kind::exit, "", 7}));
  EXPECT_EQ(next(*session).status().code(), absl::StatusCode::kOutOfRange);
  session.reset();
  const auto asked = runtime_->operations();
  EXPECT_EQ(std::count(asked.begin(), asked.end(), "terminate"), 0) << "it had ended";
}

TEST_F(ProcessSessionTest, InputInOrderAndItsEnd) {
  auto session = open({.command = "cat"});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(write(*session, std::to_string(i) + ",").ok());
  session->close_input();
  std::string all;
  for (auto output = next(*session); output.ok() && output->kind != Kind::exit; output = next(*session)) all += output->bytes;
  EXPECT_EQ(all, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,");
}

TEST_F(ProcessSessionTest, ATerminalBringsItsSizeBeforeTheFirstInstruction) {
  auto session = open({.command = "hang", .terminal = ProcessRequest::Terminal{"screen", {100, 40}}});
  EXPECT_TRUE(session->has_terminal());
  const auto spec = runtime_->execs().at(0).spec;
  EXPECT_TRUE(spec.pty);
  EXPECT_THAT(spec.env, ::testing::ElementsAre(std::pair{"TERM", "screen"}, std::pair{"COLUMNS", "100"}, std::pair{"LINES", "40"}));
  EXPECT_TRUE(runtime_->wait_for("resize"));
}

TEST_F(ProcessSessionTest, D30_LettingGoEndsTheWholeTree) {
  auto session = open({.command = "hang"});
  session.reset();
  EXPECT_TRUE(runtime_->wait_for("terminate"));
}

TEST(TerminalSizes, B24_ASizeThatNobodyKnowsIsTheDefault) {
  const auto is = [](TerminalSize size, std::uint32_t columns, std::uint32_t rows) { return size.columns == columns && size.rows == rows; };
  EXPECT_TRUE(is(usable_size(0, 0), 80, 24));
  EXPECT_TRUE(is(usable_size(0, 50), 80, 24));
  EXPECT_TRUE(is(usable_size(1, 1), 1, 1));
  EXPECT_TRUE(is(usable_size(4'294'967'295U, 65'536), 65'535, 65'535));
}

}  // namespace
}  // namespace openshell::supervisor
