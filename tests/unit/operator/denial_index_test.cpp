#include "actors/gateway/denial_index.hpp"

#include <gtest/gtest.h>

namespace openshell::gateway {
namespace {

openshell::v1::SandboxLogLine line(const std::string& id, const std::string& sandbox = "s1", const std::string& text = "NET:OPEN") {
  openshell::v1::SandboxLogLine out;
  out.set_sandbox_id(sandbox);
  out.set_message(text);
  if (!id.empty()) (*out.mutable_fields())["denial_id"] = id;
  return out;
}

TEST(DenialIndex, PP_15_ADenialIsFoundByTheIdInItsLine) {
  DenialIndex index;
  index.add(line(""));
  index.add(line("a", "s1", "first"));
  index.add(line("a", "s2", "the same id again is somebody's mistake"));
  index.add(line("b", "s2"));
  EXPECT_EQ(index.size(), 2U);
  ASSERT_EQ(index.find("a").lines.size(), 1U);
  EXPECT_EQ(index.find("a").lines[0].text, "first");
  EXPECT_TRUE(index.find("c").lines.empty());
  ASSERT_EQ(index.find("").lines.size(), 2U);
  EXPECT_EQ(index.find("").lines[0].denial_id, "b") << "newest first";
  index.forget("s1");
  EXPECT_TRUE(index.find("a").lines.empty());
  EXPECT_EQ(index.size(), 1U);
}

TEST(DenialIndex, KeepsTheNewestWithinItsBounds) {
  DenialIndex index;
  for (std::size_t i = 0; i < kMaxDenialLines + 1; ++i) index.add(line(std::to_string(i)));
  EXPECT_EQ(index.size(), kMaxDenialLines);
  EXPECT_TRUE(index.find("0").lines.empty());
  EXPECT_FALSE(index.find("1").lines.empty());
  EXPECT_EQ(index.find("").lines.size(), kMaxListedDenials);
  index.add(line(std::string(kMaxDenialId + 1, 'x')));
  EXPECT_TRUE(index.find(std::string(kMaxDenialId + 1, 'x')).lines.empty());
  index.add(line("long", "s1", std::string(kMaxDenialText + 1, 'x')));
  EXPECT_EQ(index.find("long").lines[0].text.size(), kMaxDenialText);
}

}  // namespace
}  // namespace openshell::gateway
