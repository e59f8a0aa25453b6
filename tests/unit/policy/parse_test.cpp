#include "policy/parse.hpp"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "policy/decode.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::HasSubstr;

std::string errors(std::string_view text) { return load_policy(text, "policy.yaml").diagnostics.render(); }

std::string with_endpoint(const std::string& keys) {
  return "version: 1\nnetwork_policies:\n  api:\n    endpoints:\n      - " + keys + "\n    binaries: [/usr/bin/curl]\n";
}

constexpr std::string_view kWeather = R"(version: 1
filesystem_policy:
  include_workdir: true
  read_only: [/usr, /lib, /etc]
  read_write: [/tmp]
landlock: { compatibility: best_effort }
network_policies:
  weather:
    endpoints:
      - { host: api.weather.test, port: 443, protocol: rest, enforcement: enforce, access: read-only }
    binaries: [ { path: /usr/bin/curl } ]
)";

TEST(Parse, TheMinimalCompleteExample) {
  const auto result = load_policy(kWeather);
  ASSERT_TRUE(result.ok()) << result.diagnostics.render();
  const auto& rule = result.policy->network_policies().at("weather");
  EXPECT_EQ(rule.name(), "weather");
  EXPECT_EQ(rule.endpoints(0).host(), "api.weather.test");
  EXPECT_EQ(rule.endpoints(0).ports(0), 443U);
  EXPECT_EQ(rule.endpoints(0).enforcement(), pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
  EXPECT_EQ(rule.endpoints(0).access(), pb::NETWORK_ACCESS_PRESET_READ_ONLY);
  EXPECT_EQ(rule.binaries(0).path(), "/usr/bin/curl");
  EXPECT_TRUE(result.policy->filesystem().include_workdir());
}

TEST(Parse, JsonGoesThroughTheSameReader) {
  const auto result = load_policy(
      R"({"version": 1, "filesystem_policy": {}, "network_policies": {"a": {"endpoints": [{"host": "a.x.test", "port": 443}]}}})");
  ASSERT_TRUE(result.ok()) << result.diagnostics.render();
  EXPECT_TRUE(result.policy->has_filesystem());
  EXPECT_FALSE(result.policy->filesystem().include_workdir());
}

// The five broken policies that somebody who starts with the product meets. Each message: file, line, column, key, what to do.

TEST(Parse, CA_99_Broken1_UnknownKeyNamesTheNearest) {
  EXPECT_EQ(
      errors("version: 1\nnetwork_policies:\n  api:\n    endpoints:\n      - host: a.x.test\n        port: 443\n        protocl: rest\n"),
      "policy.yaml:7:9: unknown field 'network_policies.api.endpoints[0].protocl' in authored policy; did you mean 'protocol'?\n");
}

TEST(Parse, CA_99_Broken2_BadEnumValue) {
  EXPECT_EQ(
      errors(with_endpoint("{host: a.x.test, port: 443, protocol: rest, access: full, enforcement: enforced}")),
      "policy.yaml:5:80: api.endpoints[0]: unknown enforcement value 'enforced' (expected enforce or audit); did you mean 'enforce'? [key "
      "network_policies.api.endpoints[0].enforcement]\n");
}

TEST(Parse, CA_99_Broken3_PortOutOfRange) {
  EXPECT_EQ(errors(with_endpoint("{host: a.x.test, port: 70000}")),
            "policy.yaml:5:32: failed to decode sandbox policy fields: network_policies.api.endpoints[0].port: port 70000 is out of range; "
            "use a number "
            "from 0 to 65535\n");
}

TEST(Parse, NET_59_Broken4_AmbiguousOverlap) {
  const auto text = errors(R"(version: 1
network_policies:
  one:
    endpoints:
      - { host: api.x.test, port: 443, tls: skip }
    binaries: [/usr/bin/curl]
  two:
    endpoints:
      - { host: api.x.test, port: 443, protocol: rest, access: full }
    binaries: [/usr/bin/curl]
)");
  EXPECT_THAT(
      text,
      HasSubstr("policy.yaml:9:9: network policies 'one' endpoint[0] (api.x.test:443) and 'two' endpoint[0] (api.x.test:443) overlap on "
                "port(s) 443 with conflicting metadata: tls=\"skip\" vs \"auto\""));
  EXPECT_THAT(text, HasSubstr("smallest change: "));
}

TEST(Parse, D55c_Broken5_WildcardOverASingleLabel) {
  EXPECT_EQ(errors(with_endpoint("{host: '*.com', port: 443}")),
            "policy.yaml:5:16: network policy 'api': TLD wildcard '*.com' is not allowed; use subdomain wildcards like '*.example.com' "
            "instead [key "
            "network_policies.api.endpoints[0].host]\n");
}

TEST(Parse, AllErrorsOfAFileInOrderOfPosition) {
  const auto text = errors("version: 2\nlandlock: {compatibility: 3}\nnetwork_policies:\n  api:\n    endpints: []\n    name: true\n");
  EXPECT_EQ(text,
            "policy.yaml:1:10: unsupported policy version 2; expected version 1; write `version: 1`\n"
            "policy.yaml:2:27: failed to decode sandbox policy fields: landlock.compatibility: expected a string, found an integer (3); "
            "quote it: \"3\"\n"
            "policy.yaml:5:5: unknown field 'network_policies.api.endpints' in authored policy; did you mean 'endpoints'?\n"
            "policy.yaml:6:11: failed to decode sandbox policy fields: network_policies.api.name: expected a string, found a boolean "
            "(true); quote it: "
            "\"true\"\n");
}

TEST(Parse, AtMostAHundredErrorsThenTheirNumber) {
  std::string text = "version: 1\n";
  for (std::size_t i = 0; i < kMaxDiagnostics + 5; ++i) text += "unknown_" + std::to_string(i) + ": 1\n";
  const auto lines = errors(text);
  EXPECT_EQ(static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n')), kMaxDiagnostics + 1);
  EXPECT_TRUE(lines.ends_with("5 more errors\n"));
}

TEST(Parse, ColumnsCountCharactersNotBytes) {
  EXPECT_THAT(errors("version: 1\nprocess: {run_as_user: \"\xC3\xA9\xC3\xA9\", x: 1}\n"),
              HasSubstr("policy.yaml:2:30: unknown field 'process.x'"));
}

TEST(Parse, D55f_PlainScalarsThatAreNoStringsAreNeverTakenForOne) {
  for (const char* value : {"443", "true", "True", "1.5", "0x1F", "0o17", "~", "null", "", "-.inf", ".nan", "1e3", "+1", "[a]", "{a: b}"}) {
    EXPECT_THAT(errors("version: 1\nprocess:\n  run_as_user: " + std::string{value} + "\n"), HasSubstr("expected a string")) << value;
  }
  for (const char* value : {"yes", "on", "1_000", "'443'", "\"true\"", "0b1", "1.2.3", "no"}) {
    const auto result = parse_policy("version: 1\nprocess:\n  run_as_user: " + std::string{value} + "\n");
    EXPECT_TRUE(result.ok()) << value << result.diagnostics.render();
  }
}

TEST(Parse, IntegersAreDecimalOctalOrHexadecimal) {
  for (const char* value : {"443", "0x1BB", "0o673", "+443"}) {
    const auto result = parse_policy(with_endpoint("{host: a.x.test, port: " + std::string{value} + "}"));
    ASSERT_TRUE(result.ok()) << value << result.diagnostics.render();
    EXPECT_EQ(result.policy->network_policies().at("api").endpoints(0).port(), 443U);
  }
  for (const char* value : {"443.0", "\"443\"", "-1", "65536", "1e2", "99999999999999999999", "0b11"}) {
    EXPECT_NE(errors(with_endpoint("{host: a.x.test, port: " + std::string{value} + "}")), "") << value;
  }
}

TEST(Parse, WhatYamlOffersAndAPolicyMayNotUse) {
  const std::map<std::string, std::string> cases{
      {"version: !!int 1", "tags are not allowed"},
      {"version: !x 1", "tags are not allowed"},
      {"version: 1\nprocess: !!map {}", "tags are not allowed"},
      {"version: 1\nprocess: {run_as_user: ! x}", "tags are not allowed"},
      {"version: 1\n443: x", "a key must be a string"},
      {"version: 1\ntrue: x", "a key must be a string"},
      {"version: 1\n~: x", "a key must be a string"},
      {"version: 1\n? [a]\n: x", "a key must be a string"},
      {"version: 1\nversion: 1", "duplicate key 'version'"},
      {"version: 1\na: &a [*a]", "an alias may not stand inside the node that its anchor names"},
      {"version: 1\na: &a {x: 1}\nb: {<<: *a}", "merge keys (<<) are not allowed"},
      {"version: 1\n---\nversion: 1", "more than one YAML document"},
      {"", "the document is empty"},
      {"version: [1", "failed to parse sandbox policy YAML"},
      {std::string("version: 1\x04\nprocess: {}"), "control characters are not allowed"},
      {"version: 1\nprocess: {run_as_user: \xFF}", "not valid UTF-8"},
      {"version: 1\nprocess: {run_as_user: \xED\xA0\x80}", "not valid UTF-8"},
      {"version: 1\nprocess: {run_as_user: \"a\\Nb\"}", "the escapes \\N and \\_ are not allowed"},
      {"version: 1\nprocess: {run_as_user: \"a\\_b\"}", "the escapes \\N and \\_ are not allowed"},
      {"version: 1\nprocess: {run_as_user: \"\\e[31mred\"}", "got '?[31mred'"},
      {"version: 1\nfilesystem_policy: {read_only: [\"/usr\\0/x\"]}", "path contains a NUL byte: /usr?/x"},
      {"- version: 1", "expected a mapping"},
      {"version: 1\nfilesystem_policy: null", "found null"},
      {"version: 1\nnetwork_policies:", "found null"},
      {"process: {}", "missing field 'version'"},
      {"version: 1\nnetwork_policies: {a: {binaries: [{}]}}", "missing field 'path'"},
  };
  for (const auto& [text, expected] : cases) EXPECT_THAT(errors(text), HasSubstr(expected)) << text;
}

TEST(Parse, KeysOfOlderVersionsAreUnknown) {
  for (const char* key : {"inference: {}", "filesystem: {}", "cedar_policy: x", "metadata: {}"}) {
    EXPECT_THAT(errors("version: 1\n" + std::string{key}), HasSubstr("unknown field")) << key;
  }
  for (const char* key : {"advisor_proposed: true", "provider_credentialed: true", "token_grant_owner: x", "glob: x"}) {
    EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, " + std::string{key} + "}")), HasSubstr("unknown field")) << key;
  }
  for (const char* value : {"terminate", "passthrough"}) {
    EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, tls: " + std::string{value} + "}")),
                HasSubstr("unknown tls value '" + std::string{value} + "'; omit the field to keep automatic TLS termination"));
  }
}

