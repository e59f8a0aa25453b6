// Which reports of endpoints are taken and what they change.
#include "actors/gateway/endpoint_statuses.hpp"

#include <gmock/gmock.h>

#include "policy/endpoint_inventory.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

using openshell::sandbox::v1::SandboxPolicy;
using testing::HasSubstr;

constexpr Millis kNow = 1'800'000'000'000;

void add(SandboxPolicy& policy, const std::string& rule, const std::string& host, bool credentialed = false) {
  auto& endpoint = *(*policy.mutable_network_policies())[rule].add_endpoints();
  endpoint.set_host(host);
  endpoint.add_ports(443);
  endpoint.set_protocol("mcp");
  endpoint.set_provider_credentialed(credentialed);
}

class EndpointStatuses : public testing::Test {
 protected:
  EndpointStatuses() {
    add(policy_, "a", "Tools.Example.com");
    add(policy_, "b", "mcp.example.com", true);
    for (const auto& each : policy::endpoint_inventory(policy_)) ids_.push_back(each.id);
  }
  pb::ReportEndpointStatusRequest report(std::uint64_t sequence, std::vector<pb::EndpointResult> results, std::vector<int> observed = {}) {
    pb::ReportEndpointStatusRequest out;
    out.set_report_sequence(sequence);
    for (std::size_t i = 0; i < results.size(); ++i) {
      auto& one = *out.add_observations();
      one.set_endpoint_id(ids_[i]);
      one.set_result(results[i]);
    }
    for (const int i : observed) out.add_observed_endpoint_ids(ids_[static_cast<std::size_t>(i)]);
    return out;
  }
  absl::Status apply(const pb::ReportEndpointStatusRequest& request, Millis now = kNow) {
    return apply_endpoints(status_, request, policy_, now);
  }
  const pb::EndpointStatus& at(std::size_t i) {
    for (const auto& one : status_.endpoint_statuses()) {
      if (one.endpoint_id() == ids_[i]) return one;
    }
    static const pb::EndpointStatus none;
    return none;
  }
  SandboxPolicy policy_;
  std::vector<std::string> ids_;
  pb::SandboxStatus status_;
};

constexpr auto kNothing = pb::ENDPOINT_RESULT_NO_OBSERVED_EXCHANGE;
constexpr auto kAnswered = pb::ENDPOINT_RESULT_HTTP_RESPONSE_RECEIVED;
constexpr auto kNoCredential = pb::ENDPOINT_RESULT_CREDENTIAL_UNAVAILABLE;

TEST_F(EndpointStatuses, TakeAddressesFromThePolicyAndTimesFromTheClock) {  // TS-10, TS-13
  ASSERT_TRUE(apply(report(1, {kAnswered, kNothing}, {0})).ok());
  EXPECT_EQ(at(0).host(), "tools.example.com");
  EXPECT_EQ(at(0).ports(0), 443U);
  EXPECT_EQ(at(0).path(), "/**");
  EXPECT_EQ(to_millis(at(0).last_reported_time()), kNow);
  EXPECT_FALSE(at(1).has_last_reported_time());
  ASSERT_TRUE(apply(report(2, {kAnswered, kNothing}), kNow + 5000).ok());
  EXPECT_EQ(to_millis(at(0).last_reported_time()), kNow) << "not observed again: the time stays";
  ASSERT_TRUE(apply(report(3, {kAnswered, kNothing}, {0}), kNow + 9000).ok());
  EXPECT_EQ(to_millis(at(0).last_reported_time()), kNow + 9000);
}

TEST_F(EndpointStatuses, AreRefusedWhereTheyDoNotFitThePolicy) {  // TS-32, TS-12
  EXPECT_THAT(apply(report(1, {kNothing})).ToString(), HasSubstr("must contain the complete current endpoint set"));
  auto foreign = report(1, {kNothing, kNothing});
  foreign.mutable_observations(0)->set_endpoint_id("endpoint:v1:00");
  EXPECT_THAT(apply(foreign).ToString(), HasSubstr("outside the current policy"));
  foreign.mutable_observations(0)->clear_endpoint_id();
  EXPECT_THAT(apply(foreign).ToString(), HasSubstr("endpoint_id is required"));
  auto twice = report(1, {kNothing, kNothing});
  twice.mutable_observations(1)->set_endpoint_id(ids_[0]);
  EXPECT_THAT(apply(twice).ToString(), HasSubstr("endpoint_ids must be unique"));
  EXPECT_THAT(apply(report(1, {pb::ENDPOINT_RESULT_UNSPECIFIED, kNothing})).ToString(), HasSubstr("result is required"));
  EXPECT_THAT(apply(report(1, {static_cast<pb::EndpointResult>(99), kNothing})).ToString(), HasSubstr("result is invalid"));
  EXPECT_TRUE(status_.endpoint_statuses().empty()) << "a refused report changes nothing";
}

TEST_F(EndpointStatuses, MarkWhatIsNew) {
  EXPECT_THAT(apply(report(1, {kAnswered, kNothing})).ToString(), HasSubstr("must be marked as observed"));
  EXPECT_THAT(apply(report(1, {kNothing, kNothing}, {0})).ToString(), HasSubstr("cannot report no observed exchange"));
  EXPECT_THAT(apply(report(1, {kAnswered, kNothing}, {0, 0})).ToString(), HasSubstr("observed endpoint_ids must be unique"));
  auto outside = report(1, {kNothing, kNothing});
  outside.add_observed_endpoint_ids("endpoint:v1:00");
  EXPECT_THAT(apply(outside).ToString(), HasSubstr("observed endpoint_id is outside the current snapshot"));
}

