#include "actors/gateway/relay_pipe.hpp"

#include <gtest/gtest.h>

namespace openshell::gateway {
namespace {

struct Reader {
  std::string got;
  int ends = 0;
  absl::Status failed;
  void read(RelayEnd& end) {
    end.read([this](std::string bytes) { bytes.empty() ? void(++ends) : void(got += bytes); },
             [this](const absl::Status& why) { failed = why; });
  }
};

TEST(RelayPipe, GW_AFullBufferHoldsTheWriterUntilTheReaderTakes) {
  auto [requester, supervisor] = make_relay();
  int room = 0;
  requester->write(std::string(kRelayBuffer - 1, 'x'), [&] { ++room; });
  EXPECT_EQ(room, 1) << "one byte below the bound";
  requester->write("y", [&] { ++room; });
  EXPECT_EQ(room, 1) << "at the bound the writer waits";
  Reader reader;
  reader.read(*supervisor);
  EXPECT_EQ(reader.got.size(), kRelayBuffer);
  EXPECT_EQ(room, 2);
}

TEST(RelayPipe, GW_EachDirectionEndsByItself) {
  auto [requester, supervisor] = make_relay();
  Reader reader;
  requester->write("in", [] {});
  requester->end_output();
  reader.read(*supervisor);
  EXPECT_EQ(reader.got, "in");
  reader.read(*supervisor);
  EXPECT_EQ(reader.ends, 1);
  Reader other;
  other.read(*requester);
  supervisor->write("out", [] {});
  EXPECT_EQ(other.got, "out") << "the other direction goes on";
}

TEST(RelayPipe, GW_TheFirstAbortWinsAndNeverLooksLikeAnEnd) {
  auto [requester, supervisor] = make_relay();
  Reader reader;
  reader.read(*requester);
  supervisor->abort(absl::UnavailableError("first"));
  requester->abort(absl::UnavailableError("second"));
  EXPECT_EQ(reader.failed.message(), "first");
  EXPECT_EQ(reader.ends, 0);
  absl::Status told;
  requester->on_abort([&](const absl::Status& why) { told = why; });
  EXPECT_EQ(told.message(), "first");
}

TEST(RelayPipe, GW_ADroppedSideIsABrokenRelay) {
  auto pair = make_relay();
  Reader reader;
  reader.read(*pair.supervisor);
  pair.requester.reset();
  EXPECT_EQ(reader.failed.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace openshell::gateway