TEST(Parse, AnchorsAndAliasesWork) {
  const auto result = parse_policy("version: 1\nfilesystem_policy:\n  read_only: &p [/usr]\n  read_write: *p\n");
  ASSERT_TRUE(result.ok()) << result.diagnostics.render();
  EXPECT_EQ(result.policy->filesystem().read_write(0), "/usr");
}

TEST(Parse, LimitsHoldAtTheirBorder) {
  const auto refused = [](std::string_view text, ParseLimits limits) { return parse_policy(text, {}, limits).diagnostics.render(); };
  const std::string text = "version: 1\n";  // 3 nodes (mapping, key, value), 10 characters of scalars at most
  ParseLimits limits;
  limits.bytes = text.size();
  EXPECT_EQ(refused(text, limits), "");
  limits.bytes -= 1;
  EXPECT_THAT(refused(text, limits), HasSubstr("policy exceeds the 10-byte input limit"));
  limits = {};
  limits.nodes = 3;
  EXPECT_EQ(refused(text, limits), "");
  limits.nodes = 2;
  EXPECT_THAT(refused(text, limits), HasSubstr("more than 2 nodes"));
  limits = {};
  limits.scalar_bytes = 8;
  EXPECT_EQ(refused(text, limits), "");
  limits.scalar_bytes = 7;
  EXPECT_THAT(refused(text, limits), HasSubstr("more than 7 bytes of text"));
  limits = {};
  limits.events = 4;
  EXPECT_EQ(refused(text, limits), "");
  limits.events = 3;
  EXPECT_THAT(refused(text, limits), HasSubstr("more than 3 events"));
  limits = {};
  limits.keys = 1;
  EXPECT_EQ(refused(text, limits), "");
  EXPECT_THAT(refused("version: 1\nprocess: {}\n", limits), HasSubstr("more than 1 keys"));
  limits = {};
  limits.elements = 2;
  EXPECT_EQ(refused("version: 1\nfilesystem_policy: {read_only: [/a, /b]}\n", limits), "");
  EXPECT_THAT(refused("version: 1\nfilesystem_policy: {read_only: [/a, /b, /c]}\n", limits), HasSubstr("more than 2 elements"));
  limits = {};
  limits.depth = 3;
  EXPECT_EQ(refused("version: 1\nfilesystem_policy: {read_only: [/a]}\n", limits), "");
  limits.depth = 2;
  EXPECT_THAT(refused("version: 1\nfilesystem_policy: {read_only: [/a]}\n", limits), HasSubstr("nested deeper than 2"));
  EXPECT_THAT(refused("version: 1\nfilesystem_policy: {read_only: &a [/a], read_write: *a}\n", limits), HasSubstr("nested deeper than 2"));
  limits = {};
  limits.aliases = 1;
  EXPECT_THAT(refused("version: 1\nfilesystem_policy: {read_only: [&a /a, *a, *a]}\n", limits), HasSubstr("more than 1 aliases"));
  limits = {};
  limits.alias_ratio = 1;
  EXPECT_THAT(refused("version: 1\nfilesystem_policy: {read_only: [&a /a, *a, *a]}\n", limits), HasSubstr("aliases for each anchor"));
}

