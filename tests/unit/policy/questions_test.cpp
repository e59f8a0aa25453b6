// Questions as documents, tables of tests, records of decisions and their replay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "policy/decision_record.hpp"
#include "policy/decision_tests.hpp"
#include "policy/parse.hpp"
#include "policy/question_document.hpp"
#include "policy/replay.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

constexpr const char* kConnection = R"({"network":{"host":"api.test","port":443},"exec":{"path":"/usr/bin/curl"}})";

std::string fault(std::string_view text) {
  const auto question = parse_question(text, "in");
  return question.ok() ? "accepted" : std::string{question.status().message()};
}

pb::SandboxPolicy policy_of(const std::string& text) {
  auto result = load_policy(text);
  EXPECT_TRUE(result.ok()) << result.diagnostics.render();
  return *result.policy;
}

const std::string kWeather =
    "version: 1\n"
    "network_policies:\n"
    "  weather:\n"
    "    endpoints:\n"
    "      - host: api.test\n"
    "        port: 443\n"
    "        protocol: rest\n"
    "        enforcement: enforce\n"
    "        rules:\n"
    "          - allow: {method: GET, path: \"/v1/**\"}\n"
    "    binaries: [/usr/bin/curl]\n";

TEST(QuestionDocument, ARequestWithEverythingComesBackAsItWas) {
  const std::string text =
      R"({"network":{"host":"api.test","port":443},"exec":{"path":"/usr/bin/curl","ancestors":["/usr/bin/bash"],"cmdline_paths":["/w/run.sh"]},)"
      R"("request":{"method":"POST","path":"/v1","query_params":{"tag":["a","b"],"z":[""]},)"
      R"("graphql":{"operations":[{"operation_type":"query","operation_name":"Q","fields":["viewer"],"persisted_query":true,)"
      R"("persisted_query_hash":"h","persisted_query_id":"i"}],"error":"e"},)"
      R"("jsonrpc":{"method":"tools/call","params":{"name":"search"},"tool":"search","mcp_method_classification":"available",)"
      R"("receive_stream":false,"has_response":true,"error":null}}})";
  const auto question = parse_question(text);
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_THAT(question->request->query, ElementsAre(Pair("tag", "a"), Pair("tag", "b"), Pair("z", "")));
  EXPECT_EQ(to_json(*question), text);
}

TEST(QuestionDocument, AncestorsAndCommandLineMayBeLeftOut) {
  const auto question = parse_question(kConnection);
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_FALSE(question->request.has_value());
  EXPECT_THAT(question->ancestors, IsEmpty());
  EXPECT_EQ(to_json(*question),
            R"({"network":{"host":"api.test","port":443},"exec":{"path":"/usr/bin/curl","ancestors":[],"cmdline_paths":[]}})");
}

TEST(QuestionDocument, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_THAT(fault("{"), HasSubstr("in:1:"));
  EXPECT_THAT(fault("[]"), HasSubstr("invalid input: the document: expected a mapping"));
  EXPECT_THAT(fault(R"({"exec":{"path":""}})"), HasSubstr("missing field 'network'"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test","port":443}})"), HasSubstr("missing field 'exec'"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test","port":0},"exec":{"path":""}})"), HasSubstr("network.port"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test","port":65536},"exec":{"path":""}})"), HasSubstr("out of range"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test","port":"443"},"exec":{"path":""}})"), HasSubstr("remove the quotes"));
  EXPECT_THAT(fault(R"({"network":{"host":"a\u0000.test","port":443},"exec":{"path":""}})"), HasSubstr("network.host contains NUL"));
  EXPECT_THAT(fault(R"({"network":{"host":"A.test","port":443},"exec":{"path":""}})"), HasSubstr("lower case"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test.","port":443},"exec":{"path":""}})"), HasSubstr("final dot"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test","port":443,"ip":"1.2.3.4"},"exec":{"path":""}})"),
              HasSubstr("unknown field 'network.ip'"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test","port":443},"exec":{"path":7}})"), HasSubstr("exec.path: expected a string"));
  EXPECT_THAT(fault(R"({"network":{"host":"a.test","port":443},"exec":{"path":""},"request":{"path":"/"}})"),
              HasSubstr("missing field 'method'"));
  EXPECT_THAT(
      fault(
          R"({"network":{"host":"a.test","port":443},"exec":{"path":""},"request":{"method":"GET","path":"/","query_params":{"a":"b"}}})"),
      HasSubstr("request.query_params.a: expected a list"));
  EXPECT_EQ(fault(R"({"network":{"host":"a.test","port":443},"exec":{"path":""},"request":null})"), "accepted");
}

