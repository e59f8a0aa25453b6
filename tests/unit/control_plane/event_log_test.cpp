#include "actors/gateway/event_log.hpp"

#include <gtest/gtest.h>

namespace openshell::gateway {
namespace {

openshell::v1::SandboxLogLine line(const std::string& level, const std::string& message = "m") {
  openshell::v1::SandboxLogLine out;
  out.set_level(level);
  out.set_message(message);
  return out;
}
const auto kAll = [](const auto&) { return true; };

TEST(EventLog, GW_FiltersFirstThenTakesTheNewest) {
  EventLog log{1};
  for (int i = 0; i < 3; ++i) log.add(line("INFO", "info" + std::to_string(i)));
  for (int i = 0; i < 2; ++i) log.add(line("DEBUG"));
  LineFilter filter;
  filter.min_level = "info";
  const auto out = log.tail(2, [&](const auto& event) { return filter.passes(event.log()); });
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].log().message(), "info1");
  EXPECT_EQ(log.all().size(), 5U);
  EXPECT_TRUE(filter.passes(line("whatever"))) << "an unknown level always passes";
}

TEST(EventLog, GW_CursorsResumeWithoutLossAndRefuseWhatIsGone) {
  EventLog log{7};
  const auto first = log.add(line("INFO", "0")).cursor();
  for (int i = 1; i < 10; ++i) log.add(line("INFO", std::to_string(i)));
  auto rest = log.after(first, kAll);
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(rest->size(), 9U);
  EXPECT_EQ(rest->front().log().message(), "1");
  EXPECT_TRUE(log.after(log.all().back().cursor(), kAll)->empty());
  EXPECT_EQ(log.after("xyz", kAll).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EventLog{8}.after(first, kAll).status().code(), absl::StatusCode::kOutOfRange) << "an earlier start of the gateway";
  for (std::size_t i = 0; i < kMaxEvents; ++i) log.add(line("INFO"));
  EXPECT_EQ(log.all().size(), kMaxEvents);
  EXPECT_EQ(log.after(first, kAll).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(EventLog, GW_PushedLinesAreCutToTheirBounds) {
  auto dirty = line("INFO");
  dirty.set_source("gateway");
  dirty.set_sandbox_id("other");
  for (int i = 0; i < 40; ++i) (*dirty.mutable_fields())["k" + std::to_string(100 + i)] = std::string(kMaxFieldValue + 5, 'v');
  const auto clean = clean_line(dirty, "box");
  EXPECT_EQ(clean.source(), "sandbox");
  EXPECT_EQ(clean.sandbox_id(), "box");
  EXPECT_EQ(clean.fields().size(), kMaxLineFields);
  EXPECT_EQ(clean.fields().at("k100").size(), kMaxFieldValue);
}

}  // namespace
}  // namespace openshell::gateway