TEST(Parse, TheDefaultLimitsStopHostileTexts) {
  EXPECT_THAT(errors(std::string(65, '[') + std::string(65, ']')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(errors(std::string(4'194'305, ' ')), HasSubstr("4194304-byte input limit"));
  std::string laughs = "version: 1\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) laughs += (k == 0 ? "*a" : ",*a") + std::to_string(i - 1);
    laughs += "]\n";
  }
  EXPECT_THAT(errors(laughs), HasSubstr("failed to parse sandbox policy YAML: more than"));
  std::string one_line = "version: 1\nfilesystem_policy: {read_only: [";
  for (int i = 0; i < 9'999; ++i) one_line += "/a,";
  EXPECT_THAT(errors(one_line + "/a]}"), HasSubstr("too many filesystem paths (10000 > 256)"));
}

TEST(Parse, D55k_PortBesidePorts) {
  EXPECT_EQ(errors(with_endpoint("{host: a.x.test, port: 443, ports: [443, 8443]}")), "");
  EXPECT_THAT(
      errors(with_endpoint("{host: a.x.test, port: 80, ports: [443, 8443]}")),
      HasSubstr(
          "api.endpoints[0]: port and ports are mutually exclusive; use ports for multiple ports; port 80 is not among ports [443, 8443]"));
  const auto result = load_policy(with_endpoint("{host: a.x.test, port: 8443, ports: [443, 8443]}"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.policy->network_policies().at("api").endpoints(0).port(), 443U);
}

TEST(Parse, EmptyListsThatMeanNothingAreErrors) {
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: rest, rules: []}")),
              HasSubstr("api.endpoints[0]: rules list cannot be empty"));
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: rest, access: full, deny_rules: []}")),
              HasSubstr("deny_rules list cannot be empty"));
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: mcp, mcp: {versions: []}}")),
              HasSubstr("has an empty mcp.versions list"));
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: rest, rules: [{}]}")), HasSubstr("missing field 'allow'"));
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: rest, rules: [{allow: {method: GET, query: {t: {any: []}}}}]}")),
              HasSubstr("query.t.any: list must not be empty"));
}

