// What an agent finds at http://policy.local.
#include "programs/supervisor/policy_local.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <future>

#include "egress/generation.hpp"
#include "openshell.pb.h"
#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "programs/supervisor/proposal_body.hpp"
#include "sandbox.pb.h"

namespace openshell::supervisor {
namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::SizeIs;

constexpr const char* kBody = R"({"intent_summary":"why","operations":[{"addRule":{"ruleName":"weather","rule":{
  "endpoints":[{"host":"api.test","port":443,"protocol":"rest","enforcement":"enforce","rules":[{"allow":{"method":"GET","path":"/v1"}}]}],
  "binaries":[{"path":"/usr/bin/curl"}]}}}]})";

std::shared_ptr<const egress::Generation> generation(bool proposals, const std::string& rules = "") {
  auto policy = policy::load_policy("version: 1\n" + rules);
  EXPECT_TRUE(policy.ok()) << policy.diagnostics.render();
  auto out = std::make_shared<egress::Generation>();
  out->matcher = *policy::Matcher::compile(*policy.policy);
  out->agent_proposals = proposals;
  return out;
}

/// The service over a gateway that answers at once.
class PolicyLocalTest : public testing::Test {
 protected:
  PolicyLocalTest() { service->published(generation(true)); }

  json::object ask(const std::string& method, const std::string& path, const std::string& query = "", const std::string& body = "") {
    std::promise<egress::LocalResponse> answered;
    service->handle({method, path, query, body, "/usr/bin/curl"}, caller,
                    [&](egress::LocalResponse response) { answered.set_value(std::move(response)); });
    auto response = answered.get_future().get();
    status = response.status;
    return response.json.empty() ? json::object{} : json::parse(response.json).as_object();
  }
  std::string error(const json::object& answer) { return std::string{answer.at("error").as_string()}; }
  std::string detail(const json::object& answer) { return std::string{answer.at("detail").as_string()}; }
  void chunk_is(const std::string& state) {
    drafts = v1::GetDraftPolicyResponse{};
    auto& chunk = *drafts->add_chunks();
    chunk.set_id("c1");
    chunk.set_status(state);
    chunk.set_rule_name("weather");
    *chunk.mutable_proposed_rule() = parse_proposal_body(kBody)->front().proposed_rule();
  }

  int status = 0;
  absl::StatusOr<v1::SubmitPolicyAnalysisResponse> taken = v1::SubmitPolicyAnalysisResponse{};
  absl::StatusOr<v1::GetDraftPolicyResponse> drafts = v1::GetDraftPolicyResponse{};
  std::vector<v1::SubmitPolicyAnalysisRequest> submitted;
  std::function<void()> before_answer = [] {};
  std::shared_ptr<DenialLines> denials = std::make_shared<DenialLines>();
  std::shared_ptr<TimerThread> timers = std::make_shared<TimerThread>();
  std::shared_ptr<int> caller = std::make_shared<int>();
  std::shared_ptr<PolicyLocal> service =
      std::make_shared<PolicyLocal>(PolicyLocal::Gateway{[this](v1::SubmitPolicyAnalysisRequest request, auto done) {
                                                           submitted.push_back(std::move(request));
                                                           done(taken);
                                                         },
                                                         [this](auto done) {
                                                           before_answer();
                                                           done(drafts);
                                                         }},
                                    denials, timers,
                                    PolicyLocal::Limits{.default_wait = std::chrono::seconds{1},
                                                        .longest_wait = std::chrono::seconds{1},
                                                        .ask_every = std::chrono::milliseconds{5},
                                                        .look_every = std::chrono::milliseconds{5},
                                                        .last_look = std::chrono::milliseconds{20}});
};