TEST(QuestionDocument, AListHasAnEnd) {
  std::string values = "\"v\"";
  for (std::size_t i = 1; i < kMaxQuestionItems; ++i) values += ",\"v\"";
  const auto with = [&](const std::string& list) {
    return fault(
        R"({"network":{"host":"a.test","port":443},"exec":{"path":""},"request":{"method":"GET","path":"/","query_params":{"a":[)" + list +
        "]}}}");
  };
  EXPECT_EQ(with(values), "accepted");
  EXPECT_THAT(with(values + ",\"v\""), HasSubstr("more than 1000 items"));
}

TEST(QuestionDocument, TextThatIsNoUtf8IsWrittenAsJsonAllTheSame) {
  std::string out;
  append_json_text(out, "a\xff\"\n\xc3\xa4\xed\xa0\x80");
  EXPECT_EQ(out, "\"a\\ufffd\\\"\\u000a\xc3\xa4\\ufffd\\ufffd\\ufffd\"");
}

// ---- tests

std::string tests_fault(const std::string& text) {
  const auto tests = parse_decision_tests(text, "t.yaml");
  return tests.ok() ? "accepted" : std::string{tests.status().message()};
}

TEST(DecisionTests, EachSaysWhatItExpected) {
  const auto tests = parse_decision_tests(
      "tests:\n"
      "  - name: get\n"
      "    input: {network: {host: api.test, port: 443}, exec: {path: /usr/bin/curl}, request: {method: GET, path: /v1/a, query_params: "
      "{}}}\n"
      "    expect: allow\n"
      "    rule: weather\n"
      "  - name: post\n"
      "    input: {network: {host: api.test, port: 443}, exec: {path: /usr/bin/curl}, request: {method: POST, path: /v1/a}}\n"
      "    expect: deny\n"
      "    reason: not permitted by policy\n"
      "  - name: wrong\n"
      "    input: {network: {host: api.test, port: 443}, exec: {path: /usr/bin/wget}}\n"
      "    expect: allow\n"
      "  - name: other rule\n"
      "    input: {network: {host: api.test, port: 443}, exec: {path: /usr/bin/curl}}\n"
      "    expect: allow\n"
      "    rule: other\n",
      "t.yaml");
  ASSERT_TRUE(tests.ok()) << tests.status();
  const auto matcher = *Matcher::compile(policy_of(kWeather));
  EXPECT_EQ(run_test(*matcher, tests->at(0)).failure, "");
  EXPECT_EQ(run_test(*matcher, tests->at(1)).failure, "");
  EXPECT_EQ(run_test(*matcher, tests->at(2)).failure, "expected allow, got deny (no rule)");
  EXPECT_EQ(run_test(*matcher, tests->at(3)).failure, "expected rule other, got allow (rule weather)");
}