TEST(Parse, L7_28_McpStanza) {  // L7-31
  const auto result =
      load_policy(with_endpoint("{host: a.x.test, port: 443, protocol: mcp, mcp: {versions: [2025-11-25, 2025-06-18], max_body_bytes: 9, "
                                "strict_tool_names: false}, rules: [{allow: "
                                "{method: tools/call, tool: read}}, {allow: {method: tools/call, params: {name: {any: [a, b]}}}}]}"));
  ASSERT_TRUE(result.ok()) << result.diagnostics.render();
  const auto& endpoint = result.policy->network_policies().at("api").endpoints(0);
  EXPECT_EQ(endpoint.mcp().versions(0), "2025-06-18");
  EXPECT_EQ(endpoint.json_rpc_max_body_bytes(), 9U);
  EXPECT_TRUE(endpoint.mcp().has_strict_tool_names());
  EXPECT_EQ(endpoint.rules(0).allow().params().at("name").glob(), "read");
  EXPECT_EQ(endpoint.rules(1).allow().params().at("name").any_size(), 2);
  EXPECT_THAT(errors(with_endpoint(
                  "{host: a.x.test, port: 443, protocol: mcp, mcp: {versions: ['2026-07-28'], allow_all_known_mcp_methods: true}}")),
              HasSubstr("network policy 'api': unsupported MCP protocol version '2026-07-28'; accepted revisions are"));
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: mcp, mcp: {versions: [2025-11-25, 2025-11-25]}}")),
              HasSubstr("has duplicate protocol version"));
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: rest, access: full, mcp: {}}")),
              HasSubstr("network policy 'api': non-MCP endpoint 'a.x.test' cannot configure mcp options"));
  EXPECT_THAT(errors(with_endpoint(
                  "{host: a.x.test, port: 443, protocol: mcp, rules: [{allow: {method: tools/call, tool: a, params: {name: b}}}]}")),
              HasSubstr("either tool or params.name, not both"));
  EXPECT_THAT(errors(with_endpoint("{host: a.x.test, port: 443, protocol: rest, rules: [{allow: {method: GET, tool: a}}]}")),
              HasSubstr(".tool: MCP tool matching is only valid for protocol mcp"));
}

