#include "messages/values.hpp"

#include <gtest/gtest.h>

#include "messages/secret.hpp"

namespace openshell {
namespace {

TEST(Host, ComparesInOneForm) {
  EXPECT_EQ(Host::parse("API.Example.COM.")->str(), "api.example.com");
  EXPECT_EQ(Host::parse("_dmarc.example.com")->str(), "_dmarc.example.com");
}

TEST(Host, RefusesWhatIsNoName) {
  for (const char* text : {"", ".", "a..b", "-a.example", "a-.example", "exa mple", "ex\xc3\xa4mple.org", "a/b", "a:80", "[::1]"}) {
    EXPECT_FALSE(Host::parse(text).ok()) << text;
  }
  EXPECT_FALSE(Host::parse(std::string(64, 'a') + ".example").ok());
  EXPECT_TRUE(Host::parse(std::string(63, 'a') + ".example").ok());
  EXPECT_FALSE(Host::parse(std::string(254, 'a')).ok());
}

TEST(Host, RefusesOtherSpellingsOfAddresses) {
  for (const char* text : {"127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.1"})
    EXPECT_FALSE(Host::parse(text).ok()) << text;
  EXPECT_TRUE(Host::parse("127.example").ok());
}

TEST(Secret, ComparesWholeAndIsWipedWhenMovedFrom) {
  Secret first{"a token that is longer than any small string buffer"};
  EXPECT_TRUE(first.equals("a token that is longer than any small string buffer"));
  EXPECT_FALSE(first.equals("a token that is longer than any small string buffeR"));
  EXPECT_FALSE(first.equals("a token"));
  const Secret second = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): the promise under test
  EXPECT_EQ(second.reveal().size(), 51U);
}

TEST(Secret, WipeReachesWhatALongerTextLeftBehind) {
  std::string bytes(100, 'x');
  bytes.reserve(128);
  bytes.resize(10);
  const char* memory = bytes.data();
  ASSERT_EQ(memory[50], 'x');
  wipe(bytes);
  ASSERT_EQ(bytes.data(), memory);  // still the same buffer, so reading it is fine
  for (int i = 0; i < 100; ++i) EXPECT_EQ(memory[i], '\0') << i;
}

}  // namespace
}  // namespace openshell
