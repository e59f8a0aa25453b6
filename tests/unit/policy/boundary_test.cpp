// Whether a policy stays within a boundary: the answers, their examples, and what is not answered.
#include "policy/boundary/boundary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "policy/boundary/atoms.hpp"
#include "policy/boundary/report.hpp"
#include "policy/parse.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy::boundary {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using text::cat;

std::unique_ptr<pb::SandboxPolicy> parsed(const std::string& yaml) {
  auto result = parse_policy(yaml, "policy");
  EXPECT_TRUE(result.ok()) << result.diagnostics.render() << yaml;
  return result.policy ? std::move(result.policy) : std::make_unique<pb::SandboxPolicy>();
}

Answer ask(const std::string& candidate, const std::string& boundary, const Limits& limits = {}) {
  return check(*parsed(candidate), *parsed(boundary), limits);
}

std::string outcome(const Answer& answer) {
  std::string out{to_string(answer.result)};
  return answer.reason_code == Reason::none ? out : cat(out, " ", to_string(answer.reason_code));
}

constexpr const char* kHead = "version: 1\nfilesystem_policy: {include_workdir: false, read_only: [/usr]}\n";

// A policy with one rule per text; each is the inside of an endpoint.
std::string network(const std::vector<std::string>& endpoints, const std::string& binaries = "/usr/bin/curl") {
  std::string out = cat(kHead, "network_policies:\n");
  int number = 0;
  for (const auto& endpoint : endpoints) {
    out += cat("  r", number++, ":\n    endpoints: [{", endpoint, "}]\n    binaries: [", binaries, "]\n");
  }
  return out;
}

std::string rest(const std::string& more, const std::string& host = "api.test") {
  return cat("host: ", host, ", port: 443, protocol: rest, enforcement: enforce, ", more);
}

TEST(BoundaryAtoms, EveryTextHasOneThatThePatternsCanNotTellFromIt) {
  std::mt19937 random{7};
  const auto one_of = [&](const std::vector<std::string>& list) { return list[random() % list.size()]; };
  const std::vector<std::string> parts{"*", "**", "a", "b", "a*", "*b", "a b", "{a,b}x"};
  const std::vector<std::string> words{"a", "b", "ab", "axb", "c", "a%20b", "ax", "bx"};
  for (int round = 0; round < 150; ++round) {
    std::vector<Glob> globs;
    for (std::size_t i = 0, n = 1 + random() % 5; i < n; ++i) {
      std::string pattern;
      for (std::size_t k = 0, depth = 1 + random() % 3; k < depth; ++k) pattern += cat("/", one_of(parts));
      auto glob = Glob::compile(pattern, GlobKind::path);
      ASSERT_TRUE(glob.ok()) << pattern;
      globs.push_back(*std::move(glob));
    }
    std::vector<const Glob*> pointers;
    for (const auto& glob : globs) pointers.push_back(&glob);
    const auto atoms = atoms_of(pointers, GlobKind::path, {});
    ASSERT_TRUE(atoms.ok());
    std::set<std::vector<std::uint32_t>> known;
    const auto signature = [&](const std::string& text) {
      std::vector<std::uint32_t> out;
      for (std::uint32_t i = 0; i < globs.size(); ++i) {
        if (globs[i].matches(text)) out.push_back(i);
      }
      return out;
    };
    for (const auto& atom : *atoms) {
      EXPECT_EQ(signature(atom.text), atom.matched) << atom.text;
      known.insert(atom.matched);
    }
    for (int i = 0; i < 100; ++i) {
      std::string path;
      for (std::size_t k = 0, depth = 1 + random() % 4; k < depth; ++k) path += cat("/", one_of(words));
      EXPECT_TRUE(known.contains(signature(path))) << path;
    }
  }
}