TEST_F(PolicyLocalTest, SwitchedOffEveryRouteSaysSo) {
  service->published(generation(false));
  for (const char* path : {"/v1/policy/current", "/v1/denials", "/v1/proposals/c1", "/anything"}) {
    EXPECT_EQ(error(ask("GET", path)), "feature_disabled") << path;
    EXPECT_EQ(status, 404);
  }
  EXPECT_EQ(error(ask("POST", "/v1/proposals", "", kBody)), "feature_disabled");
  EXPECT_THAT(submitted, SizeIs(0));
}

TEST_F(PolicyLocalTest, ThePolicyInForce) {
  service->published(generation(true, "network_policies: {web: {endpoints: [{host: a.test, port: 443}]}}\n"));
  const auto answer = ask("GET", "/v1/policy/current");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(answer.at("format").as_string(), "yaml");
  EXPECT_THAT(std::string{answer.at("policy_yaml").as_string()}, HasSubstr("host: a.test"));
  auto quarantine = std::make_shared<egress::Generation>();
  quarantine->agent_proposals = true;
  service->published(quarantine);
  EXPECT_EQ(error(ask("GET", "/v1/policy/current")), "policy_unavailable");
}

TEST_F(PolicyLocalTest, TheNewestDenialsWithoutQueries) {
  for (int i = 0; i < 120; ++i) {
    egress::ActivityEvent event;
    event.event_class = egress::EventClass::kConfig;  // its text is its message
    event.disposition = egress::Disposition::kDenied;
    event.message = "https://a.test/" + std::to_string(i) + "?token=sesame] [x]";
    denials->push(std::move(event));
  }
  const auto count = [&](const std::string& query) { return ask("GET", "/v1/denials", query).at("denials").as_array().size(); };
  EXPECT_EQ(count(""), 10U);
  EXPECT_EQ(count("last=500"), 100U);
  EXPECT_EQ(count("last=0"), 1U);
  EXPECT_EQ(count("last=x"), 10U);
  const std::string first{ask("GET", "/v1/denials", "last=1").at("denials").as_array().front().as_string()};
  EXPECT_TRUE(first.ends_with("https://a.test/119?[redacted]] \\[x\\]")) << first;
}

