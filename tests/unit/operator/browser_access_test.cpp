#include "api/operator/browser_access.hpp"

#include <gtest/gtest.h>

#include <string>

namespace openshell::api {
namespace {

using namespace std::chrono_literals;

class Access : public testing::Test {
 protected:
  BrowserAccess access_{[n = 0]() mutable { return std::string(BrowserAccess::kBytes, static_cast<char>(++n)); }, "7788"};
  BrowserAccess::Time now_ = BrowserAccess::Time{} + 1h;
};

// ACT-40, table O3: a token is good once and for a minute.
TEST_F(Access, ACT_40_ATokenIsGoodOnceAndForAMinute) {
  const auto token = access_.make_token(now_);
  EXPECT_EQ(token.size(), 43U);
  EXPECT_FALSE(access_.login(token + "x", now_));
  const auto cookie = access_.login(token, now_ + 59s);
  ASSERT_TRUE(cookie);
  EXPECT_NE(*cookie, token);
  EXPECT_FALSE(access_.login(token, now_ + 59s)) << "used";
  const auto old = access_.make_token(now_);
  EXPECT_FALSE(access_.login(old, now_ + 60s)) << "a minute is over";
  EXPECT_TRUE(access_.admitted(*cookie, now_ + 12h));
  EXPECT_FALSE(access_.admitted(*cookie, now_ + 12h + 60s));
  EXPECT_FALSE(access_.admitted("", now_));
  EXPECT_FALSE(access_.admitted(token, now_));
}

TEST_F(Access, ACT_40_FiveWrongTokensWithinAMinuteDropAll) {
  const auto token = access_.make_token(now_);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(access_.login("wrong", now_));
  EXPECT_FALSE(access_.login("wrong", now_ + 30s));
  EXPECT_FALSE(access_.login(token, now_ + 30s));
  const auto next = access_.make_token(now_ + 31s);
  EXPECT_TRUE(access_.login(next, now_ + 31s)) << "those of later are not touched";
}

TEST_F(Access, WrongOnesOfLongAgoDoNotCount) {
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(access_.login("wrong", now_));
  const auto token = access_.make_token(now_ + 59s);
  EXPECT_FALSE(access_.login("wrong", now_ + 61s));
  EXPECT_TRUE(access_.login(token, now_ + 61s));
}

TEST_F(Access, ACT_40_TheOldestGoesBeyondTheBounds) {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i <= BrowserAccess::kMaxTokens; ++i) tokens.push_back(access_.make_token(now_));
  EXPECT_FALSE(access_.login(tokens[0], now_));
  EXPECT_TRUE(access_.login(tokens[1], now_));
  std::vector<std::string> cookies;
  for (std::size_t i = 0; i <= BrowserAccess::kMaxCookies; ++i) cookies.push_back(*access_.login(access_.make_token(now_), now_));
  EXPECT_FALSE(access_.admitted(cookies[0], now_));
  EXPECT_TRUE(access_.admitted(cookies[1], now_));
}

TEST_F(Access, ACookieIsFoundAmongOthersAndSetForThisSiteOnly) {
  EXPECT_EQ(access_.cookie_of("a=b; openshell_operator_7788=value; c=d"), "value");
  EXPECT_EQ(access_.cookie_of("openshell_operator_77889=value"), "");
  EXPECT_EQ(access_.cookie_of("x_openshell_operator_7788=value"), "");
  EXPECT_EQ(access_.cookie_of(""), "");
  EXPECT_EQ(access_.set_cookie("v"), "openshell_operator_7788=v; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200");
}

// Browsers send one cookie to all ports of a host: a login at one gateway must not throw out that of another.
TEST_F(Access, TwoGatewaysOfOneHostHaveCookiesOfTheirOwn) {
  const BrowserAccess other{[] { return std::string{}; }, "7799"};
  const std::string both = "openshell_operator_7788=mine; openshell_operator_7799=yours";
  EXPECT_EQ(access_.cookie_of(both), "mine");
  EXPECT_EQ(other.cookie_of(both), "yours");
}

}  // namespace
}  // namespace openshell::api
