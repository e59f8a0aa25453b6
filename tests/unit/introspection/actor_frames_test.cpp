#include "actors/introspection/actor_frames.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "actors/introspection/shown_text.hpp"

namespace openshell {
namespace {

ActorSnapshot actor(const std::string& id) {
  ActorSnapshot out;
  out.id = id;
  out.kind = "outbox";
  out.summary = "3 statuses waiting";
  out.waiting = 3;
  out.oldest_ms = 1'500;
  out.rates = {{"wake", 0.5}};
  return out;
}

TEST(ActorFrames, ACT_39_AMessageGoesThroughInPieces) {
  actors_wire::ToGateway message;
  EXPECT_GT(fill_process({actor("a"), actor("b")}, 10'000, *message.mutable_snapshot()->add_processes()), 0U);
  const auto frame = encode_actors_frame(message);
  ActorsFrameDecoder decoder{kMaxActorsMessage};
  for (std::size_t i = 0; i + 1 < frame.size(); ++i) {
    ASSERT_TRUE(decoder.append(frame.substr(i, 1)).ok());
    ASSERT_FALSE(decoder.next());
  }
  ASSERT_TRUE(decoder.append(frame.substr(frame.size() - 1)).ok());
  const auto whole = decoder.next();
  ASSERT_TRUE(whole);
  actors_wire::ToGateway back;
  ASSERT_TRUE(back.ParseFromString(*whole));
  EXPECT_EQ(actors_of(back.snapshot().processes(0)), (std::vector{actor("a"), actor("b")}));
}

TEST(ActorFrames, ACT_39_ALengthOfZeroOrAboveTheBoundEndsIt) {
  for (const std::size_t limit : {kMaxActorsMessage, kMaxActorsRequest}) {
    const auto length = [](std::uint32_t n) {
      return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
    };
    EXPECT_FALSE(ActorsFrameDecoder{limit}.append(length(0)).ok());
    EXPECT_TRUE(ActorsFrameDecoder{limit}.append(length(static_cast<std::uint32_t>(limit))).ok());
    EXPECT_FALSE(ActorsFrameDecoder{limit}.append(length(static_cast<std::uint32_t>(limit) + 1)).ok());
  }
}

TEST(ActorFrames, ACT_39_EveryBoundOfAnActorHoldsOnBothSides) {
  actors_wire::Actor wire;
  wire.set_id(std::string(500, 'i'));
  wire.set_parent(std::string(500, 'p'));
  wire.set_kind(std::string(500, 'k'));
  wire.set_summary(std::string(500, 's') + "\n");
  wire.set_last_error("\x1b[2Jforged");
  for (int i = 0; i < 20; ++i) (*wire.mutable_rates())[std::string(60, 'r') + std::to_string(i)] = i;
  (*wire.mutable_rates())["nan"] = std::numeric_limits<double>::quiet_NaN();
  (*wire.mutable_rates())["less"] = -1;
  const auto read = actor_of(wire);
  EXPECT_EQ(read.id.size(), kMaxShownId);
  EXPECT_EQ(read.parent.size(), kMaxShownId);
  EXPECT_EQ(read.kind.size(), kMaxShownKind);
  EXPECT_EQ(read.summary.size(), kMaxShownText);
  EXPECT_EQ(read.last_error, " [2Jforged");
  EXPECT_LE(read.rates.size(), kMaxShownRates);
  EXPECT_FALSE(read.rates.contains("nan") || read.rates.contains("less"));
  for (const auto& [name, rate] : read.rates) EXPECT_LE(name.size(), kMaxRateName);
}

TEST(ActorFrames, ACT_39_ActorsThatDoNotFitAreCounted) {
  std::vector<ActorSnapshot> many;
  for (std::size_t i = 0; i < kMaxActorsPerProcess + 44; ++i) many.push_back(actor("actor" + std::to_string(i)));
  actors_wire::Process all;
  fill_process(many, kMaxActorsMessage, all);
  EXPECT_EQ(all.actors_size(), static_cast<int>(kMaxActorsPerProcess));
  EXPECT_EQ(all.left_out(), 44U);
  actors_wire::Process few;
  EXPECT_LE(fill_process(many, 500, few), 500U);
  EXPECT_GT(few.actors_size(), 0);
  EXPECT_EQ(few.left_out() + static_cast<std::uint32_t>(few.actors_size()), many.size());
  // The other side does not believe it.
  actors_wire::Process claimed;
  for (int i = 0; i < 300; ++i) claimed.add_actors()->set_id(std::to_string(i));
  EXPECT_EQ(actors_of(claimed).size(), kMaxActorsPerProcess);
}

}  // namespace
}  // namespace openshell