TEST(BoundaryAtoms, TooManyStatesAreRefusedAndAStopEndsTheWalk) {
  std::vector<Glob> globs;
  for (int i = 0; i < 26; ++i)
    globs.push_back(*Glob::compile(cat("/**/", std::string(1, static_cast<char>('a' + i)), "/**"), GlobKind::path));
  std::vector<const Glob*> pointers;
  for (const auto& glob : globs) pointers.push_back(&glob);
  EXPECT_EQ(atoms_of(pointers, GlobKind::path, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(atoms_of(pointers, GlobKind::path, {}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Boundary, IdenticalPoliciesAreWithinWhateverTheirSpelling) {
  EXPECT_EQ(outcome(ask(network({rest("access: full")}), network({rest("access: full")}))), "within_boundary");
  EXPECT_EQ(outcome(ask(network({"host: API.test, ports: [443]"}), network({"host: api.test, port: 443"}))), "within_boundary");
}

TEST(Boundary, FilesystemPathsAreComparedByName) {
  const auto with = [](const std::string& section) {
    return cat("version: 1\nfilesystem_policy: {include_workdir: false", section, "}\n");
  };
  EXPECT_EQ(outcome(ask(with(", read_only: [/usr]"), with(", read_only: [/usr, /etc]"))), "within_boundary");
  EXPECT_EQ(outcome(ask(with(", read_only: [/usr]"), with(", read_write: [/usr]"))), "within_boundary");
  EXPECT_EQ(outcome(ask(with(", read_only: [/opt/x/, /usr]"), with(", read_write: [/]"))), "within_boundary");
  const auto extra = ask(with(", read_only: [/usr], read_write: [/tmp]"), with(", read_only: [/usr]"));
  ASSERT_TRUE(extra.counterexample);
  EXPECT_EQ(extra.counterexample->access + " " + extra.counterexample->path, "write /tmp");
  EXPECT_EQ(outcome(ask(with(", read_write: [/tmp/cache]"), with(", read_write: [/tmp]"))), "unsupported unresolved_filesystem_path");
  EXPECT_EQ(outcome(ask("version: 1\n", with(""))), "unsupported unresolved_workdir");
  EXPECT_EQ(outcome(ask("version: 1\n", with(", read_write: [/]"))), "within_boundary");
  EXPECT_EQ(outcome(ask(with(""), "version: 1\n")), "within_boundary");
}

TEST(Boundary, LandlockAndProcess) {
  const auto landlock = [](const std::string& mode) { return cat("version: 1\nlandlock: {compatibility: ", mode, "}\n"); };
  const auto weaker = ask(landlock("best_effort"), landlock("hard_requirement"));
  ASSERT_TRUE(weaker.counterexample);
  EXPECT_EQ(weaker.counterexample->domain, Counterexample::Domain::landlock);
  EXPECT_EQ(outcome(ask("version: 1\n", landlock("hard_requirement"))), "exceeds_boundary");  // absent is best_effort
  EXPECT_EQ(outcome(ask(landlock("hard_requirement"), landlock("best_effort"))), "within_boundary");
  const auto user = [](const std::string& id) { return cat("version: 1\nprocess: {run_as_user: '", id, "'}\n"); };
  EXPECT_EQ(outcome(ask(user("1600"), user("1500"))), "unsupported unsupported_policy_shape");
  EXPECT_EQ(outcome(ask(user("0"), user("1500"))), "exceeds_boundary");
  EXPECT_EQ(outcome(ask(user("1500"), user("1500"))), "within_boundary");
}

TEST(Boundary, ConnectionsByProgramHostAndPort) {
  const auto boundary = network({"host: api.test, ports: [443, 8443]", "host: '*.shop.test', port: 443"}, "/usr/bin/curl, /usr/bin/git");
  EXPECT_EQ(outcome(ask(network({"host: api.test, port: 8443"}), boundary)), "within_boundary");
  const auto port = ask(network({"host: api.test, ports: [443, 80]"}), boundary);
  ASSERT_TRUE(port.counterexample);
  EXPECT_EQ(port.counterexample->port, 80);
  EXPECT_EQ(port.counterexample->domain, Counterexample::Domain::network_l4);
  EXPECT_FALSE(port.counterexample->identity_enforced);
  const auto program = ask(network({"host: api.test, port: 443"}, "/usr/bin/wget"), boundary);
  ASSERT_TRUE(program.counterexample);
  EXPECT_EQ(program.counterexample->binary, "/usr/bin/wget");
  EXPECT_TRUE(program.counterexample->identity_enforced);
  const auto host = ask(network({"host: '**.shop.test', port: 443"}), boundary);
  ASSERT_TRUE(host.counterexample);
  EXPECT_THAT(host.counterexample->host, testing::EndsWith(".shop.test"));
  EXPECT_EQ(outcome(ask(network({"host: '*.shop.test', port: 443"}), network({"host: '**.shop.test', port: 443"}))), "within_boundary");
  // The union of two rules covers what neither does alone.
  EXPECT_EQ(outcome(ask(network({"host: api.test, ports: [1, 2]"}), network({"host: api.test, port: 1", "host: api.test, port: 2"}))),
            "within_boundary");
}

TEST(Boundary, ProgramsUnderAPatternAreNotResolved) {
  const std::string endpoint = "host: api.test, port: 443";
  EXPECT_EQ(outcome(ask(network({endpoint}, "/usr/bin/curl"), network({endpoint}, "/usr/bin/*"))), "unsupported unresolved_binary_path");
  EXPECT_EQ(outcome(ask(network({endpoint}, "/usr/bin/curl"), network({endpoint}, "/**"))), "within_boundary");
  EXPECT_EQ(outcome(ask(network({endpoint}, "'/usr/bin/c*'"), network({endpoint}, "'/usr/bin/*'"))), "within_boundary");
  EXPECT_EQ(outcome(ask(network({endpoint}, "'/usr/bin/**'"), network({endpoint}, "'/usr/bin/*'"))), "exceeds_boundary");
  EXPECT_EQ(outcome(ask(network({endpoint}, "/usr/bin/curl"), network({endpoint}, "'/usr/bin/*', /usr/bin/curl"))), "within_boundary");
}

TEST(Boundary, RequestsByMethodPathAndDenyRules) {
  const auto read_only = network({rest("access: read-only")});
  EXPECT_EQ(outcome(ask(network({rest("rules: [{allow: {method: GET, path: /**}}]")}), read_only)), "within_boundary");
  const auto put = ask(network({rest("rules: [{allow: {method: PUT, path: /v1/x}}]")}), read_only);
  ASSERT_TRUE(put.counterexample);
  EXPECT_EQ(put.counterexample->method, "PUT");
  EXPECT_EQ(put.counterexample->path, "/v1/x");
  EXPECT_EQ(put.counterexample->domain, Counterexample::Domain::network_rest);
  EXPECT_EQ(outcome(ask(read_only, network({rest("access: full")}))), "within_boundary");
  EXPECT_EQ(outcome(ask(network({rest("rules: [{allow: {method: GET, path: /v1/**}}]")}),
                        network({rest("rules: [{allow: {method: GET, path: '/v1/*'}}]")}))),
            "exceeds_boundary");
  const auto denied = network({rest("access: full, deny_rules: [{method: '*', path: /admin/**}]")});
  const auto into = ask(network({rest("access: full")}), denied);
  ASSERT_TRUE(into.counterexample);
  EXPECT_THAT(into.counterexample->path, testing::StartsWith("/admin/"));
  EXPECT_EQ(outcome(ask(network({rest("rules: [{allow: {method: GET, path: /v1/**}}]")}), denied)), "within_boundary");
  EXPECT_EQ(outcome(ask(denied, network({rest("access: full")}))), "within_boundary");
  // Nobody looks at the requests of a plain endpoint.
  EXPECT_EQ(outcome(ask(network({"host: api.test, port: 443"}), network({rest("access: full")}))), "exceeds_boundary");
  EXPECT_EQ(outcome(ask(network({rest("access: full")}), network({"host: api.test, port: 443"}))), "within_boundary");
}

TEST(Boundary, ADenyRuleForAnAncestorCounts) {
  const auto boundary = cat(kHead, R"(network_policies:
  all: {endpoints: [{host: api.test, port: 443, protocol: rest, enforcement: enforce, access: full}], binaries: [/usr/bin/curl]}
  agent:
    endpoints:
    - {host: api.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: GET, path: /}}], deny_rules: [{method: DELETE, path: /**}]}
    binaries: [/usr/bin/agent]
)");
  const auto answer = ask(network({rest("rules: [{allow: {method: DELETE, path: /x}}]")}), boundary);
  ASSERT_TRUE(answer.counterexample) << answer.reason;
  // Relaxed identity finds it first: there every rule is everybody's.
  EXPECT_FALSE(answer.counterexample->identity_enforced);
  EXPECT_EQ(answer.counterexample->method, "DELETE");
}

TEST(Boundary, QueryValuesAreExactOrAStarThatStopsAtADot) {
  const auto query = [](const std::string& value) {
    return network({rest(cat("rules: [{allow: {method: GET, path: /s, query: {q: '", value, "'}}}]"))});
  };
  const auto dotted = ask(query("a.b"), query("*"));
  ASSERT_TRUE(dotted.counterexample);
  EXPECT_THAT(dotted.counterexample->query, ElementsAre(Pair("q", "a.b")));
  EXPECT_EQ(outcome(ask(query("ab"), query("*"))), "within_boundary");
  EXPECT_EQ(outcome(ask(query("*"), query("ab"))), "exceeds_boundary");
  EXPECT_EQ(outcome(ask(query("a*"), query("*"))), "unsupported unsupported_policy_shape");
  const auto free = ask(network({rest("rules: [{allow: {method: GET, path: /s}}]")}), query("*"));
  ASSERT_TRUE(free.counterexample);
  EXPECT_THAT(free.counterexample->query, IsEmpty());
}

TEST(Boundary, WhatIsNotModelledIsNeverPassed) {
  const auto plain = network({"host: api.test, port: 443"});
  const auto reason = [&](const std::string& candidate) {
    const auto answer = ask(candidate, plain);
    EXPECT_EQ(outcome(answer), "unsupported unsupported_policy_shape") << candidate;
    return answer.reason;
  };
  EXPECT_EQ(reason(network({"host: api.test, port: 443, protocol: graphql, access: read-only, enforcement: enforce"})),
            "candidate policy rule 'r0' uses protocol 'graphql'; only L4 TCP and REST are modeled");
  EXPECT_THAT(reason(network({"host: api.test, port: 443, protocol: rest, access: full"})), HasSubstr("without enforcement: enforce"));
  EXPECT_THAT(reason(network({"host: api.test, port: 443, protocol: sql, enforcement: enforce"})), HasSubstr("'sql'"));
  EXPECT_THAT(reason(network({rest("rules: [{allow: {method: GET, path: '/a?'}}]")})), HasSubstr("'?'"));
  EXPECT_THAT(reason(network({rest("rules: [{allow: {method: GET, path: /a, query: {q: {any: [x, y]}}}}]")})), HasSubstr("any"));
  EXPECT_THAT(reason(network({rest("allow_encoded_slash: true, access: full")})), HasSubstr("allow_encoded_slash"));
  EXPECT_THAT(reason(network({"allowed_ips: [10.0.0.0/8], port: 443"})), HasSubstr("without a host"));
  EXPECT_THAT(reason(network({"host: '2001:db8::1', port: 443"})), HasSubstr("IPv6"));
  EXPECT_THAT(reason(network({"host: api.test, port: 443, ports: [443, 80]"})), HasSubstr("port and ports"));
  EXPECT_THAT(reason(network({"host: api.test, port: 443, allowed_ips: [10.0.0.0/8]"})), HasSubstr("allowed_ips"));
  EXPECT_THAT(reason(network({"host: '*.test', port: 443"})), HasSubstr("private address"));
  EXPECT_THAT(
      reason(network({"host: api.test, port: 443, protocol: rest, enforcement: enforce, access: full", "host: api.test, port: 443"})),
      HasSubstr("once with protocol rest"));
  EXPECT_THAT(reason(network({"host: api.test, port: 443"}, "\"/usr/bin/b\\u00e4r\"")), HasSubstr("ASCII"));
  EXPECT_THAT(reason("version: 1\nfilesystem_policy: {include_workdir: false}\nnetwork_middlewares:\n  m: {middleware: x, order: 1, "
                     "endpoints: {include: [api.test]}}\n"),
              HasSubstr("network_middlewares"));
}

// Each bound at its limit and one beyond.
TEST(Boundary, SizesAreBounded) {
  const auto with_rules = [](std::size_t count) {
    pb::SandboxPolicy out;
    for (std::size_t i = 0; i < count; ++i) (*out.mutable_network_policies())[cat("r", i)];
    return out;
  };
  EXPECT_FALSE(check_size(with_rules(kMaxRules), {}));
  EXPECT_EQ(outcome(*check_size(with_rules(kMaxRules), with_rules(1))), "inconclusive resource_limit");
  const auto sized = [](const std::function<void(pb::NetworkPolicyRule&, pb::NetworkEndpoint&)>& fill) {
    pb::SandboxPolicy out;
    auto& rule = (*out.mutable_network_policies())["r"];
    fill(rule, *rule.add_endpoints());
    return check_size(out, {}).has_value();
  };
  const auto endpoints = [&](std::size_t n) {
    return sized([n](auto& rule, auto&) {
      while (static_cast<std::size_t>(rule.endpoints_size()) < n) rule.add_endpoints();
    });
  };
  const auto binaries = [&](std::size_t n) {
    return sized([n](auto& rule, auto&) {
      for (std::size_t i = 0; i < n; ++i) rule.add_binaries();
    });
  };
  const auto ports = [&](std::size_t n) {
    return sized([n](auto&, auto& e) {
      for (std::size_t i = 0; i < n; ++i) e.add_ports(1);
    });
  };
  const auto requests = [&](std::size_t n) {
    return sized([n](auto&, auto& e) {
      for (std::size_t i = 0; i < n; ++i) e.add_rules();
    });
  };
  const auto queries = [&](std::size_t n) {
    return sized([n](auto&, auto& e) {
      auto& query = *e.add_rules()->mutable_allow()->mutable_query();
      for (std::size_t i = 0; i < n; ++i) query[std::to_string(i)];
    });
  };
  const auto longest = [&](std::size_t n) { return sized([n](auto&, auto& e) { e.set_host(std::string(n, 'a')); }); };
  const auto total = [&](std::size_t n) {
    return sized([n](auto& rule, auto&) {
      for (std::size_t left = n; left > 0; left -= std::min(left, kMaxPatternBytes))
        rule.add_binaries()->set_path(std::string(std::min(left, kMaxPatternBytes), 'a'));
    });
  };
  EXPECT_FALSE(endpoints(kMaxEndpoints));
  EXPECT_TRUE(endpoints(kMaxEndpoints + 1));
  EXPECT_FALSE(binaries(kMaxBinaries));
  EXPECT_TRUE(binaries(kMaxBinaries + 1));
  EXPECT_FALSE(ports(kMaxPorts));
  EXPECT_TRUE(ports(kMaxPorts + 1));
  EXPECT_FALSE(requests(kMaxRequestRules));
  EXPECT_TRUE(requests(kMaxRequestRules + 1));
  EXPECT_FALSE(queries(kMaxQueryMatchers));
  EXPECT_TRUE(queries(kMaxQueryMatchers + 1));
  EXPECT_FALSE(longest(kMaxPatternBytes));
  EXPECT_TRUE(longest(kMaxPatternBytes + 1));
  EXPECT_FALSE(total(kMaxAllPatternBytes));
  EXPECT_TRUE(total(kMaxAllPatternBytes + 1));
}

TEST(Boundary, TimeAndCancellationEndACheck) {
  const auto a = network({"host: a.test, port: 1"}), b = network({"host: a.test, ports: [1, 2]"});
  EXPECT_EQ(outcome(ask(a, b, {[] { return Reason::cancelled; }})), "inconclusive cancelled");
  EXPECT_EQ(outcome(ask(a, b, {[] { return Reason::solver_timeout; }})), "inconclusive solver_timeout");
}

TEST(BoundaryCommand, TimeoutsAndWords) {
  EXPECT_EQ(parse_timeout("500ms")->count(), 500);
  EXPECT_EQ(parse_timeout("2m")->count(), 120'000);
  EXPECT_EQ(parse_timeout("24m")->count(), 1'440'000);
  for (const auto* bad : {"", "0s", "-1s", "1.5s", "10", "s", "10h", "99999999999999999999s", "86400001ms"})
    EXPECT_FALSE(parse_timeout(bad).ok()) << bad;
  CheckCommand command;
  EXPECT_TRUE(parse_command(std::vector<std::string_view>{"check", "a", "--maximum", "b", "--output=json"}, command).ok());
  EXPECT_TRUE(command.json);
  EXPECT_EQ(command.boundary, "b");
  CheckCommand faulty;
  EXPECT_THAT(std::string{parse_command(std::vector<std::string_view>{"check", "a", "--nope", "-o", "json"}, faulty).message()},
              HasSubstr("--nope"));
  EXPECT_TRUE(faulty.json);  // the fault is told as it was asked
}

// The program as it is called: files, exit codes, both forms of the answer.
class Prover : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/proverXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void write(const std::string& name, const std::string& text) { std::ofstream{dir_ + "/" + name} << text; }
  std::pair<int, std::string> run(const std::string& words) {
    const std::string command = cat("cd ", dir_, " && ", OPENSHELL_BIN_DIR, "/openshell-prover ", words, " 2>&1");
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    for (int c = 0; (c = fgetc(pipe)) != EOF;) out.push_back(static_cast<char>(c));
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
  }
  std::string dir_;
};

TEST_F(Prover, AnswersInExitCodeTextAndJson) {
  write("boundary", network({rest("access: read-only")}));
  write("full", network({rest("access: full")}));
  write("graphql", network({"host: api.test, port: 443, protocol: graphql, access: read-only, enforcement: enforce"}));
  write("faulty", "version: 1\nnonsense: true\n");
  std::string many = cat(kHead, "network_policies:\n");
  for (int i = 0; i < 1'025; ++i) many += cat("  r", i, ": {endpoints: [{host: h", i, ".test, port: 1}], binaries: [/a]}\n");
  write("many", many);
  EXPECT_EQ(
      run("check boundary --boundary boundary"),
      (std::pair{0, std::string{"result: within_boundary\ncoverage: domains=filesystem,network_l4,network_rest,process,landlock\n"}}));
  const auto [code, text] = run("check full --boundary boundary");
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("counterexample: network_rest PUT api.test:443/"));
  EXPECT_EQ(run("check faulty --boundary boundary").first, 2);
  EXPECT_THAT(run("check faulty --boundary boundary").second, HasSubstr("reason: faulty:2:1: "));
  EXPECT_EQ(run("check boundary --boundary absent").first, 2);
  EXPECT_EQ(run("check boundary").first, 2);
  EXPECT_EQ(run("check boundary --boundary boundary --timeout 0s").first, 2);
  EXPECT_EQ(run("check graphql --boundary boundary").first, 3);
  const auto [limit, json] = run("check many --maximum boundary -o json");
  EXPECT_EQ(limit, 3);
  EXPECT_THAT(json, HasSubstr(R"("reason_code": "resource_limit")"));
  EXPECT_THAT(json, HasSubstr(R"("counterexample": null)"));
}

}  // namespace
}  // namespace openshell::policy::boundary
