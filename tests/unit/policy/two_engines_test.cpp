// The default rules in Rego decide as the compiled matcher does, over the documents of evaluator_data and evaluator_input. The engine here
// is the `opa` program, which nothing else needs: without it the test says so and is skipped. (BIN-26)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "policy/evaluator_data.hpp"
#include "policy/evaluator_input.hpp"
#include "policy/glob.hpp"
#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "policy/text.hpp"
#include "tests/unit/policy/random_policies.hpp"

namespace openshell::policy {
namespace {

using random_policies::Dice;
using random_policies::Maker;
using text::cat;

// OPENSHELL_OPA, else where `go install` puts it; empty: there is none.
std::string opa() {
  const char* named = std::getenv("OPENSHELL_OPA");
  if (named != nullptr) return named;
  for (const char* path : {"/root/go/bin/opa", "/usr/local/bin/opa", "/usr/bin/opa"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

#define OPENSHELL_NEEDS_OPA()                                                          \
  if (opa().empty())                                                                   \
  GTEST_SKIP() << "SKIPPED: no opa program here (OPENSHELL_OPA names it; `go install " \
                  "github.com/open-policy-agent/opa@latest`): the Rego rules are NOT compared with the matcher"

std::string rules(const std::string& name) { return cat(OPENSHELL_SOURCE_DIR, "/policy/rego/", name); }

class TwoEngines : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/enginesXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string write(const std::string& name, const std::string& text) {
    const auto path = dir_ + "/" + name;
    std::ofstream{path} << text;
    return path;
  }
  // The lines of a query whose value is an array of texts.
  std::vector<std::string> ask(const std::string& module, const std::string& data) {
    const auto command =
        cat(opa(), " eval --format raw -d ", rules("sandbox-policy.rego"), " -d ", rules("path.rego"), " -d ",
            write("question.rego", module), " -d ", write("cases.json", data), " 'concat(\"\\n\", data.question.lines)' 2>&1");
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    std::array<char, 65'536> buffer{};
    for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
    EXPECT_EQ(pclose(pipe), 0) << out.substr(0, 2'000);
    std::vector<std::string> lines;
    std::istringstream in{out};
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::string dir_;
};

constexpr const char* kQuestion = R"(package question
import rego.v1

lines := [line |
  some c in data.cases
  some q in c.questions
  line := describe with input as q with data.network_policies as c.data.network_policies with data.runtime as c.data.runtime
]

describe := concat("|", [
  egress.action, egress.matched_policy, decides, sprintf("%v", [egress.exact_declared_endpoint_host]), egress.deny_reason,
  sprintf("%v", [data.openshell.sandbox.allow_request]), reason,
])

egress := data.openshell.sandbox.egress_authorization
default decides := ""
decides := [sprintf("%s#%d", [one.policy_name, one.endpoint_index]) |
  some one in egress.matched_endpoints
  one.endpoint == egress.endpoint_configs[0]
][0]

default reason := ""
reason := data.openshell.sandbox.request_deny_reason if { egress.action == "allow"; not data.openshell.sandbox.allow_request }
)";

// Where the rules alone decide; elsewhere the caller never asks them for a reason.
std::string described(const Connection& connection, const Request& request, bool& reasoned) {
  reasoned = true;
  if (!connection.allowed) return cat("deny|||false|", connection.reason, "|false|");
  const auto decision = connection.request(request);
  reasoned = connection.inspection == Inspection::requests && decision.verdict != Verdict::unsupported && decision.endpoint != nullptr;
  return cat("allow|", connection.policy, "|", connection.deciding != nullptr ? connection.deciding->id() : "", "|",
             connection.exact_declared_host ? "true" : "false", "||", decision.verdict == Verdict::allow ? "true" : "false", "|",
             decision.reason);
}

TEST_F(TwoEngines, BIN_26_TheRegoRulesAnswerAsTheCompiledMatcher) {
  OPENSHELL_NEEDS_OPA();
  constexpr std::uint64_t kQuestionsAPolicy = 10;
  std::string cases = "{\"cases\":[";
  struct Expected {
    std::string line, context;
    bool reasoned = true;
  };
  std::vector<Expected> expected;
  std::uint64_t allowed = 0;
  const auto questions = std::min<std::uint64_t>(random_policies::rounds(4'000), 40'000);  // what one run of opa holds
  for (std::uint64_t seed = 0; expected.size() < questions; ++seed) {
    Maker make{seed + 1'000'000};
    MatcherOptions options;
    options.require_binary_identity = seed % 7 != 0;
    const auto matcher = Matcher::compile(make.policy(), options);
    ASSERT_TRUE(matcher.ok()) << matcher.status();
    const auto data = evaluator_data(**matcher);
    cases += cat(seed == 0 ? "" : ",", "{\"data\":", data, ",\"questions\":[");
    for (std::uint64_t i = 0; i < kQuestionsAPolicy; ++i) {
      auto q = make.question();
      if (seed % 3 == 0) q.graphql = nullptr;
      if (seed % 3 == 1) q.jsonrpc = nullptr;
      const std::vector<std::string> cmdline{"/work/x"};
      const Destination destination{q.host, static_cast<std::uint16_t>(q.port), {q.binary, q.ancestors, cmdline}};
      const Request request{q.method, q.path, q.query, q.graphql, q.jsonrpc};
      const auto input = evaluator_input(destination, &request);
      cases += cat(i == 0 ? "" : ",", input);
      Expected one;
      one.line = described((*matcher)->connect(destination), request, one.reasoned);
      one.context = cat("seed ", seed, "\n", input, "\n", evaluator_data(**matcher, true));
      allowed += one.line.ends_with("|true|") ? 1 : 0;
      expected.push_back(std::move(one));
    }
    cases += "]}";
  }
  const auto lines = ask(kQuestion, cases + "]}");
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto upto = [&](const std::string& line) { return expected[i].reasoned ? line : line.substr(0, line.rfind('|')); };
    ASSERT_EQ(upto(lines[i]), upto(expected[i].line)) << expected[i].context;
  }
  EXPECT_GT(allowed, expected.size() / 100);
}

// Patterns of paths and programs by the shim, which is plain Rego.
TEST_F(TwoEngines, L7_45_ThePathShimMatchesAsCompiledPatterns) {
  OPENSHELL_NEEDS_OPA();
  Dice dice{11};
  const auto joined = [&](const std::vector<const char*>& parts, std::size_t most) {
    std::string out;
    for (std::size_t i = 0, n = 1 + dice.below(most); i < n; ++i) out += cat("/", parts[dice.below(parts.size())]);
    return out;
  };
  std::string cases = "{\"cases\":[";
  std::vector<std::string> expected, context;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(random_policies::rounds(10'000), 40'000); ++i) {
    const auto pattern = joined({"a", "b", "ab", "*", "**", "a*", "*b", "**", "a**b", "{a,bb}", "[ab]", "a?b"}, 5);
    const auto text = joined({"a", "b", "ab", "aab", "axb", "bb"}, 5) + (dice.chance(20) ? "/" : "");
    const auto glob = Glob::compile(pattern, GlobKind::path);
    ASSERT_TRUE(glob.ok()) << pattern;
    cases += cat(i == 0 ? "" : ",", "[\"", pattern, "\",\"", text, "\"]");
    expected.emplace_back(glob->matches(text) ? "1" : "0");
    context.push_back(cat(pattern, " ", text));
  }
  const auto lines = ask(R"(package question
import rego.v1
import data.openshell.path
lines := [line | some c in data.cases; line := answer(c[0], c[1])]
answer(pattern, text) := "1" if path.match(pattern, text)
answer(pattern, text) := "0" if not path.match(pattern, text)
)",
                         cases + "]}");
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], expected[i]) << context[i];
}

// What an engine is given, for the eye and for whoever plugs one in.
TEST(EngineDocuments, BIN_26_OnePolicyAndOneRequestAsTheyAreGiven) {
  auto parsed = load_policy(R"(version: 1
filesystem_policy: {read_only: [/usr], read_write: [/tmp]}
network_policies:
  weather:
    endpoints: [{host: api.weather.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}]
    binaries: [/usr/bin/curl]
)");
  ASSERT_TRUE(parsed.ok());
  const auto matcher = *Matcher::compile(*parsed.policy);
  const std::string expected =
      R"({"filesystem_policy":{"include_workdir":false,"read_only":["/usr"],"read_write":["/tmp"]},)"
      R"("landlock":{"compatibility":"best_effort"},"process":{"run_as_user":"sandbox","run_as_group":"sandbox"},)"
      R"("network_policies":{"weather":{"name":"weather","endpoints":[{"host":"api.weather.test","ports":[443],"_conn_rank":1,"_rank":1,)"
      R"("protocol":"rest","enforcement":"enforce","access":"read-only","rules":[)"
      R"({"allow":{"method":"GET","path":"**","command":"","operation_type":"","operation_name":""}},)"
      R"({"allow":{"method":"HEAD","path":"**","command":"","operation_type":"","operation_name":""}},)"
      R"({"allow":{"method":"OPTIONS","path":"**","command":"","operation_type":"","operation_name":""}}]}],)"
      R"("binaries":[{"path":"/usr/bin/curl"}]}},"network_middlewares":{},"runtime":{"require_binary_identity":true}})";
  EXPECT_EQ(evaluator_data(*matcher), expected);
  const std::vector<std::string> ancestors{"/usr/bin/bash"}, cmdline{"/work/run.sh"};
  const std::vector<QueryParameter> query{{"tag", "a"}, {"tag", "b"}};
  const Destination destination{"api.weather.test", 443, {"/usr/bin/curl", ancestors, cmdline}};
  const Request request{"GET", "/v1", query};
  EXPECT_EQ(evaluator_input(destination, &request),
            R"({"network":{"host":"api.weather.test","port":443},)"
            R"("exec":{"path":"/usr/bin/curl","ancestors":["/usr/bin/bash"],"cmdline_paths":["/work/run.sh"]},)"
            R"("request":{"method":"GET","path":"/v1","query_params":{"tag":["a","b"]},"graphql":null,"jsonrpc":null}})");
}

}  // namespace
}  // namespace openshell::policy
