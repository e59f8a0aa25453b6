#include "policy/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

// One rule `api` for curl with one endpoint, authored: errors and warnings.
ParseResult endpoint(const std::string& keys) {
  return load_policy("version: 1\nnetwork_policies:\n  api:\n    endpoints: [{" + keys + "}]\n    binaries: [/usr/bin/curl]\n");
}
std::vector<std::string> errors(const std::string& keys) { return endpoint(keys).diagnostics.messages(); }
std::vector<std::string> warnings(const std::string& keys) { return endpoint(keys).diagnostics.messages(Severity::warning); }
std::string l7(const std::string& reason) { return "network policy 'api': endpoint 0 has invalid L7 configuration: " + reason; }

const std::string kRest = "host: a.x.test, port: 443, protocol: rest, ";

TEST(Validate, Identities) {
  const auto check = [](const std::string& user) {
    return load_policy("version: 1\nprocess: {run_as_user: '" + user + "'}\n").diagnostics.messages();
  };
  for (const char* good : {"sandbox", "1", "1500", "4294967294", ""}) EXPECT_THAT(check(good), IsEmpty()) << good;
  for (const char* bad : {"root", "0", "4294967295", "-1", "+1", "1.0", "99999999999999999999", "sandbox "}) {
    EXPECT_THAT(check(bad),
                ElementsAre("run_as_user must be 'sandbox' or a numeric UID/GID in range [1, 4294967294], got '" + std::string{bad} + "'"));
  }
}

TEST(Validate, FilesystemPaths) {
  const auto check = [](const std::string& section) {
    return load_policy("version: 1\nfilesystem_policy: {" + section + "}\n").diagnostics.messages();
  };
  EXPECT_THAT(check("read_only: [/usr, /], read_write: [/tmp]"), IsEmpty());
  EXPECT_THAT(check("read_only: [usr]"), ElementsAre("path must be absolute (start with '/'): usr"));
  EXPECT_THAT(check("read_only: [/a/../b]"), ElementsAre("path contains '..' traversal component: /a/../b"));
  EXPECT_THAT(check("read_only: [/a..b/..c]"), IsEmpty());
  EXPECT_THAT(check("read_write: [/, '//']"),
              ElementsAre(HasSubstr("read-write path is overly broad: /;"), HasSubstr("read-write path is overly broad: //;")));
  EXPECT_THAT(check("read_only: [/" + std::string(kMaxPathBytes - 1, 'a') + "]"), IsEmpty());
  EXPECT_THAT(check("read_only: [" + std::string(kMaxPathBytes + 1, 'a') + "]"),
              ElementsAre("path exceeds maximum length (4097 > 4096): " + std::string(77, 'a') + "..."));
  std::string many;
  for (std::size_t i = 0; i < kMaxFilesystemPaths; ++i) many += "/a,";
  EXPECT_THAT(check("read_only: [" + many + "]"), IsEmpty());
  EXPECT_THAT(check("read_only: [" + many + "], read_write: [/tmp]"), ElementsAre("too many filesystem paths (257 > 256)"));
}

TEST(Validate, CA_100_LandlockTakesExactlyItsValues) {
  EXPECT_THAT(
      load_policy("version: 1\nlandlock: {compatibility: best-effort}\n").diagnostics.messages(),
      ElementsAre("invalid landlock.compatibility 'best-effort'; accepted: best_effort, hard_requirement; did you mean 'best_effort'?"));
  EXPECT_TRUE(load_policy("version: 1\nlandlock: {compatibility: hard_requirement}\n").ok());
}

