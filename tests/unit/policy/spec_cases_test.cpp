// The policy language case by case: what is read, what is refused and with which words, what is the same policy in another form.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <functional>

#include "policy/hash.hpp"
#include "policy/normalize.hpp"
#include "policy/parse.hpp"
#include "policy/serialize.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::HasSubstr;

std::string faults_of(std::string_view yaml) { return load_policy(yaml).diagnostics.render(); }

// An endpoint from a flow mapping's members, in rule `api`.
std::string with_endpoint(const std::string& members) {
  return "version: 1\nnetwork_policies: {api: {endpoints: [{" + members + "}], binaries: [/usr/bin/curl]}}\n";
}
std::string endpoint_faults(const std::string& members) { return faults_of(with_endpoint(members)); }
struct Case {
  std::string yaml, fault;
};

TEST(SpecCases, CA_99_UnknownKeysAtEachLevelWithTheirPath) {
  const std::vector<Case> cases{
      {"version: 1\nfuture: 1\n", "unknown field 'future' in authored policy"},
      {"version: 1\nfilesystem_policy: {read_olny: []}\n",
       "unknown field 'filesystem_policy.read_olny' in authored policy; did you mean 'read_only'?"},
      {"version: 1\nlandlock: {mode: x}\n", "'landlock.mode'"},
      {"version: 1\nprocess: {user: x}\n", "'process.user'"},
      {"version: 1\nnetwork_policies: {api: {endpoint: []}}\n",
       "'network_policies.api.endpoint' in authored policy; did you mean 'endpoints'?"},
      {"version: 1\nnetwork_policies: {api: {middleware: x}}\n", "'network_policies.api.middleware'"},
      {"version: 1\nnetwork_policies: {k: {endpoints: [{host: a.x.test, port: 1, middleware: x}]}}\n",
       "'network_policies.k.endpoints[0].middleware'"},
      {"version: 1\nnetwork_policies: {api: {binaries: [{path: /a, harness: true}]}}\n", "'network_policies.api.binaries[0].harness'"},
      {with_endpoint("host: a.x.test, port: 1, protocol: rest, rules: [{allow: {future: x}}]"),
       "'network_policies.api.endpoints[0].rules[0].allow.future'"},
      {with_endpoint("host: a.x.test, port: 1, protocol: rest, rules: [{allow: {method: GET}, deny: {}}]"),
       "'network_policies.api.endpoints[0].rules[0].deny'"},
      {with_endpoint("host: a.x.test, port: 1, protocol: rest, access: full, deny_rules: [{methd: GET}]"),
       "deny_rules[0].methd' in authored policy; did you mean 'method'?"},
      {with_endpoint("host: a.x.test, port: 1, protocol: rest, rules: [{allow: {method: GET, query: {a: {glob: x}}}}]"), "query.a.glob'"},
      {with_endpoint("host: a.x.test, port: 1, json_rpc: {max: 1}"), "'network_policies.api.endpoints[0].json_rpc.max'"},
      {with_endpoint("host: a.x.test, port: 1, protocol: mcp, mcp: {seps: []}"), "mcp.seps'"},
      {with_endpoint("host: a.x.test, port: 1, credential_binding: {provider: p, x: y}"), "credential_binding.x'"},
      {with_endpoint("host: a.x.test, port: 1, advisor_proposed: true"), "'network_policies.api.endpoints[0].advisor_proposed'"},
      {with_endpoint("host: a.x.test, port: 1, provider_credentialed: true"), "provider_credentialed'"},
      {with_endpoint("host: a.x.test, port: 1, token_grant_owner: x"), "token_grant_owner'"},
      {with_endpoint("host: a.x.test, port: 1, enforcment: enforce"), "did you mean 'enforcement'?"},
      {with_endpoint("host: a.x.test, port: 1, enforcmnt: enforce"), "did you mean 'enforcement'?"},
      {"version: 1\nnetwork_middlewares: {m: {middleware: x, on_uninspectable: y}}\n", "'network_middlewares.m.on_uninspectable'"},
      {"version: 1\nnetwork_middlewares: {m: {middleware: x, endpoints: {only: []}}}\n", "'network_middlewares.m.endpoints.only'"},
      {"version: 1\ninference: {}\n", "unknown field 'inference'"},
      {"version: 1\ncedar_policy: x\n", "unknown field 'cedar_policy'"},
  };
  for (const auto& one : cases) EXPECT_THAT(faults_of(one.yaml), HasSubstr(one.fault)) << one.yaml;
  EXPECT_THAT(endpoint_faults("host: a.x.test, port: 1, enfrcmnt: enforce"), testing::Not(HasSubstr("did you mean")))
      << "three edits are too many";
}

