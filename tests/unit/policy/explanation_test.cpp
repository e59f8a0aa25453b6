#include "policy/explanation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/parse.hpp"

namespace openshell::policy {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

pb::SandboxPolicy policy() {
  return *load_policy(
              "version: 1\n"
              "network_policies:\n"
              "  weather:\n"
              "    endpoints: [{host: api.weather.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}]\n"
              "    binaries: [/usr/bin/curl]\n")
              .policy;
}
Question ask(const std::string& host, std::uint16_t port, const std::string& binary, const std::string& method = "",
             const std::string& path = "") {
  Question question{host, port, binary, {}, {}, {}, false};
  if (!method.empty()) question.request = Question::Http{method, path, {}, {}, {}};
  return question;
}

TEST(Explain, AnAllowedRequestNamesItsRule) {
  const auto found = *explain(policy(), ask("api.weather.test", 443, "/usr/bin/curl", "GET", "/v1"));
  EXPECT_EQ(found.judgement.decision, Decision::allow);
  EXPECT_EQ(found.judgement.rule, "weather");
  EXPECT_EQ(found.judgement.endpoint, 0U);
  EXPECT_THAT(found.near, IsEmpty());
  EXPECT_EQ(found.smallest_change, "");
}

TEST(Explain, TheFieldThatFailsAndTheChangeThatHelps) {
  const auto method = *explain(policy(), ask("api.weather.test", 443, "/usr/bin/curl", "POST", "/v1/items"));
  EXPECT_EQ(method.judgement.decision, Decision::deny);
  ASSERT_THAT(method.near, SizeIs(1));
  EXPECT_EQ(method.near[0].field, "method");
  EXPECT_EQ(method.smallest_change,
            "openshell policy update --rule-name weather --binary /usr/bin/curl --add-allow 'api.weather.test:443:POST:/v1/items'");
  const auto binary = *explain(policy(), ask("api.weather.test", 443, "/usr/bin/wget"));
  EXPECT_EQ(binary.near.at(0).field, "binary");
  EXPECT_EQ(binary.smallest_change,
            "openshell policy update --rule-name weather --add-endpoint api.weather.test:443 --binary /usr/bin/wget");
  EXPECT_EQ(explain(policy(), ask("api.weather.test", 8443, "/usr/bin/curl"))->near.at(0).field, "port");
  EXPECT_EQ(explain(policy(), ask("www.weather.test", 443, "/usr/bin/curl"))->near.at(0).field, "host");
}

TEST(Explain, WhatNoPolicyCouldOpenHasNoChange) {
  for (const char* host : {"127.0.0.1", "169.254.169.254", "localhost"}) {
    EXPECT_EQ(explain(policy(), ask(host, 80, "/usr/bin/curl"))->smallest_change, "") << host;
  }
  const auto other = *explain(policy(), ask("other.test", 443, "/usr/bin/wget"));
  EXPECT_THAT(other.near, IsEmpty()) << "more than one field fails";
  EXPECT_EQ(other.smallest_change, "openshell policy update --add-endpoint other.test:443 --binary /usr/bin/wget");
}

}  // namespace
}  // namespace openshell::policy