TEST(Parse, L7_18_to_L7_36_McpVersionsAreAClosedListThatIsAlwaysThere) {
  const auto with = [](const std::string& stanza) {  // L7-19, L7-20, L7-21, L7-22, L7-24, L7-25, L7-30, L7-32, L7-33, L7-34, L7-35
    return load_policy(with_endpoint("{host: a.x.test, port: 443, protocol: mcp, rules: [{allow: {method: ping}}]" + stanza + "}"));
  };
  const auto versions = [&](const std::string& stanza) {
    const auto result = with(stanza);
    EXPECT_TRUE(result.ok()) << stanza << result.diagnostics.render();
    if (!result.ok()) return std::vector<std::string>{};
    const auto& list = result.policy->network_policies().at("api").endpoints(0).mcp().versions();
    return std::vector<std::string>(list.begin(), list.end());
  };
  EXPECT_THAT(versions(""), testing::ElementsAre("2025-11-25"));
  EXPECT_THAT(versions(", mcp: {}"), testing::ElementsAre("2025-11-25"));
  EXPECT_THAT(versions(", mcp: {strict_tool_names: true}"), testing::ElementsAre("2025-11-25"));
  EXPECT_THAT(versions(", mcp: {versions: ['2025-03-26']}"), testing::ElementsAre("2025-03-26"));
  EXPECT_THAT(versions(", mcp: {versions: [2025-11-25, 2025-06-18, 2025-03-26]}"),
              testing::ElementsAre("2025-03-26", "2025-06-18", "2025-11-25"));
  for (const char* bad : {"draft", "latest", "' 2025-11-25'", "2025-07-01", "2026-07-28", "2025-11-25+SEP-1"}) {
    EXPECT_THAT(with(", mcp: {versions: [" + std::string{bad} + "]}").diagnostics.render(), HasSubstr("unsupported MCP protocol version"))
        << bad;
  }
  EXPECT_THAT(with(", mcp: null").diagnostics.render(), HasSubstr("network_policies.api.endpoints[0].mcp: expected a mapping, found null"));
  EXPECT_THAT(with(", mcp: {versions: null}").diagnostics.render(), HasSubstr("endpoints[0].mcp.versions: expected a list, found null"));
  EXPECT_THAT(with(", mcp: {seps: []}").diagnostics.render(), HasSubstr("unknown field 'network_policies.api.endpoints[0].mcp.seps'"));
}