TEST(SpecCases, EveryNullIsAnErrorThatNamesThePlace) {
  const std::vector<std::string> texts{
      "version: 1\nfilesystem_policy: null\n",
      "version: 1\nlandlock: ~\n",
      "version: 1\nprocess: {run_as_user: null}\n",
      "version: null\n",
      "version: 1\nnetwork_policies: null\n",
      "version: 1\nnetwork_policies: {api: null}\n",
      "version: 1\nnetwork_policies: {api: {endpoints: null}}\n",
      "version: 1\nnetwork_policies: {api: {binaries: null}}\n",
      with_endpoint("host: null, port: 1"),
      with_endpoint("host: a.x.test, port: null"),
      with_endpoint("host: a.x.test, port: 1, protocol: mcp, mcp: null"),
      with_endpoint("host: a.x.test, port: 1, protocol: mcp, mcp: {versions: null}"),
      with_endpoint("host: a.x.test, port: 1, json_rpc: null"),
      with_endpoint("host: a.x.test, port: 1, protocol: rest, rules: null"),
      with_endpoint("host: a.x.test, port: 1, protocol: mcp, rules: [{allow: {tool: null}}]"),
      with_endpoint("host: a.x.test, port: 1, protocol: mcp, rules: [{allow: {params: null}}]"),
      with_endpoint("host: a.x.test, port: 1, protocol: rest, rules: [{allow: null}]"),
      "version: 1\nnetwork_middlewares: {m: null}\n",
  };
  for (const auto& text : texts) EXPECT_THAT(faults_of(text), HasSubstr("found null")) << text;
}

TEST(SpecCases, ShorthandsAndWhatTheyMean) {
  const auto port = load_policy(with_endpoint("host: a.x.test, ports: [443]"));
  EXPECT_THAT(*to_yaml(*port.policy), HasSubstr("port: 443"));
  EXPECT_THAT(endpoint_faults("host: a.x.test, port: 80, ports: [443]"), HasSubstr("port and ports are mutually exclusive"));
  EXPECT_EQ(endpoint_faults("host: a.x.test, port: 443, ports: [443, 8443]"), "");
  EXPECT_THAT(*to_yaml(*port.policy), HasSubstr("- path: /usr/bin/curl"));
  const auto workdir = [](const std::string& section) {
    const auto loaded = load_policy("version: 1\n" + section);
    const auto again = load_policy(*to_yaml(*loaded.policy));
    EXPECT_EQ(loaded.policy->has_filesystem(), again.policy->has_filesystem());
    return !again.policy->has_filesystem() || again.policy->filesystem().include_workdir();
  };
  EXPECT_TRUE(workdir(""));
  EXPECT_FALSE(workdir("filesystem_policy: {}\n"));
  EXPECT_THAT(endpoint_faults("host: a.x.test, port: 65536"), HasSubstr("out of range"));
  EXPECT_THAT(endpoint_faults("host: a.x.test, ports: [70000]"), HasSubstr("out of range"));
  EXPECT_THAT(endpoint_faults("host: a.x.test, port: -1"), HasSubstr("out of range"));
}

TEST(SpecCases, ModesTakeTheirExactSpelling) {
  for (const auto* mode : {"tls: terminate", "tls: passthrough", "tls: SKIP"}) {
    EXPECT_THAT(endpoint_faults(std::string{"host: a.x.test, port: 1, "} + mode),
                HasSubstr("omit the field to keep automatic TLS termination"))
        << mode;
  }
  EXPECT_THAT(endpoint_faults("host: a.x.test, port: 1, protocol: rest, access: full, enforcement: enforc"),
              HasSubstr("unknown enforcement value 'enforc' (expected enforce or audit); did you mean 'enforce'?"));
  EXPECT_THAT(endpoint_faults("host: a.x.test, port: 1, protocol: rest, access: read-wirte"),
              HasSubstr("unknown access value 'read-wirte' (expected read-only, read-write, or full); did you mean 'read-write'?"));
  EXPECT_THAT(endpoint_faults("host: a.x.test, port: 1, protocol: ftp"),
              HasSubstr("unknown protocol 'ftp' (expected tcp, rest, websocket, graphql, sql, json-rpc, or mcp)"));
  EXPECT_EQ(endpoint_faults("host: a.x.test, port: 1, protocol: REST, access: full"), "");
}