TEST(DecisionTests, AFileIsReadAsStrictlyAsAPolicy) {
  const std::string input = "input: {network: {host: a.test, port: 1}, exec: {path: ''}}";
  EXPECT_THAT(tests_fault("tests: []\n"), HasSubstr("at least one test"));
  EXPECT_THAT(tests_fault("test: []\n"), HasSubstr("did you mean 'tests'?"));
  EXPECT_THAT(tests_fault("tests: [{name: a, " + input + ", expect: block}]\n"), HasSubstr("expect is allow, deny or audit, not 'block'"));
  EXPECT_THAT(tests_fault("tests: [{name: a, " + input + ", expect: deny, because: x}]\n"),
              HasSubstr("unknown field 'tests[0].because' in test file"));
  EXPECT_THAT(tests_fault("tests:\n- {name: a, " + input + ", expect: deny}\n- {name: a, " + input + ", expect: deny}\n"),
              HasSubstr("t.yaml:3:10: two tests are named 'a'; the first is at line 2"));
  EXPECT_THAT(tests_fault("tests: [{" + input + ", expect: deny}]\n"), HasSubstr("missing field 'name'"));
  EXPECT_THAT(tests_fault("tests: [{name: '', " + input + ", expect: deny}]\n"), HasSubstr("not empty"));
  EXPECT_THAT(tests_fault("tests: [{name: a, expect: deny}]\n"), HasSubstr("missing field 'input'"));
  EXPECT_EQ(tests_fault("{\"tests\": [{\"name\": \"a\", \"input\": " + std::string{kConnection} + ", \"expect\": \"deny\"}]}"), "accepted");
}

TEST(DecisionTests, AFileHasTenThousandTestsAtMost) {
  std::string text = "tests:\n";
  for (std::size_t i = 0; i < kMaxDecisionTests; ++i) {
    text += "- {name: n" + std::to_string(i) + ", input: {network: {host: a.test, port: 1}, exec: {path: ''}}, expect: deny}\n";
  }
  EXPECT_EQ(tests_fault(text), "accepted");
  EXPECT_NE(tests_fault(text + "- {name: x, input: {network: {host: a.test, port: 1}, exec: {path: ''}}, expect: deny}\n"), "accepted");
}

// ---- records

std::string line_of(const Question& question, Decision decision, std::string_view hash = "h1") {
  const Destination destination{question.host, question.port, {question.binary, question.ancestors, question.cmdline_paths}};
  const auto request = question.request ? request_of(*question.request) : Request{};
  return record_line(WallTime{std::chrono::milliseconds{1'700'000'000'123}}, 7, hash, destination, question.request ? &request : nullptr,
                     decision);
}

DecisionRecord record_of(const Question& question, Decision decision, std::string_view hash = "h1") {
  auto record = parse_record(line_of(question, decision, hash), "f:1");
  EXPECT_TRUE(record.ok()) << record.status();
  return *std::move(record);
}

Question get(const std::string& path, std::vector<std::pair<std::string, std::string>> query = {}) {
  Question question{"api.test", 443, "/usr/bin/curl", {}, {}, {}, false};
  question.request = Question::Http{"GET", path, std::move(query), {}, {}};
  return question;
}

TEST(DecisionRecord, HoldsNoValueThatARequestCarried) {
  auto question = get("/v1/a", {{"token", "sesame-1"}});
  question.request->jsonrpc = JsonRpcContent{"tools/call", {{"name", "sesame-2"}}, "sesame-3", McpMethod::available, false, false, {}};
  const auto line = line_of(question, Decision::deny);
  EXPECT_THAT(line, Not(HasSubstr("sesame")));
  EXPECT_THAT(line, HasSubstr("\"time\":\"2023-11-14T22:13:20.123Z\",\"generation\":7,\"policy_hash\":\"h1\""));
  EXPECT_THAT(line, HasSubstr("\"token\":[\"" + hashed_value("sesame-1") + "\"]"));
  const auto record = parse_record(line, "f:1");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->time, WallTime{std::chrono::milliseconds{1'700'000'000'123}});
  EXPECT_EQ(record->question.request->jsonrpc->params.at("name"), hashed_value("sesame-2"));
  EXPECT_EQ(record->decision, Decision::deny);
}

TEST(DecisionRecord, OneThatIsTooLargeIsNone) {
  auto question = get("/");
  const auto empty = line_of(question, Decision::deny).size();
  question.request->path = "/" + std::string(kMaxRecordBytes - empty, 'a');
  EXPECT_EQ(line_of(question, Decision::deny).size(), kMaxRecordBytes);
  question.request->path += 'a';
  EXPECT_EQ(line_of(question, Decision::deny), "");
}

