#include "cli/merge_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "openshell.pb.h"

namespace openshell::cli {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string why(const MergeWords& words) {
  policy::MergeOperations out;
  const auto status = add_operations(words, out);
  return {status.message().data(), status.message().size()};
}
policy::MergeOperations operations(const MergeWords& words) {
  policy::MergeOperations out;
  const auto status = add_operations(words, out);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST(MergeWords, AnEndpointIsARuleWithAGeneratedName) {
  MergeWords words;
  words.add_endpoints = {
      "api.x-y.test:443:read-only:rest:enforce:allowed-ip=10.0.0.0/8,allowed-ip=10.0.0.0/8,request-body-credential-rewrite"};
  words.binaries = {"/usr/bin/gh", " /usr/bin/gh "};
  const auto out = operations(words);
  ASSERT_EQ(out.size(), 1);
  const auto& add = out[0].add_rule();
  EXPECT_EQ(add.rule_name(), "allow_api_x_y_test_443");
  EXPECT_EQ(add.rule().binaries_size(), 1);
  const auto& endpoint = add.rule().endpoints(0);
  EXPECT_EQ(endpoint.port(), 443U);
  EXPECT_EQ(endpoint.ports_size(), 1);
  EXPECT_EQ(endpoint.protocol(), "rest");
  EXPECT_EQ(endpoint.access(), sandbox::v1::NETWORK_ACCESS_PRESET_READ_ONLY);
  EXPECT_EQ(endpoint.enforcement(), sandbox::v1::NETWORK_ENFORCEMENT_MODE_ENFORCE);
  EXPECT_EQ(endpoint.allowed_ips_size(), 1);
  EXPECT_TRUE(endpoint.request_body_credential_rewrite());
}

TEST(MergeWords, RequestsOfOneEndpointGoTogetherAndPathsMayHoldColons) {
  MergeWords words;
  words.rule_name = "gh";
  words.any_binary = true;
  words.endpoint_path = "";
  words.add_allow = {"B.test:8443,443:post:/a:b/*", "b.test:443,8443:GET:**", "a.test:443:GET:**/x"};
  words.add_deny = {"a.test:443:DELETE:/x"};
  const auto out = operations(words);
  ASSERT_EQ(out.size(), 3);
  EXPECT_EQ(out[0].add_allow_rules().target().host(), "a.test");
  const auto& second = out[1].add_allow_rules();
  EXPECT_EQ(second.rules_size(), 2);
  EXPECT_EQ(second.rules(0).allow().path(), "/a:b/*");
  EXPECT_EQ(second.rules(0).allow().method(), "POST");
  EXPECT_EQ(second.target().ports(0), 443U);
  EXPECT_TRUE(second.target().any_binary());
  EXPECT_TRUE(second.target().has_path());
  EXPECT_TRUE(out[2].has_add_deny_rules());
}

TEST(MergeWords, OperationsAreSentInOneOrder) {
  MergeWords words;
  words.remove_rules = {"old"};
  words.remove_endpoints = {"b.test:443"};
  words.add_endpoints = {"a.test:1", "b.test:65535"};
  const auto out = operations(words);
  ASSERT_EQ(out.size(), 4);
  EXPECT_TRUE(out[0].has_add_rule());
  EXPECT_TRUE(out[2].has_remove_endpoint());
  EXPECT_TRUE(out[3].has_remove_rule());
}

TEST(MergeWords, EveryBadWordIsNamed) {
  EXPECT_EQ(why({}), "policy update requires at least one operation flag");
  const auto endpoint = [](const std::string& word) {
    MergeWords words;
    words.add_endpoints = {word};
    return why(words);
  };
  EXPECT_EQ(endpoint("a.test"), "--add-endpoint expects host:port[:access[:protocol[:enforcement[:options]]]], got 'a.test'");
  EXPECT_EQ(endpoint(":443"), "--add-endpoint has an empty host segment in ':443'");
  EXPECT_EQ(endpoint("a.test:0"), "--add-endpoint port must be in the range 1-65535, got '0' in 'a.test:0'");
  EXPECT_THAT(endpoint("a.test:65536"), HasSubstr("got '65536'"));
  EXPECT_THAT(endpoint("a.test:443:"), HasSubstr("access segment must be one of read-only, read-write, or full; got ''"));
  EXPECT_THAT(endpoint("a.test:443::ftp"), HasSubstr("protocol segment must be 'tcp', 'rest', 'websocket', or 'sql'; got 'ftp'"));
  EXPECT_THAT(endpoint("a.test:443::rest:strict"), HasSubstr("enforcement segment must be 'enforce' or 'audit'; got 'strict'"));
  EXPECT_THAT(endpoint("a.test:443:::enforce"), HasSubstr("requires a protocol segment"));
  EXPECT_THAT(endpoint("a.test:443:full:tcp"), HasSubstr("takes neither access nor enforcement"));
  EXPECT_THAT(endpoint("a.test:443::sql::request-body-credential-rewrite"), HasSubstr("requires protocol rest"));
  EXPECT_THAT(endpoint("a.test:443::rest::shiny"), HasSubstr("option 'shiny' is not known"));
  MergeWords words;
  words.add_allow = {"a.test:443:GET:/x"};
  EXPECT_THAT(why(words), HasSubstr("require --rule-name and either the complete --binary list or --any-binary"));
  words.rule_name = "r";
  words.any_binary = true;
  EXPECT_EQ(why(words), "");
  words.add_allow = {"a.test:443:GET:x"};
  EXPECT_EQ(why(words), "--add-allow path must start with '/' or be '**', got 'x' in 'a.test:443:GET:x'");
  words = {};
  words.remove_rules = {" "};
  EXPECT_EQ(why(words), "--remove-rule values must not be empty");
  words.remove_rules = {"r"};
  words.binaries = {"/x"};
  EXPECT_THAT(why(words), HasSubstr("--binary goes with"));
  words.binaries = {""};
  EXPECT_EQ(why(words), "--binary values must not be empty");
  words = {};
  words.add_endpoints = {"a.test:1", "b.test:1"};
  words.rule_name = "r";
  EXPECT_EQ(why(words), "--rule-name is only supported when exactly one --add-endpoint is provided");
}

}  // namespace
}  // namespace openshell::cli