TEST(SpecCases, EveryReasonOfTheL7Checks) {
  const std::string at = "host: a.x.test, port: 1, protocol: ";
  const std::vector<Case> cases{
      {at + "tcp, access: full", "protocol tcp does not support access, rules, or deny_rules; remove those L7 fields"},
      {at + "rest, access: full, rules: [{allow: {method: GET}}]", "rules and access are mutually exclusive"},
      {at + "mcp, access: full", "protocol mcp does not support access presets"},
      {at + "json-rpc, access: full", "protocol json-rpc does not support access presets"},
      {at + "json-rpc", "protocol json-rpc requires explicit rules with allow.method"},
      {at + "rest", "protocol requires rules or access to define allowed traffic"},
      {at + "sql", "protocol requires rules or access to define allowed traffic"},
      {at + "mcp", "protocol mcp requires rules when mcp.allow_all_known_mcp_methods is false"},
      {at + "rest, rules: [{allow: {}}]", "rules would deny all traffic (no allow clause found)"},
      {"host: a.x.test, port: 1, deny_rules: [{method: GET}]", "deny_rules require protocol (L7 inspection must be enabled)"},
      {at + "rest, deny_rules: [{method: GET}]", "deny_rules require rules or access to define the base allow set"},
      {at + "tcp, enforcement: enforce, path: /a, allow_encoded_slash: true",
       "protocol tcp does not support L7-only fields: enforcement, path, allow_encoded_slash; remove those fields"},
      {at + "rest, access: full, path: a", "path must start with '/' or be '**'"},
      {at + "graphql, access: full, persisted_queries: x", "persisted_queries must be 'deny' or 'allow_registered', got 'x'"},
      {at + "sql, access: full, enforcement: enforce", "SQL enforcement requires full SQL parsing"},
      {at + "graphql, rules: [{allow: {operation_type: '*'}}]", "rules[0].allow.operation_type must be query, mutation, or subscription"},
      {at + "graphql, access: full, deny_rules: [{operation_type: x}]",
       "deny_rules[0].operation_type must be query, mutation, or subscription"},
      {at + "graphql, access: full, graphql_persisted_queries: {h: {operation_type: x}}",
       "graphql_persisted_queries[h].operation_type must be query, mutation, or subscription"},
      {at + "graphql, access: full, graphql_max_body_bytes: 16777217", "graphql_max_body_bytes must not exceed 16777216"},
      {at + "json-rpc, rules: [{allow: {method: a}}], json_rpc: {max_body_bytes: 16777217}",
       "json_rpc_max_body_bytes must not exceed 16777216"},
      {at + "mcp, rules: [{allow: {method: ping}}], mcp: {max_body_bytes: 16777217}", "json_rpc_max_body_bytes must not exceed 16777216"},
      {"port: 1, protocol: mcp, allowed_ips: [10.0.0.1], rules: [{allow: {method: ping}}]", "protocol mcp requires host"},
      {at + "rest, rules: []", "rules list cannot be empty"},
      {at + "rest, access: full, deny_rules: []", "deny_rules list cannot be empty"},
      {at + "graphql, rules: [{allow: {operation_name: a}}]", ".operation_type: required for GraphQL L7 rules"},
      {at + "graphql, rules: [{allow: {operation_type: query, fields: []}}]", ".fields: list must not be empty"},
      {at + "graphql, rules: [{allow: {operation_type: query, fields: ['']}}]", ".fields: field glob must not be empty"},
      {at + "websocket, rules: [{allow: {method: GET, operation_type: query}}]",
       "must not combine method/path/query with operation_type/operation_name/fields"},
      {at + "websocket, rules: [{allow: {method: WEBSOCKET_TEXT}}, {allow: {operation_type: query}}]", "instead of WEBSOCKET_TEXT"},
      {at + "rest, rules: [{allow: {method: GET, query: {a: {any: []}}}}]", ".any: list must not be empty"},
      {at + "json-rpc, rules: [{allow: {path: /a}}]", ".method: required for json-rpc L7 rules"},
      {at + "json-rpc, rules: [{allow: {method: 'reports.*'}}]", "generic JSON-RPC method rules do not support glob or wildcard matchers"},
      {at + "json-rpc, rules: [{allow: {method: a, params: {name: x}}}]", "JSON-RPC rules do not support params matchers yet"},
      {at + "json-rpc, rules: [{allow: {method: a, tool: x}}]", "MCP tool matching is only valid for protocol mcp"},
      {at + "json-rpc, rules: [{allow: {method: a, path: /x}}]", "json-rpc L7 rules must use method, not path/query"},
      {at + "mcp, rules: [{allow: {method: 'resources/*'}}]", "MCP method globs are only valid for the tools/ method family"},
      {at + "mcp, rules: [{allow: {method: '*'}}]", "MCP method globs are only valid for the tools/ method family"},
      {at + "mcp, rules: [{allow: {tool: x}}]", ".method: required when mcp.allow_all_known_mcp_methods is false"},
      {at + "mcp, rules: [{allow: {method: ping, tool: x}}]", "must be tools/call when an MCP rule uses tool or params.name, got 'ping'"},
      {at + "mcp, rules: [{allow: {method: tools/call, tool: x, params: {name: y}}}]",
       "MCP rules must use either tool or params.name, not both"},
      {at + "mcp, rules: [{allow: {method: tools/call, params: {arguments: {path: y}}}}]",
       ".params.arguments.path: MCP tool argument matching is not supported yet"},
      {at + "mcp, rules: [{allow: {method: ping, path: /x}}]", "mcp L7 rules must use method/tool, not path/query"},
      {at + "mcp, mcp: {strict_tool_names: false}, rules: [{allow: {method: tools/call, tool: 'a*'}}]",
       "wildcard tool-name matchers require mcp.strict_tool_names to remain enabled"},
      {at + "mcp, rules: [{allow: {method: tools/call, tool: a}}, {allow: {method: 'tools/*'}}]",
       "method matcher allows every tool call and conflicts with MCP tool allow rules"},
      {at + "mcp, rules: [{allow: {method: tools/call, tool: a}}], deny_rules: [{method: tools/call}]",
       "method matcher denies every tool call and conflicts with MCP tool allow rules"},
      {at + "mcp, mcp: {allow_all_known_mcp_methods: true}, rules: [{allow: {}}, {allow: {tool: a}}]",
       "method matcher allows every tool call"},
      {at + "rest, rules: [{allow: {method: GET, tool: a}}]", ".tool: MCP tool matching is only valid for protocol mcp"},
      {at + "rest, rules: [{allow: {method: GET, params: {a: b}}}]", ".params: params matching is only valid for protocol mcp"},
      {at + "rest, access: full, mcp: {versions: ['2025-11-25']}", "cannot configure mcp options"},
      {at + "rest, rules: [{allow: {method: GET, path: '/a[0'}}]", "glob pattern '/a[0' has unclosed '['"},
      {at + "rest, rules: [{allow: {method: GET, path: '/a]'}}]", "has unmatched ']'"},
      {at + "rest, rules: [{allow: {method: GET, path: '/{a'}}]", "has unclosed '{'"},
      {at + "rest, rules: [{allow: {method: GET, path: '/a\\b'}}]", "backslash"},
      {at + "rest, rules: [{allow: {method: GET, path: '/{a,{b}}'}}]", "braces may not be nested"},
      {at + "rest, rules: [{allow: {method: GET, path: //x}}]", "is invalid: "},
      {at + "rest, rules: [{allow: {method: GET, path: /a/../b}}]", "is invalid: "},
      {at + "rest, access: full, credential_signing: v4", "unrecognized credential_signing value 'v4'"},
      {at + "rest, access: full, credential_signing: sigv4", "credential_signing set but signing_service is empty"},
      {at + "graphql, access: full, credential_signing: sigv4, signing_service: s3", "credential_signing set but its protocol is not rest"},
      {at + "rest, access: full, credential_signing: sigv4, signing_service: s3, request_body_credential_rewrite: true",
       "mutually exclusive"},
  };
  for (const auto& one : cases) EXPECT_THAT(endpoint_faults(one.yaml), HasSubstr(one.fault)) << one.yaml;
  const auto preset = load_policy(with_endpoint(at + "json-rpc, access: full"));
  EXPECT_EQ(preset.diagnostics.error_count(), 1U) << "exactly one message";
  EXPECT_EQ(endpoint_faults(at + "mcp, mcp: {allow_all_known_mcp_methods: true}, rules: [{allow: {}}]"), "");
}

