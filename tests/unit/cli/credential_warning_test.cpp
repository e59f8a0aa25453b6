#include "cli/credential_warning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openshell::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CredentialWarning, ANameIsJudgedByItsWholeWords) {
  for (const char* key : {"GITHUB_TOKEN", "token", "DB_PASSWORD_FILE", "My_Secret", "AWS_ACCESS_KEY", "X_API_KEY", "CREDENTIAL"})
    EXPECT_TRUE(looks_like_credential(key)) << key;
  for (const char* key : {"", "PATH", "TOKENS", "SECRETARY", "KEY", "APIKEY", "ACCESS_KEYS", "API__KEY", "MONKEY"})
    EXPECT_FALSE(looks_like_credential(key)) << key;
}

TEST(CredentialWarning, EachIsSaidWithTheProviderThatKeepsItOutside) {
  v1::ProviderProfile profile;
  profile.set_id("forge");
  profile.add_credentials()->add_env_vars("FORGE_AUTH");
  EXPECT_THAT(credential_warnings({"PATH", "FORGE_AUTH", "API_TOKEN"}, {profile}),
              ElementsAre(AllOf(HasSubstr("--env FORGE_AUTH is a credential of the profile 'forge'"),
                                HasSubstr("openshell provider create --name forge --type forge --credential FORGE_AUTH")),
                          AllOf(HasSubstr("--env API_TOKEN looks like a credential"), HasSubstr("--type generic --credential API_TOKEN"))));
  EXPECT_THAT(credential_warnings({"PATH"}, {profile}), IsEmpty());
}

}  // namespace
}  // namespace openshell::cli