TEST(Validate, Hosts) {
  EXPECT_THAT(errors("port: 443"),
              ElementsAre("network policy 'api': endpoint host must not be empty unless allowed_ips constrains a non-TCP proxy endpoint"));
  EXPECT_THAT(errors("port: 443, allowed_ips: [10.0.0.0/8]"), IsEmpty());
  EXPECT_THAT(
      errors("port: 443, protocol: tcp, allowed_ips: [10.0.0.0/8]"),
      ElementsAre("network policy 'api': protocol tcp requires a DNS hostname; leave protocol out for a hostless allowed_ips endpoint"));
  EXPECT_THAT(errors("host: 10.0.0.1, port: 443, protocol: tcp"), ElementsAre(HasSubstr("must use a DNS hostname, not an IP literal")));
  EXPECT_THAT(errors("host: 10.0.0.1, port: 443"), IsEmpty());
  EXPECT_THAT(errors("host: ' a.x.test', port: 443, protocol: tcp"),
              ElementsAre("network policy 'api': protocol tcp endpoint has invalid DNS host selector ' a.x.test': leading or trailing "
                          "whitespace is not allowed"));
  EXPECT_THAT(errors("host: a.x.test., port: 443, protocol: tcp"), ElementsAre(HasSubstr("omit the trailing DNS root dot")));
  EXPECT_THAT(errors("host: ., port: 443, protocol: tcp"), ElementsAre(HasSubstr("DNS root is not a destination hostname")));
  EXPECT_THAT(errors("host: a..test, port: 443, protocol: tcp"), ElementsAre(HasSubstr("empty DNS labels")));
  EXPECT_THAT(errors("host: a_b!.x.test, port: 443, protocol: tcp"), ElementsAre(HasSubstr("selector cannot represent a valid DNS name")));
  EXPECT_THAT(warnings("host: 'https://a.x.test/', port: 443"), ElementsAre(HasSubstr("write the host alone, without scheme and path")));
  for (const char* pattern : {"'a?.x.test'", "'[ab].x.test'", "'{a,b}.x.test'", "'[::1]'"}) {
    EXPECT_THAT(errors("host: " + std::string{pattern} + ", port: 443"),
                ElementsAre(HasSubstr("uses an unsupported pattern; only '*' and '**' are allowed")));
  }
}