TEST(SpecCases, HostsThatArePatternsAndHostsThatAreNot) {
  for (const auto* bad :
       {"*.com", "**.org", "**.test", "*-x.test", "*", "**", "a.*x.test", "a.**.test", "x**.a.test", "a?.x.test", "{a,b}.x.test"}) {
    EXPECT_NE(endpoint_faults(std::string{"host: '"} + bad + "', port: 443"), "") << bad;
  }
  EXPECT_EQ(endpoint_faults("host: '*.a.test', port: 443"), "");
  for (const auto* bad : {"10.0.0.1", "a.test.", "' a.test'", "a..test"}) {
    EXPECT_NE(endpoint_faults(std::string{"protocol: tcp, port: 443, host: "} + bad), "") << bad;
  }
  EXPECT_THAT(endpoint_faults("protocol: tcp, port: 443, allowed_ips: [10.0.0.0/8]"), HasSubstr("protocol tcp requires a DNS hostname"));
  EXPECT_EQ(endpoint_faults("port: 443, allowed_ips: [10.0.0.0/8]"), "");
  EXPECT_THAT(endpoint_faults("port: 443"), HasSubstr("endpoint host must not be empty unless allowed_ips"));
  EXPECT_THAT(endpoint_faults("host: a.x.test"), HasSubstr("must declare at least one port"));
}

