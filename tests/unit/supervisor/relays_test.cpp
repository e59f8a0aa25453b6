// Services that the supervisor offers the gateway: how many at once, and an abort that comes while one is being opened.
#include "programs/supervisor/relays.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace openshell::supervisor {
namespace {

constexpr const char* kService = "openshell.test/1";

class ServiceRelays : public testing::Test {
 protected:
  void offer(std::size_t limit) {
    relays_->offer(
        kService,
        [this](const std::shared_ptr<egress::ByteStream>&, std::function<void()> ended) {
          ended_.push_back(std::move(ended));
          if (while_opening_) while_opening_();
          return [this] { ++aborts_; };
        },
        limit);
  }
  std::string open(const std::string& channel) {
    std::string said = "nothing";
    RelayRequest request;
    request.channel_id = channel;
    request.service_id = kService;
    relays_->open(std::move(request), [&](std::string error) { said = std::move(error); });
    return said;
  }

  std::function<void()> while_opening_;
  std::vector<std::function<void()>> ended_;
  int aborts_ = 0;
  std::shared_ptr<Relays> relays_ = std::make_shared<Relays>(
      nullptr, [](const std::string&) { return std::shared_ptr<egress::ByteStream>{}; }, Relays::DialSsh{}, nullptr);
};

TEST_F(ServiceRelays, TheGatewayMayCloseOneWhileItIsBeingOpened) {
  while_opening_ = [this] { relays_->abort("c", "gone"); };
  offer(1);
  EXPECT_EQ(open("c"), "");
  EXPECT_EQ(aborts_, 1);
}

TEST_F(ServiceRelays, OneThatIsOpenIsAborted) {
  offer(1);
  open("c");
  EXPECT_EQ(aborts_, 0);
  relays_->abort("c", "gone");
  EXPECT_EQ(aborts_, 1);
}

TEST_F(ServiceRelays, OneThatEndedAtOnceIsForgotten) {
  while_opening_ = [this] { ended_.back()(); };
  offer(1);
  open("c");
  relays_->abort("c", "late");
  EXPECT_EQ(aborts_, 0);
  EXPECT_EQ(open("c"), "") << "its place and its name are free again";
}

TEST_F(ServiceRelays, NoMoreAtOnceThanItsLimit) {
  offer(2);
  EXPECT_EQ(open("a"), "");
  EXPECT_EQ(open("b"), "");
  EXPECT_EQ(open("c"), "too many relays of openshell.test/1");
  ended_.front()();
  EXPECT_EQ(open("c"), "");
}

}  // namespace
}  // namespace openshell::supervisor