TEST(DenialLines, ALongLineIsCut) {
  const auto line = without_queries(std::string(5'000, 'a'));
  EXPECT_LE(line.size(), DenialLines::kMaxLineBytes + 20);
  EXPECT_TRUE(line.ends_with("...[truncated]"));
  for (std::size_t more = 1; more <= 4; ++more)
    EXPECT_TRUE(without_queries(std::string(DenialLines::kMaxLineBytes + more, 'a')).ends_with("...[truncated]")) << more;
  EXPECT_EQ(without_queries(std::string(DenialLines::kMaxLineBytes, 'a')), std::string(DenialLines::kMaxLineBytes, 'a'));
  EXPECT_EQ(without_queries("a?b c?d"), "a?[redacted] c?[redacted]");
}

TEST_F(PolicyLocalTest, AProposalGoesToTheGatewayAsAnAgents) {
  taken->set_accepted_chunks(1);
  taken->add_accepted_chunk_ids("c1");
  const auto answer = ask("POST", "/v1/proposals", "", kBody);
  EXPECT_EQ(status, 202);
  EXPECT_EQ(answer.at("status").as_string(), "submitted");
  EXPECT_EQ(answer.at("accepted_chunk_ids").as_array().front().as_string(), "c1");
  ASSERT_THAT(submitted, SizeIs(1));
  EXPECT_EQ(submitted[0].analysis_mode(), "agent_authored");
  const auto& chunk = submitted[0].proposed_chunks(0);
  EXPECT_EQ(chunk.rule_name(), "weather");
  EXPECT_EQ(chunk.rationale(), "why");
  EXPECT_EQ(chunk.stage(), "agent");
  EXPECT_EQ(chunk.binary(), "/usr/bin/curl");
  EXPECT_TRUE(chunk.proposed_rule().endpoints(0).advisor_proposed());
  EXPECT_EQ(chunk.proposed_rule().endpoints(0).rules(0).allow().path(), "/v1");
  taken = absl::UnavailableError("away");
  EXPECT_EQ(error(ask("POST", "/v1/proposals", "", kBody)), "gateway_unavailable");
  EXPECT_EQ(status, 503);
  taken = absl::InvalidArgumentError("no");
  EXPECT_EQ(error(ask("POST", "/v1/proposals", "", kBody)), "proposal_submit_failed");
  EXPECT_EQ(status, 502);
}

TEST_F(PolicyLocalTest, RoutesThatAreNone) {
  EXPECT_EQ(detail(ask("GET", "/v2")), "policy.local route not found: GET /v2");
  EXPECT_EQ(detail(ask("PUT", "/v1/proposals")), "policy.local route not found: PUT /v1/proposals");
  for (const char* path : {"/v1/proposals/", "/v1/proposals/a/b", "/v1/proposals/a/wait/b"}) {
    EXPECT_THAT(detail(ask("GET", path)), HasSubstr("sub-route not found")) << path;
    EXPECT_EQ(status, 404);
  }
}

TEST_F(PolicyLocalTest, TheStateOfAProposal) {
  chunk_is("pending");
  const auto answer = ask("GET", "/v1/proposals/c1");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(answer.at("status").as_string(), "pending");
  EXPECT_FALSE(answer.contains("policy_reloaded"));
  EXPECT_EQ(error(ask("GET", "/v1/proposals/c2")), "chunk_not_found");
  chunk_is("approved");
  EXPECT_FALSE(ask("GET", "/v1/proposals/c1").at("policy_reloaded").as_bool());
  drafts = absl::DeadlineExceededError("slow");
  EXPECT_EQ(error(ask("GET", "/v1/proposals/c1")), "gateway_unavailable");
  drafts = absl::PermissionDeniedError("no");
  EXPECT_EQ(error(ask("GET", "/v1/proposals/c1")), "gateway_lookup_failed");
}

TEST_F(PolicyLocalTest, WaitingEndsWithTheDecisionOrWithTheTime) {
  chunk_is("pending");
  EXPECT_TRUE(ask("GET", "/v1/proposals/c1/wait", "timeout=0").at("timed_out").as_bool()) << "at least a second, and then";
  int asked = 0;
  before_answer = [&] {
    if (++asked == 3) chunk_is("rejected");
  };
  EXPECT_EQ(ask("GET", "/v1/proposals/c1/wait").at("status").as_string(), "rejected");
  EXPECT_EQ(asked, 3);
}

TEST_F(PolicyLocalTest, AnApprovalIsToldOnceThePolicyCoversTheRule) {
  chunk_is("approved");
  const auto late = ask("GET", "/v1/proposals/c1/wait", "timeout=1");
  EXPECT_FALSE(late.at("policy_reloaded").as_bool());
  service->published(generation(true,
                                "network_policies: {w: {endpoints: [{host: api.test, port: 443, protocol: rest, enforcement: enforce, "
                                "rules: [{allow: {method: GET, path: "
                                "/v1}}]}], binaries: [/usr/bin/curl]}}\n"));
  EXPECT_TRUE(ask("GET", "/v1/proposals/c1/wait", "timeout=1").at("policy_reloaded").as_bool());
}

TEST_F(PolicyLocalTest, NobodyIsAskedForACallerWhoIsGone) {
  chunk_is("pending");
  int asked = 0;
  before_answer = [&] {
    ++asked;
    caller.reset();
  };
  ask("GET", "/v1/proposals/c1/wait", "timeout=1");
  EXPECT_EQ(asked, 1);
}

// ---- bodies

std::string fault(const std::string& body) {
  const auto parsed = parse_proposal_body(body);
  return parsed.ok() ? "accepted" : std::string{parsed.status().message()};
}
std::string with_endpoint(const std::string& endpoint) {
  return R"({"operations":[{"addRule":{"ruleName":"r","rule":{"endpoints":[)" + endpoint + R"(],"binaries":[{"path":"/b"}]}}}]})";
}

TEST(ProposalBody, WhatIsMissingOrForbiddenIsNamed) {
  EXPECT_EQ(fault(kBody), "accepted");
  EXPECT_THAT(fault("{"), HasSubstr("no JSON"));
  EXPECT_EQ(fault("{}"), "proposal requires at least one operation");
  EXPECT_EQ(fault(R"({"operations":[]})"), "proposal requires at least one operation");
  EXPECT_THAT(fault(R"({"operations":[{"removeRule":{}}]})"), HasSubstr("this MVP accepts `addRule` operations"));
  EXPECT_EQ(fault(R"({"operations":[{"addRule":{"ruleName":"r","rule":{"endpoints":[]}}}]})"),
            "rule.endpoints must contain at least one endpoint");
  EXPECT_EQ(fault(with_endpoint(R"({"port":443})")), "endpoint.host is required");
  EXPECT_EQ(fault(with_endpoint(R"({"host":"a.test"})")), "endpoint.port or endpoint.ports is required");
  EXPECT_EQ(fault(R"({"operations":[{"addRule":{"rule":{"endpoints":[{"host":"a.test","port":1}]}}}]})"),
            "addRule.ruleName or rule.name is required");
  for (const char* forbidden : {R"("protocol":"tcp")", R"("protocol":"SQL")", R"("tls":"skip")"}) {
    EXPECT_THAT(fault(with_endpoint(std::string{R"({"host":"a.test","port":443,)"} + forbidden + "}")),
                HasSubstr("an administrator must add such access"));
  }
  EXPECT_EQ(fault(with_endpoint(R"({"host":"a.test","port":443,"protocol":"rest","rules":[{"allow":{"method":"GET","path":"/a?b=c"}}]})")),
            "L7 allow paths must not include query strings");
}

TEST(ProposalBody, AKeyThatWouldBeDroppedIsRefusedByName) {
  EXPECT_THAT(fault(with_endpoint(R"({"host":"a.test","port":443,"path":"/v1"})")), HasSubstr("rule.endpoints[0] does not take 'path'"));
  EXPECT_THAT(fault(with_endpoint(R"({"host":"a.test","port":443,"rules":[{"allow":{"tool":"x"}}]})")), HasSubstr("does not take 'tool'"));
  EXPECT_THAT(fault(with_endpoint(R"({"host":"a.test","port":443,"deny_rules":[{"query":{}}]})")), HasSubstr("does not take 'query'"));
  EXPECT_THAT(fault(with_endpoint(R"({"host":"a.test","port":443,"enforcement":"perhaps"})")), HasSubstr("enforcement"));
  EXPECT_THAT(fault(with_endpoint(R"({"host":7,"port":443})")), HasSubstr("endpoint.host is required"));
  EXPECT_THAT(fault(with_endpoint(R"({"host":"a.test","port":"443"})")), HasSubstr("port"));
}

TEST(ProposalBody, HasBounds) {
  std::string operations;
  const auto one = R"({"addRule":{"ruleName":"r","rule":{"endpoints":[{"host":"a.test","port":1}]}}})";
  for (std::size_t i = 0; i < kMaxProposedOperations; ++i) operations += (i == 0 ? "" : ",") + std::string{one};
  EXPECT_EQ(fault("{\"operations\":[" + operations + "]}"), "accepted");
  EXPECT_THAT(fault("{\"operations\":[" + operations + "," + one + "]}"), HasSubstr("at most 32 operations"));
  EXPECT_THAT(fault("{\"intent_summary\":\"" + std::string(2'049, 'a') + "\",\"operations\":[" + one + "]}"),
              HasSubstr("at most 2048 bytes"));
  EXPECT_NE(fault(std::string(60'000, '[')), "accepted") << "nesting has an end";
}

}  // namespace
}  // namespace openshell::supervisor