TEST(SpecCases, OneBadPolicyHasTheSameFaultsFromTextAndFromTheWire) {
  const std::string bad =
      "version: 1\nnetwork_policies:\n  api:\n    endpoints:\n      - {host: a.x.test, port: 443, protocol: rest, rules: [{allow: {method: "
      "GET, path: "
      "'/a['}}]}\n      - {host: '*-x.test', port: 443}\n      - {host: b.x.test, port: 443, protocol: json-rpc, rules: [{allow: {method: "
      "'r.*'}}]}\n"
      "    binaries: [/usr/bin/curl]\n";
  const auto text = load_policy(bad).diagnostics.messages();
  ASSERT_EQ(text.size(), 3U);
  auto parsed = parse_policy(bad);
  ASSERT_TRUE(parsed.ok());
  auto wire = *parsed.policy;
  const std::string gateway{admit(wire).message()};
  for (const auto& fault : text) EXPECT_THAT(gateway, HasSubstr(fault));
}

TEST(SpecCases, D55e_OnePolicyInThreeFormsIsOnePolicy) {
  const auto loaded = load_policy(with_endpoint("host: a.x.test, port: 443, protocol: rest, access: full"));
  ASSERT_TRUE(loaded.ok());
  pb::SandboxPolicy wire;
  auto& rule = (*wire.mutable_network_policies())["api"];
  auto& endpoint = *rule.add_endpoints();
  endpoint.set_host("a.x.test");
  endpoint.set_port(443);
  endpoint.set_protocol("REST");
  endpoint.set_access(pb::NETWORK_ACCESS_PRESET_FULL);
  endpoint.set_advisor_proposed(true);
  endpoint.set_provider_credentialed(true);
  endpoint.set_token_grant_owner("somebody");
  rule.add_binaries()->set_path("/usr/bin/curl");
  ASSERT_TRUE(admit(wire).ok());
  EXPECT_EQ(policy_hash(wire), policy_hash(*loaded.policy));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(wire, *loaded.policy)) << "markers of a client are cleared";
  auto twice = wire;
  normalize(twice, Provenance::clear);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(wire, twice));
}

