#include "policy/serialize.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/hash.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

constexpr std::string_view kWide = R"(version: 1
filesystem_policy: {}
landlock: {compatibility: hard_requirement}
process: {run_as_user: "1500"}
network_policies:
  b:
    name: "true"
    endpoints:
      - host: "**.pay.test"
        ports: [443, 8443]
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {method: GET, path: "/a b/{x,y*}/**", query: {tag: "", "k.k": {any: ["v1.*", "- x", "a: b"]}}}
          - allow: {method: "*"}
        deny_rules:
          - {method: DELETE}
          - {}
        allow_encoded_slash: true
        request_body_credential_rewrite: true
        credential_binding: {provider: work}
      - allowed_ips: [10.0.0.0/8, "fd00::/8"]
        port: 8080
    binaries: [/usr/bin/curl, "**/git*"]
  mcp:
    endpoints:
      - host: m.x.test
        port: 443
        protocol: mcp
        mcp: {versions: [2025-03-26, 2025-11-25], max_body_bytes: 100, strict_tool_names: true, allow_all_known_mcp_methods: false}
        rules:
          - allow: {method: tools/call, tool: {any: [a, b]}}
          - allow: {method: tools/list}
    binaries: [/usr/bin/node]
  graph:
    endpoints:
      - host: g.x.test
        port: 443
        path: /graphql
        protocol: graphql
        persisted_queries: allow_registered
        graphql_persisted_queries: {abc: {operation_type: query, operation_name: Q, fields: [viewer]}}
        graphql_max_body_bytes: 1000
        rules: [{allow: {operation_type: query, fields: ["a*"]}}]
      - {host: j.x.test, port: 443, protocol: json-rpc, json_rpc: {max_body_bytes: 7}, rules: [{allow: {method: "*"}}]}
      - {host: t.x.test, port: 25, tls: skip}
    binaries: [/usr/bin/node]
network_middlewares:
  redact:
    middleware: openshell/regex
    order: -3
    on_error: fail_open
    config: {list: [1, 1.5, -2, 1e300, null, true, "null", {}], "odd key: #": "line\nbreak \u0007 \u2028"}
    endpoints: {include: ["**"], exclude: [t.x.test]}
)";

TEST(Serialize, ParseOfTheTextGivesThePolicyBackByteForByte) {
  const auto first = load_policy(kWide);
  ASSERT_TRUE(first.ok()) << first.diagnostics.render();
  const auto yaml = to_yaml(*first.policy);
  ASSERT_TRUE(yaml.ok()) << yaml.status();
  const auto second = load_policy(*yaml);
  ASSERT_TRUE(second.ok()) << second.diagnostics.render() << *yaml;
  EXPECT_EQ(canonical_bytes(*second.policy), canonical_bytes(*first.policy)) << *yaml;
  EXPECT_EQ(to_yaml(*second.policy).value(), *yaml);
  for (const bool pretty : {true, false}) {
    const auto json = to_json(*first.policy, pretty);
    ASSERT_TRUE(json.ok());
    const auto third = load_policy(*json);
    ASSERT_TRUE(third.ok()) << third.diagnostics.render() << *json;
    EXPECT_EQ(canonical_bytes(*third.policy), canonical_bytes(*first.policy));
  }
}

TEST(Serialize, ShapeOfTheText) {
  const auto parsed = load_policy(R"(version: 1
filesystem_policy: {read_only: [/usr]}
network_policies:
  weather:
    endpoints: [{host: api.weather.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}]
    binaries: [/usr/bin/curl]
)");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(to_yaml(*parsed.policy).value(), R"(version: 1
filesystem_policy:
  include_workdir: false
  read_only:
    - /usr
network_policies:
  weather:
    name: weather
    endpoints:
      - host: api.weather.test
        port: 443
        protocol: rest
        enforcement: enforce
        access: read-only
    binaries:
      - path: /usr/bin/curl
)");
  EXPECT_EQ(to_json(*parsed.policy, false).value().substr(0, 90),
            R"({"version":1,"filesystem_policy":{"include_workdir":false,"read_only":["/usr"]},"network_p)");
}

TEST(Serialize, WhatHasNoSpellingIsAnError) {
  pb::SandboxPolicy policy;
  policy.set_version(2);
  EXPECT_EQ(to_yaml(policy).status().message(), "cannot serialize unsupported protobuf policy version 2; expected 0 (omitted) or 1");
  policy.set_version(0);
  EXPECT_EQ(to_yaml(policy).value(), "version: 1\n");
  auto* endpoint = (*policy.mutable_network_policies())["a"].add_endpoints();
  endpoint->set_host("h");
  endpoint->add_ports(70'000);
  EXPECT_EQ(to_yaml(policy).status().message(), "cannot serialize endpoint 'h': port 70000 exceeds 65535");
  endpoint->set_ports(0, 443);
  endpoint->set_tls(pb::NETWORK_TLS_MODE_TERMINATE);
  EXPECT_FALSE(to_yaml(policy).ok());
  endpoint->set_tls(pb::NETWORK_TLS_MODE_SKIP);
  endpoint->set_advisor_proposed(true);
  EXPECT_THAT(to_yaml(policy).value(), testing::Not(testing::HasSubstr("advisor")));
}

}  // namespace
}  // namespace openshell::policy