// A workload chooses all of these; what parse_record refuses is not written, or it would end the replay of all other records.
TEST(DecisionRecord, WhatCannotBeReadAgainIsNone) {
  const auto written = [](const Question& question) {
    const auto line = line_of(question, Decision::allow);
    EXPECT_TRUE(line.empty() || parse_record(line, "r").ok()) << line;
    return !line.empty();
  };
  EXPECT_TRUE(written(get("/", {{std::string(998, 'n'), "v"}})));  // 1,000 bytes with its quotes
  EXPECT_FALSE(written(get("/", {{std::string(999, 'n'), "v"}})));
  EXPECT_FALSE(written(get("/", {{"a", "v"}, {std::string(1'100, 'n'), "v"}})));
  EXPECT_TRUE(written(get("/", {{std::string(160, '\x01'), "v"}}))) << "six bytes each";
  EXPECT_FALSE(written(get("/", {{std::string(167, '\x01'), "v"}})));
  EXPECT_TRUE(written(get("/", {{std::string("a\0b", 3), "v"}})));

  const auto graphql = [&](std::size_t operations, std::size_t fields, const std::string& id = "i") {
    auto question = get("/");
    auto& content = question.request->graphql.emplace();
    content.operations.resize(operations);
    content.operations.front().type = "query";
    content.operations.front().fields.assign(fields, "f");
    content.operations.front().persisted_id = id;
    return question;
  };
  EXPECT_TRUE(written(graphql(1, kMaxQuestionItems)));
  EXPECT_FALSE(written(graphql(1, kMaxQuestionItems + 1)));
  EXPECT_FALSE(written(graphql(kMaxQuestionItems + 1, 1)));
  EXPECT_FALSE(written(graphql(1, 1, std::string("a\0b", 3))));

  auto call = get("/");
  call.request->jsonrpc = JsonRpcContent{std::string("a\0b", 3), {}, {}, McpMethod::none, false, false, {}};
  EXPECT_FALSE(written(call));
}

TEST(DecisionRecord, AFaultySaysWhereAndWhat) {
  const auto why = [](std::string_view line) { return std::string{parse_record(line, "f:3").status().message()}; };
  EXPECT_THAT(why("{}"), HasSubstr("f:3: invalid record"));
  EXPECT_THAT(why("nonsense"), HasSubstr("f:3:"));
  auto line = line_of(get("/"), Decision::deny);
  EXPECT_THAT(why(line + " x"), HasSubstr("f:3:"));
  line.replace(line.find("2023-11-14T"), 11, "yesterday");
  EXPECT_THAT(why(line), HasSubstr("RFC 3339"));
  EXPECT_THAT(why(std::string(kMaxRecordBytes + 1, ' ')), HasSubstr("at most 16384 bytes"));
}

// ---- replay

ReplayReport replayed(const std::string& policy, const std::vector<DecisionRecord>& records) {
  const auto candidate = Replay::prepare(policy_of(policy), false);
  EXPECT_TRUE(candidate.ok()) << candidate.status();
  return replay(*candidate, records);
}

TEST(Replay, ACandidateWithoutTheRuleChangesItsRecordsFolded) {
  const std::vector<DecisionRecord> records{record_of(get("/v1/a"), Decision::allow), record_of(get("/v1/b"), Decision::allow),
                                            record_of(get("/v1/b"), Decision::allow, "h2"), record_of(get("/v2"), Decision::deny)};
  const auto same = replayed(kWeather, records);
  EXPECT_EQ(same.changed, 0U);
  EXPECT_THAT(same.recorded_under, ElementsAre("h1", "h2"));
  const auto other = replayed("version: 1\n", records);
  EXPECT_EQ(other.decisions, 4U);
  EXPECT_EQ(other.changed, 3U);
  ASSERT_THAT(other.changes, SizeIs(2));
  EXPECT_EQ(other.changes[0].count, 2U) << "the most frequent first";
  EXPECT_EQ(other.changes[0].question.request->path, "/v1/b");
  EXPECT_EQ(other.changes[0].from, Decision::allow);
  EXPECT_EQ(other.changes[0].to, Decision::deny);
}

std::string with_query(const std::string& condition, const std::string& deny = "") {
  return "version: 1\n"
         "network_policies:\n"
         "  q:\n"
         "    endpoints:\n"
         "      - host: api.test\n"
         "        port: 443\n"
         "        protocol: rest\n"
         "        enforcement: enforce\n"
         "        rules:\n"
         "          - allow: {method: GET, path: \"**\", query: {tag: " +
         condition + "}}\n" + (deny.empty() ? "" : "        deny_rules:\n          - {method: GET, query: {tag: " + deny + "}}\n") +
         "    binaries: [/usr/bin/curl]\n";
}

TEST(Replay, APatternWithoutWildcardsIsComparedByItsHash) {
  const auto a = record_of(get("/", {{"tag", "blue"}}), Decision::allow);
  const auto b = record_of(get("/", {{"tag", "red"}}), Decision::deny);
  const auto report = replayed(with_query("blue"), {a, b});
  EXPECT_EQ(report.changed, 0U);
  EXPECT_EQ(report.unresolved, 0U);
  EXPECT_EQ(replayed(with_query("red"), {a, b}).changed, 2U);
}

TEST(Replay, WhereTheAnswerHangsOnAWildcardItIsUnresolved) {
  const auto a = record_of(get("/", {{"tag", "blue"}}), Decision::allow);
  EXPECT_EQ(replayed(with_query("b*"), {a}).unresolved, 1U);
  EXPECT_EQ(replayed(with_query("b*"), {a}).changed, 0U);
  EXPECT_THAT(replayed(with_query("b*"), {a}).unresolved_inputs, ElementsAre("GET api.test:443/ by /usr/bin/curl"));
  EXPECT_EQ(replayed(with_query("\"**\""), {a}).unresolved, 0U) << "it matches whatever the value was";
  EXPECT_EQ(replayed(with_query("blue", "b*"), {a}).changed, 1U) << "what one pattern tells of the value, the other is asked with";
  EXPECT_EQ(replayed(with_query("\"**\"", "b*"), {a}).unresolved, 1U) << "a deny rule that could meet it";
  const auto without = record_of(get("/"), Decision::deny);
  EXPECT_EQ(replayed(with_query("b*"), {without}).unresolved, 0U) << "no value, nothing to guess";
}

// What a replay resolves is what the matcher says about the real value: for random values and patterns.
TEST(Replay, NeverContradictsTheMatcher) {
  std::mt19937 random{20260};
  const std::vector<std::string> words{"a", "b", "a.b", "ab", "abc", ""};
  const std::vector<std::string> patterns{"a", "b", "\"a*\"", "\"*\"", "\"**\"", "a.b", "\"*.b\"", "{any: [a, \"b*\"]}"};
  const auto one_of = [&](const auto& from) { return from[random() % from.size()]; };
  std::size_t resolved = 0;
  for (int i = 0; i < 3'000; ++i) {
    const auto policy = policy_of(with_query(one_of(patterns), random() % 2 == 0 ? "" : one_of(patterns)));
    std::vector<std::pair<std::string, std::string>> query;
    for (auto n = random() % 3; n > 0; --n) query.emplace_back("tag", one_of(words));
    const auto question = get("/", query);
    const auto truth = judge(**Matcher::compile(policy), question).decision;
    const auto candidate = Replay::prepare(policy, false);
    const auto judged = candidate->judge(record_of(question, truth));
    if (!judged) continue;
    ++resolved;
    EXPECT_EQ(judged->decision, truth) << to_json(question);
  }
  EXPECT_GT(resolved, 1'000U);
}

}  // namespace
}  // namespace openshell::policy