TEST(SpecCases, CA_99_WireValuesThatAreNone) {
  const auto refused = [](const std::function<void(pb::SandboxPolicy&, pb::NetworkEndpoint&)>& change) {
    pb::SandboxPolicy policy;
    auto& rule = (*policy.mutable_network_policies())["api"];
    auto& endpoint = *rule.add_endpoints();
    endpoint.set_host("a.x.test");
    endpoint.set_port(443);
    rule.add_binaries()->set_path("/usr/bin/curl");
    change(policy, endpoint);
    return std::string{admit(policy).message()};
  };
  EXPECT_EQ(refused([](auto&, auto&) {}), "");
  EXPECT_EQ(refused([](auto& policy, auto&) { policy.set_version(1); }), "");
  EXPECT_THAT(refused([](auto& policy, auto&) { policy.set_version(2); }), HasSubstr("unsupported policy version 2"));
  EXPECT_NE(refused([](auto&, auto& e) { e.set_tls(pb::NETWORK_TLS_MODE_TERMINATE); }), "");
  EXPECT_NE(refused([](auto&, auto& e) { e.set_tls(pb::NETWORK_TLS_MODE_PASSTHROUGH); }), "");
  EXPECT_THAT(refused([](auto&, auto& e) { e.set_enforcement(static_cast<pb::NetworkEnforcementMode>(9)); }),
              HasSubstr("unknown enforcement enum value 9"));
  EXPECT_THAT(refused([](auto&, auto& e) { e.set_access(static_cast<pb::NetworkAccessPreset>(9)); }),
              HasSubstr("unknown access enum value 9"));
  EXPECT_THAT(refused([](auto&, auto& e) { e.add_ports(70'000); }), HasSubstr("invalid port 70000"));
  pb::SandboxPolicy stored;
  (*stored.mutable_network_policies())["api"].add_endpoints()->add_ports(70'000);
  EXPECT_THAT(std::string{to_yaml(stored).status().message()}, HasSubstr("port 70000 exceeds 65535"));
}

TEST(SpecCases, AuthoringWarnings) {
  const auto warnings = [](const std::string& members) {
    std::string out;
    for (const auto& text : load_policy(with_endpoint(members)).diagnostics.messages(Severity::warning)) out += text + "\n";
    return out;
  };
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: rest, rules: [{allow: {method: GET}}]"),
              HasSubstr(".path: missing path allows every path"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: rest, rules: [{allow: {method: FETCH, path: /a}}]"),
              HasSubstr("Unknown HTTP method 'FETCH'"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: websocket, rules: [{allow: {method: POST, path: /a}}]"),
              HasSubstr("Unknown WebSocket method 'POST'"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: sql, access: full"), HasSubstr("sql is not inspected"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, access: full"), HasSubstr("no effect without protocol"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: rest, tls: skip, access: full"),
              HasSubstr("'tls: skip' with L7 rules on port 1"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: rest, access: full, graphql_max_body_bytes: 9"),
              HasSubstr("GraphQL-specific endpoint fields are ignored"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: rest, access: full, json_rpc: {max_body_bytes: 9}"),
              HasSubstr("JSON-RPC-specific endpoint fields are ignored"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: graphql, access: full, request_body_credential_rewrite: true"),
              HasSubstr("request_body_credential_rewrite is ignored"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: rest, access: full, websocket_credential_rewrite: true"),
              HasSubstr("websocket_credential_rewrite is ignored"));
  EXPECT_THAT(warnings("host: a.x.test, port: 1, protocol: rest, access: full, path: '/v1/**'"), HasSubstr("does not cover /v1 itself"));
  EXPECT_EQ(warnings("host: a.x.test, port: 1, protocol: rest, access: full"), "");
}

TEST(SpecCases, ARuleKeyCannotEndAHeaderLine) {
  EXPECT_THAT(faults_of("version: 1\nnetwork_policies: {\"a\\r\\nX-Evil: 1\": {}}\n"), HasSubstr("holds a control character"));
  EXPECT_EQ(faults_of("version: 1\nnetwork_policies: {\"a b\": {}}\n"), "");
}

TEST(SpecCases, IdentitiesAndPathsAtTheirBorders) {
  const auto user = [](const std::string& value) { return faults_of("version: 1\nprocess: {run_as_user: \"" + value + "\"}\n"); };
  for (const auto* good : {"sandbox", "1", "4294967294"}) EXPECT_EQ(user(good), "") << good;
  for (const auto* bad : {"0", "4294967295", "root", "nobody", "-1"})
    EXPECT_THAT(user(bad), HasSubstr("run_as_user must be 'sandbox'")) << bad;
  const auto only_user = load_policy("version: 1\nprocess: {run_as_user: \"7\"}\n");
  EXPECT_EQ(only_user.policy->process().run_as_group(), "");
  const auto paths = [](int count) {
    std::string yaml = "version: 1\nfilesystem_policy:\n  read_only:\n";
    for (int i = 0; i < count; ++i) yaml += "    - /p" + std::to_string(i) + "\n";
    return faults_of(yaml);
  };
  EXPECT_EQ(paths(256), "");
  EXPECT_THAT(paths(257), HasSubstr("too many filesystem paths (257 > 256)"));
}

}  // namespace
}  // namespace openshell::policy
