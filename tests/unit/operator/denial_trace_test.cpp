#include "api/operator/denial_trace.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "tests/unit/operator/fake_source.hpp"

namespace openshell::api {
namespace {

TEST(DeniedLine, AnOpenIsRead) {
  const auto open = parse_denied_line(
      "NET:OPEN [MED] DENIED /usr/bin/bash(17) -> host.openshell.internal:9091 [policy:- engine:l4] [reason:no rule \\[x\\] admits it]");
  ASSERT_TRUE(open);
  EXPECT_EQ(open->binary, "/usr/bin/bash");
  EXPECT_EQ(open->host, "host.openshell.internal");
  EXPECT_EQ(open->port, 9091U);
  EXPECT_EQ(open->method, "");
  EXPECT_EQ(open->policy, "-");
  EXPECT_EQ(open->reason, "no rule [x] admits it");
}

TEST(DeniedLine, ARequestIsRead) {
  const auto open = parse_denied_line(
      "HTTP:DELETE [MED] DENIED /usr/bin/curl(3) -> DELETE https://api.test/v1/x?y [policy:shop engine:rest] [reason:not permitted]");
  ASSERT_TRUE(open);
  EXPECT_EQ(open->method, "DELETE");
  EXPECT_EQ(open->path, "/v1/x?y");
  EXPECT_EQ(open->host, "api.test");
  EXPECT_EQ(open->port, 443U);
  const auto plain = parse_denied_line("HTTP:GET [MED] DENIED /usr/bin/curl(3) -> GET http://api.test:8080/ [reason:x]");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->port, 8080U);
  const auto nobody = parse_denied_line("NET:OPEN [MED] DENIED [2001:db8::1]:443 [reason:x]");
  ASSERT_TRUE(nobody);
  EXPECT_EQ(nobody->binary, "-");
  EXPECT_EQ(nobody->host, "[2001:db8::1]");
}

TEST(DeniedLine, EverythingElseIsNothing) {
  for (const char* line : {"", "NET:OPEN [INFO] ALLOWED /usr/bin/curl(3) -> a:1", "NET:OPEN [MED] DENIED ", "NET:OPEN [MED] DENIED a:99999",
                           "HTTP:GET [MED] DENIED GET", "FINDING:BLOCKED [HIGH] DENIED x:1", "NET:OPEN [MED] DENIED ) -> a:1"}) {
    EXPECT_FALSE(parse_denied_line(line)) << line;
  }
}

class Trace : public testing::Test {
 protected:
  Trace() {
    gateway::DenialLine line;
    line.denial_id = "d1";
    line.sandbox_id = "s1";
    line.text = "NET:OPEN [MED] DENIED /usr/bin/bash(17) -> api.test:443 [policy:- engine:l4] [reason:no rule admits it]";
    line.at = 1'000;
    source_->lines.push_back(line);
  }
  v1::PolicyChunk& propose(const std::string& status, const std::string& denial) {
    auto& chunk = *source_->drafts.add_chunks();
    chunk.set_id("c1");
    chunk.set_status(status);
    chunk.set_rule_name("allow_api_test");
    chunk.set_binary("/usr/bin/bash");
    chunk.add_denial_summary_ids(denial);
    auto& endpoint = *chunk.mutable_proposed_rule()->add_endpoints();
    endpoint.set_host("api.test");
    endpoint.set_port(443);
    return chunk;
  }
  boost::json::object trace(const std::string& id = "d1") {
    std::string text;
    trace_denials(source_, id, [&](std::string json) { text = std::move(json); });
    return boost::json::parse(text).as_object();
  }
  static std::string state(const boost::json::object& trace, std::string_view id) {
    for (const auto& step : trace.at("steps").as_array()) {
      if (step.as_object().at("id").as_string() == id) return std::string{step.as_object().at("state").as_string()};
    }
    return "absent";
  }

  std::shared_ptr<test::FakeSource> source_ = std::make_shared<test::FakeSource>();
};

TEST_F(Trace, PP_15_FromTheProgramToThePolicy) {
  auto& chunk = propose("approved", "d1");
  chunk.mutable_decided_time()->set_seconds(50);
  auto& revision = *source_->policies.add_revisions();
  revision.set_version(2);
  revision.set_status(v1::POLICY_STATUS_LOADED);
  revision.mutable_created_time()->set_seconds(50);
  auto& older = *source_->policies.add_revisions();
  older.set_version(1);
  older.mutable_created_time()->set_seconds(10);
  const auto found = trace();
  EXPECT_EQ(found.at("denial").as_object().at("sandbox").as_string(), "default/s1");
  for (const char* step : {"workload", "proposal", "person", "policy"}) EXPECT_EQ(state(found, step), "done") << step;
  EXPECT_EQ(state(found, "decision"), "refused");
  EXPECT_EQ(found.at("steps").as_array().back().as_object().at("title").as_string(), "Policy revision 2");
}

TEST_F(Trace, PP_15_AFoldedDenialIsFoundThroughItsKey) {
  propose("pending", "another");
  const auto found = trace();
  EXPECT_EQ(state(found, "proposal"), "done");
  EXPECT_EQ(state(found, "person"), "waiting");
  const auto& person = found.at("steps").as_array().back().as_object();
  EXPECT_EQ(person.at("text").as_string(), "openshell rule approve s1 --chunk-id c1");
}

TEST_F(Trace, PP_15_AnotherProgramsProposalIsNotItsOwn) {
  propose("pending", "another").set_binary("/usr/bin/curl");
  EXPECT_EQ(state(trace(), "proposal"), "none");
}

TEST_F(Trace, ARejectionSaysWhy) {
  propose("rejected", "d1").set_rejection_reason("not this host");
  const auto found = trace();
  EXPECT_EQ(state(found, "person"), "refused");
  EXPECT_EQ(state(found, "policy"), "absent");
}

TEST_F(Trace, AnUnknownIdIsSaidAndTheNewestAreListed) {
  EXPECT_TRUE(trace("nowhere").contains("error"));
  const auto all = trace("");
  EXPECT_EQ(all.at("denials").as_array().at(0).as_object().at("id").as_string(), "d1");
}

}  // namespace
}  // namespace openshell::api