// Found by fuzz.policy_yaml_fuzz: what is accepted here must compile (POL, one engine for hosts).
TEST(Validate, AHostPatternHoldsOnlyWhatAHostNameMayHold) {
  for (const char* host :
       {R"('\"*.a.test"')", R"('\*.a.test')", "'*.a b.test'", "'*.a/b.test'", "'*.a..test'", "'*.a.test.'", "'*.café.test'"}) {
    const auto found = load_policy(std::string{"version: 1\nnetwork_policies: {api: {endpoints: [{host: "} + host + ", port: 443}]}}\n");
    ASSERT_TRUE(found.diagnostics.has_errors()) << host;
    EXPECT_THAT(found.diagnostics.messages(), ElementsAre(HasSubstr("network policy 'api': endpoint has invalid host pattern '"))) << host;
    EXPECT_THAT(found.diagnostics.messages(), ElementsAre(Not(HasSubstr("path")))) << host;
    EXPECT_THAT(found.diagnostics.render(), HasSubstr(":2:")) << host;
  }
  const std::string longest = "*." + std::string(63, 'a') + ".test";
  EXPECT_THAT(errors("host: '" + longest + "', port: 443"), IsEmpty());
  EXPECT_THAT(errors("host: '*." + std::string(64, 'a') + ".test', port: 443"), ElementsAre(HasSubstr("a label has 1 to 63 letters")));
}

TEST(Validate, D55c_Wildcards) {
  for (const char* host : {"*.com", "**.test", "*-x.test"}) {
    EXPECT_THAT(errors("host: '" + std::string{host} + "', port: 443"),
                ElementsAre(HasSubstr("TLD wildcard '" + std::string{host} + "' is not allowed")));
  }
  for (const char* host : {"*", "**", "a**.x.test", "a.b*.test", "a.**.test", "**a.x.test"}) {
    EXPECT_THAT(errors("host: '" + std::string{host} + "', port: 443"),
                ElementsAre(HasSubstr("invalid host wildcard '" + std::string{host} + "'")))
        << host;
  }
  for (const char* host : {"*.x.test", "**.x.test", "*-a.x.test", "*.s3.*.x.test", "a*b.x.test"}) {
    EXPECT_THAT(errors("host: '" + std::string{host} + "', port: 443"), IsEmpty()) << host;
  }
}

TEST(Validate, PortsAndAddresses) {
  EXPECT_THAT(errors("host: a.x.test"), ElementsAre(HasSubstr("endpoint 'a.x.test' must declare at least one port")));
  EXPECT_THAT(errors("host: a.x.test, ports: [443, 0]"),
              ElementsAre("network policy 'api': endpoint 'a.x.test' has invalid port 0; expected 1..=65535"));
  EXPECT_THAT(errors("host: a.x.test, port: 65535"), IsEmpty());
  EXPECT_THAT(errors("host: a.x.test, port: 443, allowed_ips: [10.0.0.0/33]"),
              ElementsAre(HasSubstr("invalid CIDR/IP in allowed_ips: 10.0.0.0/33")));
  EXPECT_THAT(warnings("host: a.x.test, port: 443, allowed_ips: [127.0.0.0/8]"), ElementsAre(HasSubstr("always-blocked range")));
  EXPECT_THAT(warnings("host: a.x.test, port: 443, allowed_ips: [10.0.0.0/8]"), IsEmpty());
}

TEST(Validate, L7Semantics) {
  EXPECT_THAT(
      errors("host: a.x.test, port: 443, protocol: ftp"),
      ElementsAre(l7("unknown protocol 'ftp' (expected tcp, rest, websocket, graphql, sql, json-rpc, or mcp); did you mean 'tcp'?")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: tcp, access: full"),
              ElementsAre(l7("protocol tcp does not support access, rules, or deny_rules; remove those L7 fields")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: tcp, enforcement: enforce, path: /a, signing_region: x"),
              ElementsAre(l7("protocol tcp does not support L7-only fields: enforcement, path, signing_region; remove those fields")));
  EXPECT_THAT(errors(kRest + "access: full, rules: [{allow: {method: GET}}]"), ElementsAre(l7("rules and access are mutually exclusive")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: mcp, access: full"),
              ElementsAre(HasSubstr("protocol mcp does not support access presets")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: json-rpc, access: full"),
              ElementsAre(HasSubstr("protocol json-rpc does not support access presets")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: json-rpc"),
              ElementsAre(l7("protocol json-rpc requires explicit rules with allow.method")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: rest"),
              ElementsAre(HasSubstr("protocol requires rules or access to define allowed traffic")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: mcp"),
              ElementsAre(l7("protocol mcp requires rules when mcp.allow_all_known_mcp_methods is false")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: mcp, mcp: {allow_all_known_mcp_methods: true}"), IsEmpty());
  EXPECT_THAT(errors(kRest + "rules: [{allow: {}}]"), ElementsAre(HasSubstr("rules would deny all traffic (no allow clause found)")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, deny_rules: [{method: GET}]"), ElementsAre(HasSubstr("deny_rules require protocol")));
  EXPECT_THAT(errors(kRest + "deny_rules: [{method: GET}]"),
              UnorderedElementsAre(HasSubstr("protocol requires rules or access"),
                                   HasSubstr("deny_rules require rules or access to define the base allow set")));
  EXPECT_THAT(errors(kRest + "access: full, path: v1"), ElementsAre(l7("path must start with '/' or be '**'")));
  EXPECT_THAT(errors(kRest + "access: full, persisted_queries: x"),
              ElementsAre(l7("persisted_queries must be 'deny' or 'allow_registered', got 'x'")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: sql, access: full, enforcement: enforce"),
              ElementsAre(l7("SQL enforcement requires full SQL parsing; use enforcement: audit")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: graphql, rules: [{allow: {operation_type: '*'}}]"),
              ElementsAre(l7("rules[0].allow.operation_type must be query, mutation, or subscription")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: graphql, rules: [{allow: {operation_name: Q}}]"),
              ElementsAre("api.endpoints[0].rules[0].allow.operation_type: required for GraphQL L7 rules"));
  EXPECT_THAT(errors("host: a.x.test, port: 443, protocol: graphql, access: full, graphql_persisted_queries: {k: {operation_type: x}}"),
              ElementsAre(l7("graphql_persisted_queries[k].operation_type must be query, mutation, or subscription")));
}

TEST(Validate, BodyLimitsAtTheBorder) {
  const std::string graphql = "host: a.x.test, port: 443, protocol: graphql, access: full, graphql_max_body_bytes: ";
  EXPECT_THAT(errors(graphql + "16777216"), IsEmpty());
  EXPECT_THAT(errors(graphql + "16777217"), ElementsAre(l7("graphql_max_body_bytes must not exceed 16777216")));
  const std::string rpc = "host: a.x.test, port: 443, protocol: json-rpc, rules: [{allow: {method: '*'}}], json_rpc: {max_body_bytes: ";
  EXPECT_THAT(errors(rpc + "16777216}"), IsEmpty());
  EXPECT_THAT(errors(rpc + "16777217}"), ElementsAre(l7("json_rpc_max_body_bytes must not exceed 16777216")));
}

TEST(Validate, Signing) {
  EXPECT_THAT(errors(kRest + "access: full, credential_signing: sigv4, signing_service: s3"), IsEmpty());
  EXPECT_THAT(errors(kRest + "access: full, credential_signing: v4, signing_service: s3"),
              ElementsAre(HasSubstr("unrecognized credential_signing value 'v4'")));
  EXPECT_THAT(errors(kRest + "access: full, credential_signing: sigv4"),
              ElementsAre(HasSubstr("credential_signing set but signing_service is empty")));
  EXPECT_THAT(errors(kRest + "access: full, credential_signing: sigv4, signing_service: s3, request_body_credential_rewrite: true"),
              ElementsAre(HasSubstr("mutually exclusive")));
  EXPECT_THAT(errors("host: a.x.test, port: 443, credential_signing: sigv4, signing_service: s3"),
              ElementsAre(HasSubstr("its protocol is not rest")));
}

TEST(Validate, D55e_PatternsOfRules) {
  EXPECT_THAT(errors(kRest + "rules: [{allow: {method: GET, path: '/a['}}]"),
              ElementsAre("api.endpoints[0].rules[0].allow.path: glob pattern '/a[' has unclosed '['"));
  EXPECT_THAT(errors(kRest + "access: full, deny_rules: [{path: '/a}'}]"),
              ElementsAre(HasSubstr("deny_rules[0].path: glob pattern '/a}' has unmatched '}'")));
  EXPECT_THAT(errors(kRest + "rules: [{allow: {method: GET, query: {t: {any: ['{a']}}}}]"),
              ElementsAre(HasSubstr(".query.t: glob pattern '{a' has unclosed '{'")));
  EXPECT_THAT(errors(kRest + "rules: [{allow: {method: GET, path: /a%2Fb}}]"), ElementsAre(HasSubstr("%2F needs allow_encoded_slash")));
  EXPECT_THAT(errors(kRest + "allow_encoded_slash: true, rules: [{allow: {method: GET, path: /a%2Fb}}]"), IsEmpty());
  EXPECT_THAT(errors(kRest + "access: full, path: /a/../b"), ElementsAre(HasSubstr("never occurs in a path")));
  EXPECT_THAT(load_policy("version: 1\nnetwork_policies: {a: {binaries: ['/usr/{x*']}}").diagnostics.messages(),
              ElementsAre("a.binaries[0]: glob pattern '/usr/{x*' has unclosed '{'"));
}

TEST(Validate, L7_07_L7_15_JsonRpcAndMcpRules) {
  const auto rpc = [](const std::string& rule) {
    return errors("host: a.x.test, port: 443, protocol: json-rpc, rules: [{allow: {" + rule + "}}]");
  };
  EXPECT_THAT(rpc("method: '*'"), IsEmpty());
  EXPECT_THAT(rpc("method: 'a*'"), ElementsAre(HasSubstr("generic JSON-RPC method rules do not support glob")));
  EXPECT_THAT(rpc("method: a, path: /x"), ElementsAre(HasSubstr("json-rpc L7 rules must use method, not path/query")));
  const auto mcp = [](const std::string& rules, const std::string& options = "versions: [2025-11-25]") {
    return errors("host: a.x.test, port: 443, protocol: mcp, mcp: {" + options + "}, " + rules);
  };
  EXPECT_THAT(mcp("rules: [{allow: {method: tools/call, tool: 'read_*'}}, {allow: {method: 'tools/list'}}]"), IsEmpty());
  EXPECT_THAT(mcp("rules: [{allow: {method: '*'}}]"),
              ElementsAre(HasSubstr("MCP method globs are only valid for the tools/ method family")));
  EXPECT_THAT(mcp("rules: [{allow: {method: 'tools/*'}}]"), IsEmpty());
  EXPECT_THAT(mcp("rules: [{allow: {tool: a}}]"),
              ElementsAre(HasSubstr(".method: required when mcp.allow_all_known_mcp_methods is false")));
  EXPECT_THAT(mcp("rules: [{allow: {method: tools/list, tool: a}}]"),
              ElementsAre(HasSubstr("must be tools/call when an MCP rule uses tool")));
  EXPECT_THAT(mcp("rules: [{allow: {method: tools/call, params: {arg: x}}}]"),
              ElementsAre(HasSubstr(".params.arg: MCP tool argument matching is not supported yet")));
  EXPECT_THAT(mcp("rules: [{allow: {method: tools/call, tool: 'a*'}}]", "strict_tool_names: false"),
              ElementsAre(HasSubstr("wildcard tool-name matchers require mcp.strict_tool_names")));
  EXPECT_THAT(mcp("rules: [{allow: {method: tools/call, tool: a}}, {allow: {method: 'tools/*'}}]"),
              ElementsAre(HasSubstr("allows every tool call and conflicts")));
  EXPECT_THAT(mcp("rules: [{allow: {method: tools/call, tool: a}}], deny_rules: [{method: tools/call}]"),
              ElementsAre(HasSubstr("denies every tool call and conflicts")));
  EXPECT_THAT(mcp("rules: [{allow: {method: ping, path: /x}}]"),
              ElementsAre(HasSubstr("mcp L7 rules must use method/tool, not path/query")));
  EXPECT_THAT(errors("port: 443, protocol: mcp, allowed_ips: [10.0.0.0/8], rules: [{allow: {method: ping}}]"),
              ElementsAre(HasSubstr("protocol mcp requires host")));
}

TEST(Validate, WebsocketRules) {
  const auto websocket = [](const std::string& rules) { return errors("host: a.x.test, port: 443, protocol: websocket, " + rules); };
  EXPECT_THAT(websocket("rules: [{allow: {method: GET, path: /ws}}, {allow: {method: WEBSOCKET_TEXT}}]"), IsEmpty());
  EXPECT_THAT(websocket("rules: [{allow: {method: GET, operation_type: query}}]"),
              ElementsAre(HasSubstr("allow rules must not combine method/path/query")));
  EXPECT_THAT(websocket("rules: [{allow: {method: WEBSOCKET_TEXT}}, {allow: {operation_type: query}}]"),
              ElementsAre(HasSubstr("instead of WEBSOCKET_TEXT")));
}

TEST(Validate, Warnings) {
  EXPECT_THAT(warnings(kRest + "rules: [{allow: {method: BREW}}]"),
              UnorderedElementsAre("api.endpoints[0].rules[0].allow.path: missing path allows every path",
                                   HasSubstr("Unknown HTTP method 'BREW'. Standard methods: GET")));
  EXPECT_THAT(warnings("host: a.x.test, port: 443, protocol: sql, access: full"), ElementsAre("api.endpoints[0]: sql is not inspected"));
  EXPECT_THAT(warnings("host: a.x.test, port: 443, access: full"),
              ElementsAre(HasSubstr("access and rules have no effect without protocol")));
  EXPECT_THAT(warnings(kRest + "access: full, tls: skip"), ElementsAre(HasSubstr("L7 inspection cannot work on encrypted traffic")));
  EXPECT_THAT(warnings(kRest + "access: full, websocket_credential_rewrite: true"),
              ElementsAre(HasSubstr("is ignored unless protocol is websocket")));
  EXPECT_THAT(warnings("host: a.x.test, port: 443, request_body_credential_rewrite: true"),
              ElementsAre(HasSubstr("is ignored unless protocol is rest")));
  EXPECT_THAT(warnings(kRest + "access: full, graphql_max_body_bytes: 1"),
              ElementsAre(HasSubstr("GraphQL-specific endpoint fields are ignored")));
  EXPECT_THAT(warnings(kRest + "access: full, json_rpc: {max_body_bytes: 1}"),
              ElementsAre(HasSubstr("JSON-RPC-specific endpoint fields are ignored")));
  EXPECT_THAT(
      load_policy("version: 1\nnetwork_policies: {a: {endpoints: [{host: a.x.test, port: 1}]}}").diagnostics.messages(Severity::warning),
      ElementsAre(HasSubstr("lists no binaries, so no program may use it")));
  EXPECT_THAT(load_policy("version: 1\nnetwork_policies: {a: {binaries: [curl]}}").diagnostics.messages(Severity::warning),
              ElementsAre(HasSubstr("is not an absolute path and matches no program; write '**/curl'")));
}

TEST(Validate, Middlewares) {
  const auto check = [](const std::string& configs, const std::string& more = "") {
    return load_policy("version: 1\nnetwork_middlewares: {" + configs + "}\n" + more).diagnostics.messages();
  };
  const std::string good = "middleware: openshell/regex, endpoints: {include: ['**'], exclude: ['a?.x.test']}";
  EXPECT_THAT(check("m: {" + good + "}"), IsEmpty());
  EXPECT_THAT(check("m: {middleware: '', endpoints: {include: ['**']}}"),
              ElementsAre("middleware config 'm' is invalid: middleware must not be empty"));
  EXPECT_THAT(check("m: {" + good + ", on_error: x}"), ElementsAre("middleware config 'm' is invalid: invalid on_error 'x'"));
  EXPECT_THAT(check("m: {middleware: a}"), ElementsAre("middleware config 'm' is invalid: endpoint selector is required"));
  EXPECT_THAT(check("m: {middleware: a, endpoints: {}}"), ElementsAre(HasSubstr("must include at least one host pattern")));
  EXPECT_THAT(
      check("m: {middleware: a, endpoints: {include: ['', 'a b', '{a,b}', 'a..b', 'a[']}}"),
      ElementsAre(HasSubstr("pattern '' is invalid: host pattern must not be empty"), HasSubstr("whitespace"),
                  HasSubstr("brace alternates"), HasSubstr("empty DNS labels"), HasSubstr("invalid host pattern: has unclosed '['")));
  EXPECT_THAT(check("a: {order: 5, " + good + "}, b: {order: 5, " + good + "}"),
              ElementsAre("middleware configs 'a' and 'b' use duplicate order 5"));
  std::string eleven;
  for (std::size_t i = 0; i <= kMaxMiddlewares; ++i)
    eleven += "m" + std::to_string(i) + ": {order: " + std::to_string(i) + ", " + good + "}, ";
  EXPECT_THAT(check(eleven), ElementsAre("too many middleware configs (11 > 10)"));
  std::string patterns;
  for (std::size_t i = 0; i < kMaxMiddlewarePatterns; ++i) patterns += "'**', ";
  EXPECT_THAT(check("m: {middleware: a, endpoints: {include: [" + patterns + "]}}"), IsEmpty());
  EXPECT_THAT(check("m: {middleware: a, endpoints: {include: [" + patterns + " '**']}}"),
              ElementsAre(HasSubstr("too many selector patterns (33 > 32)")));
}

TEST(Validate, MiddlewaresAndRawEndpoints) {
  const std::string raw = "network_policies: {n: {endpoints: [{host: '*.x.test', port: 443, tls: skip}], binaries: [/usr/bin/curl]}}\n";
  const auto check = [&](const std::string& selector, const std::string& more = "") {
    return load_policy("version: 1\n" + raw + "network_middlewares: {m: {middleware: a" + more + ", endpoints: {" + selector + "}}}\n")
        .diagnostics.messages();
  };
  EXPECT_THAT(check("include: ['**']"),
              ElementsAre(HasSubstr("middleware config 'm' selects network policy 'n' tls: skip endpoint '*.x.test'")));
  EXPECT_THAT(check("include: ['**']", ", on_error: fail_open"), IsEmpty());
  EXPECT_THAT(check("include: ['**.y.test']"), IsEmpty());
  EXPECT_THAT(check("include: ['**'], exclude: ['*.x.test']"), IsEmpty());
  EXPECT_THAT(check("include: ['**'], exclude: ['a.x.test']"), testing::SizeIs(1));
  EXPECT_THAT(check("include: [a.x.test], exclude: [a.x.test]"), IsEmpty());
}

// --- protobuf
// ------------------------------------------------------------------------------------------------------------------------------------------

pb::SandboxPolicy wire(pb::NetworkEndpoint** endpoint) {
  pb::SandboxPolicy policy;
  auto& rule = (*policy.mutable_network_policies())["api"];
  rule.add_binaries()->set_path("/usr/bin/curl");
  *endpoint = rule.add_endpoints();
  (*endpoint)->set_host("a.x.test");
  (*endpoint)->set_port(443);
  return policy;
}

TEST(Admit, CA_99_UnknownEnumNumbersAreNeverReadAsADefault) {
  pb::NetworkEndpoint* endpoint = nullptr;
  auto policy = wire(&endpoint);
  endpoint->set_tls(pb::NETWORK_TLS_MODE_TERMINATE);
  EXPECT_EQ(admit(policy).message(),
            "policy contains unsafe content: " + l7("unknown tls value 'terminate'; omit the field to keep automatic TLS termination"));
  endpoint->set_tls(static_cast<pb::NetworkTlsMode>(9));
  endpoint->set_enforcement(static_cast<pb::NetworkEnforcementMode>(9));
  endpoint->set_access(static_cast<pb::NetworkAccessPreset>(-1));
  EXPECT_EQ(admit(policy).message(), "policy contains unsafe content: " + l7("unknown tls enum value 9") + "; " +
                                         l7("unknown enforcement enum value 9") + "; " + l7("unknown access enum value -1"));
}

TEST(Admit, L7_27_McpOfTheWire) {
  pb::NetworkEndpoint* endpoint = nullptr;
  auto policy = wire(&endpoint);
  endpoint->set_protocol("rest");
  endpoint->set_access(pb::NETWORK_ACCESS_PRESET_FULL);
  endpoint->mutable_mcp();
  EXPECT_THAT(std::string{admit(policy).message()}, HasSubstr("endpoint 'a.x.test' uses protocol 'rest' and cannot configure mcp options"));
  endpoint->clear_access();
  endpoint->set_protocol("MCP");
  endpoint->add_rules()->mutable_allow()->set_method("ping");
  endpoint->mutable_mcp()->add_versions("latest");
  EXPECT_THAT(std::string{admit(policy).message()}, HasSubstr("MCP endpoint 'a.x.test' has unsupported protocol version 'latest'"));
  endpoint->mutable_mcp()->set_versions(0, "2025-11-25");
  EXPECT_TRUE(admit(policy).ok());
  EXPECT_EQ((*policy.mutable_network_policies())["api"].endpoints(0).protocol(), "mcp");
}

TEST(Admit, GatewayAnswersAndLeavesARefusedPolicyAsItWas) {  // NET-59
  pb::NetworkEndpoint* endpoint = nullptr;
  auto policy = wire(&endpoint);
  endpoint->set_host("*.com");
  const auto sent = policy.SerializeAsString();
  EXPECT_EQ(admit(policy).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(policy.SerializeAsString(), sent);
  endpoint->set_host("a.x.test");
  auto* second = (*policy.mutable_network_policies())["api"].add_endpoints();
  *second = (*policy.mutable_network_policies())["api"].endpoints(0);
  second->set_tls(pb::NETWORK_TLS_MODE_SKIP);
  const auto status = admit(policy);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(
      std::string{status.message()}.starts_with("network endpoint ambiguity validation failed:\nnetwork policies 'api' endpoint[0]"));
  (*policy.mutable_network_policies())["_provider_x"].set_name("x");
  EXPECT_EQ(admit(policy).code(), absl::StatusCode::kInvalidArgument);
  policy.mutable_network_policies()->erase("api");
  EXPECT_TRUE(admit(policy, Provenance::keep).ok()) << "effective policies have provider rules";
}

TEST(Admit, TheSupervisorsTextHoldsNoAuthoredValue) {
  pb::NetworkEndpoint* endpoint = nullptr;
  auto policy = wire(&endpoint);
  endpoint->set_protocol("hunter2");
  const auto status = admit_effective(policy);
  EXPECT_EQ(status.message(), "policy validation failed:\nnetwork_policies.api.endpoints[0].protocol: unknown protocol");
}

TEST(Admit, NumbersOfAMiddlewareConfigAreFinite) {
  pb::SandboxPolicy policy;
  auto& config = (*policy.mutable_network_middlewares())["m"];
  config.set_middleware("a");
  config.mutable_endpoints()->add_include("**");
  (*config.mutable_config()->mutable_fields())["x"].mutable_list_value()->add_values()->set_number_value(
      std::numeric_limits<double>::infinity());
  EXPECT_THAT(std::string{admit(policy).message()}, HasSubstr("not finite"));
}

}  // namespace
}  // namespace openshell::policy