TEST_F(EndpointStatuses, ExplainMissingCredentialsOnlyWhereThereAreSome) {  // TS-16
  EXPECT_THAT(apply(report(1, {kNoCredential, kNothing}, {0})).ToString(), HasSubstr("requires a credentialed tool server endpoint"));
  auto explained = report(1, {kNothing, kNoCredential}, {1});
  auto& failure = *explained.mutable_observations(1)->mutable_failure();
  failure.set_domain(pb::ENDPOINT_FAILURE_DOMAIN_TOKEN_GRANT);
  failure.set_code("token_endpoint_unreachable");
  failure.set_stage("exchange");
  ASSERT_TRUE(apply(explained).ok());
  EXPECT_EQ(at(1).last_failure().code(), "token_endpoint_unreachable");
  for (const char* code : {"", "Upper", "with space", "\x01"}) {
    failure.set_code(code);
    EXPECT_THAT(apply(explained).ToString(), HasSubstr("failure is invalid")) << code;
  }
  failure.set_code(std::string(kMaxFailureWord, 'a'));
  EXPECT_TRUE(apply(explained).ok());
  failure.set_code(std::string(kMaxFailureWord + 1, 'a'));
  EXPECT_FALSE(apply(explained).ok());
  failure.set_code("x");
  failure.set_request_id(std::string(kMaxFailureRequestId + 1, 'a'));
  EXPECT_FALSE(apply(explained).ok());
  ASSERT_TRUE(apply(report(2, {kNothing, kAnswered}, {1})).ok());
  EXPECT_FALSE(at(1).has_last_failure()) << "a later result clears it";
}

TEST_F(EndpointStatuses, KeepTheLastTokenGrantFailureUntilTheyAreTold) {
  auto told = report(1, {kNothing, kNothing});
  auto& failure = *told.mutable_token_grant_status()->mutable_last_failure();
  failure.set_destination_host("h");
  failure.mutable_failure()->set_domain(pb::ENDPOINT_FAILURE_DOMAIN_TOKEN_GRANT);
  failure.mutable_failure()->set_code("c");
  failure.mutable_failure()->set_stage("s");
  ASSERT_TRUE(apply(told).ok());
  ASSERT_TRUE(apply(report(2, {kNothing, kNothing})).ok());
  EXPECT_EQ(status_.last_token_grant_failure().destination_host(), "h");
  auto cleared = report(3, {kNothing, kNothing});
  cleared.mutable_token_grant_status();
  ASSERT_TRUE(apply(cleared).ok());
  EXPECT_FALSE(status_.has_last_token_grant_failure());
}

TEST_F(EndpointStatuses, FollowThePolicy) {
  ASSERT_TRUE(apply(report(1, {kAnswered, kNothing}, {0})).ok());
  SandboxPolicy smaller;
  add(smaller, "b", "mcp.example.com", true);
  auto request = report(2, {});
  auto& one = *request.add_observations();
  one.set_endpoint_id(ids_[1]);
  one.set_result(kNothing);
  ASSERT_TRUE(apply_endpoints(status_, request, smaller, kNow).ok());
  EXPECT_EQ(status_.endpoint_statuses_size(), 1) << "retired endpoints vanish";
}

TEST_F(EndpointStatuses, AreForgottenAndKeepTheirAddresses) {  // TS-34, TS-37, TS-14
  ASSERT_TRUE(apply(report(1, {kAnswered, kAnswered}, {0, 1})).ok());
  auto whole = status_;
  EXPECT_TRUE(forget_results(whole));
  EXPECT_FALSE(forget_results(whole)) << "nothing more to forget";
  for (const auto& each : whole.endpoint_statuses()) {
    EXPECT_EQ(each.last_result(), kNothing);
    EXPECT_FALSE(each.has_last_reported_time());
    EXPECT_FALSE(each.host().empty());
  }
  EXPECT_TRUE(forget_credentialed(status_, policy_));
  EXPECT_EQ(at(0).last_result(), kAnswered) << "no credential is resolved there";
  EXPECT_EQ(at(1).last_result(), kNothing);
}

TEST_F(EndpointStatuses, OfOneSessionComeInOrder) {  // TS-31, TS-41
  EndpointCursor cursor;
  const auto first = report(3, {kNothing, kNothing});
  EXPECT_TRUE(*advance(cursor, first)) << "gaps are fine";
  cursor = cursor_of(first);
  EXPECT_FALSE(*advance(cursor, first)) << "repeated: nothing to do";
  EXPECT_THAT(advance(cursor, report(3, {kNothing, kAnswered}, {1})).status().ToString(), HasSubstr("must reuse the identical request"));
  EXPECT_THAT(advance(cursor, report(2, {kNothing, kNothing})).status().ToString(), HasSubstr("older than the current session cursor"));
  EXPECT_TRUE(*advance(cursor, report(9, {kNothing, kNothing})));
}

}  // namespace
}  // namespace openshell::gateway
