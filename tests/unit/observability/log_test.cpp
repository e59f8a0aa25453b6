#include "observability/log.hpp"

#include <absl/status/statusor.h>
#include <gtest/gtest.h>

#include "observability/text.hpp"

namespace openshell::log {
namespace {

const std::string kToken = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJzYW5kYm94In0.c2lnbmF0dXJlLWJ5dGVz";

TEST(Redaction, MasksTokensWhereverTheyStand) {
  EXPECT_EQ(redacted(cat("token ", kToken, " refused")), "token [REDACTED] refused");
  EXPECT_EQ(redacted(cat("{\"token\":\"", kToken, "\"}")), "{\"token\":\"[REDACTED]\"}");
  EXPECT_EQ(redacted(cat("t=", kToken)), "t=[REDACTED]");
}

TEST(Redaction, MasksTheCredentialsOfAnAuthorizationValue) {
  EXPECT_EQ(redacted("authorization: Bearer abc.def-123"), "authorization: Bearer [REDACTED]");
  EXPECT_EQ(redacted("authorization: basic dXNlcjpwdw=="), "authorization: basic [REDACTED]");
}

TEST(Redaction, MasksPrivateKeys) {
  const std::string out = redacted("key -----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----");
  EXPECT_EQ(out.find("MC4CAQ"), std::string::npos) << out;
}

TEST(Redaction, LeavesPlaceholdersAndOrdinaryTextAlone) {
  for (const char* text : {"Bearer openshell:resolve:env:v42_API_TOKEN", "bearer of news", "eyJ", "-----BEGIN CERTIFICATE-----", ""}) {
    const std::string out = redacted(text);
    if (std::string_view{text} == "bearer of news") {
      EXPECT_EQ(out, "bearer [REDACTED] news");  // a word after "bearer" is masked: rather one word too many than one token
    } else {
      EXPECT_EQ(out, text);
    }
  }
}

TEST(LogLevel, PlainLevelsAndTheFirstOfADirective) {
  EXPECT_EQ(*parse_level("debug"), Level::kDebug);
  EXPECT_EQ(*parse_level("warning"), Level::kWarning);
  EXPECT_EQ(*parse_level("openshell=debug,info"), Level::kInfo);
  EXPECT_FALSE(parse_level("loud").ok());
  EXPECT_FALSE(parse_level("").ok());
}

}  // namespace
}  // namespace openshell::log