TEST(Parse, NestedParamsAreFlattenedAndAnyIsAMatcherOnlyAlone) {
  const auto result = parse_policy(with_endpoint(
      "{host: a.x.test, port: 443, protocol: mcp, rules: [{allow: {params: {a: {b: x}, c: {any: [y]}, d: {any: z, other: w}}}}]}"));
  ASSERT_TRUE(result.ok()) << result.diagnostics.render();
  const auto& params = result.policy->network_policies().at("api").endpoints(0).rules(0).allow().params();
  EXPECT_EQ(params.at("a.b").glob(), "x");
  EXPECT_EQ(params.at("c").any(0), "y");
  EXPECT_EQ(params.at("d.any").glob(), "z");
  EXPECT_EQ(params.at("d.other").glob(), "w");
}

TEST(Parse, ProviderKeysAreReserved) {
  EXPECT_THAT(errors("version: 1\nnetwork_policies: {_provider_x: {}}\n"),
              HasSubstr("uses reserved '_provider_' prefix for provider composition"));
}

// Every field of the messages has a key or is one of the markers that only the gateway sets, and the parser knows no key beyond them.
TEST(Parse, KeysAndDescriptorsAgree) {  // CA-99
  const std::map<std::string, std::map<std::string, std::string>> renamed{
      {"SandboxPolicy", {{"filesystem", "filesystem_policy"}}},
      {"NetworkEndpoint", {{"json_rpc_max_body_bytes", "json_rpc"}}},
  };
  const std::map<std::string, std::set<std::string>> internal{
      {"NetworkEndpoint", {"advisor_proposed", "provider_credentialed", "token_grant_owner"}}, {"L7QueryMatcher", {"glob"}}};
  const std::map<std::string, std::set<std::string>> extra{
      {"L7Allow", {"tool"}}, {"L7DenyRule", {"tool"}}, {"McpOptions", {"max_body_bytes"}}};
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  int messages = 0;
  for (const auto& [message, keys] : known_keys()) {
    const auto* descriptor = pool->FindMessageTypeByName("openshell.sandbox.v1." + message);
    if (descriptor == nullptr) {
      EXPECT_EQ(message, "json_rpc");
      continue;
    }
    ++messages;
    std::set<std::string> expected = extra.contains(message) ? extra.at(message) : std::set<std::string>{};
    for (int i = 0; i < descriptor->field_count(); ++i) {
      std::string name = descriptor->field(i)->name();
      if (internal.contains(message) && internal.at(message).contains(name)) continue;
      if (renamed.contains(message) && renamed.at(message).contains(name)) name = renamed.at(message).at(name);
      expected.insert(name);
    }
    EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()), expected) << message;
  }
  EXPECT_EQ(messages, 16);
}

TEST(Diagnostics, SupervisorTextIsBoundedAndHoldsNoAuthoredValue) {
  Diagnostics many;
  for (std::size_t i = 0; i < kMaxSupervisorItems + 1; ++i) many.error("network_policies.a", "says 'hunter2'", "", "invalid port");
  const auto text = many.supervisor_text("policy validation failed:\n");
  EXPECT_LE(text.size(), kMaxSupervisorBytes);
  EXPECT_THAT(text, testing::Not(HasSubstr("hunter2")));
  EXPECT_TRUE(text.ends_with("\nadditional violations omitted"));
  Diagnostics exact;
  for (std::size_t i = 0; i < kMaxSupervisorItems; ++i) exact.error("k", "m", "", "invalid port");
  EXPECT_THAT(exact.supervisor_text("h:\n"), testing::Not(HasSubstr("omitted")));
  Diagnostics longest;
  for (int i = 0; i < 8; ++i) longest.error(std::string(500, 'k'), "m", "", "invalid port");
  EXPECT_LE(longest.supervisor_text("h:\n").size(), kMaxSupervisorBytes);
}

TEST(Diagnostics, NearestWithinTwoEdits) {
  constexpr std::array<std::string_view, 3> kKnown{"method", "path", "query"};
  EXPECT_EQ(nearest("methd", kKnown), "method");
  EXPECT_EQ(nearest("paths", kKnown), "path");
  EXPECT_EQ(nearest("qeury", kKnown), "query");
  EXPECT_EQ(nearest("xyz", kKnown), "");
  EXPECT_EQ(shorten("a\xC3\xA9z", 2), "a...");
}

}  // namespace
}  // namespace openshell::policy
