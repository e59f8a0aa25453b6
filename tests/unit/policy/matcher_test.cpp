#include "policy/matcher.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>

#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace {
thread_local std::size_t allocations = 0;
}  // namespace

#ifndef __SANITIZE_ADDRESS__  // which brings an allocator of its own
// Counts what this thread allocates.
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc{};
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace openshell::policy {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Matcher> compile(std::string_view yaml, const MatcherOptions& options = {}) {
  const auto parsed = load_policy(yaml);
  EXPECT_TRUE(parsed.ok()) << parsed.diagnostics.render();
  if (!parsed.ok()) return nullptr;
  auto matcher = Matcher::compile(*parsed.policy, options);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return matcher.ok() ? *matcher : nullptr;
}

// Rules for curl from the endpoints given, each a YAML flow mapping.
std::shared_ptr<const Matcher> for_curl(const std::vector<std::string>& endpoints, std::string_view more = "") {
  std::string yaml = "version: 1\nnetwork_policies:\n";
  int number = 0;
  for (const auto& endpoint : endpoints) {
    yaml += "  r" + std::to_string(number++) + ":\n    endpoints: [" + endpoint + "]\n    binaries: [/usr/bin/curl]\n";
  }
  return compile(yaml + std::string{more});
}

Connection connect(const Matcher& matcher, std::string_view host, std::uint16_t port, std::string_view binary = "/usr/bin/curl",
                   const std::vector<std::string>& ancestors = {}, const std::vector<std::string>& cmdline = {}) {
  return matcher.connect({host, port, {binary, ancestors, cmdline}});
}

RequestDecision request(const Connection& connection, std::string_view method, std::string_view path,
                        const std::vector<QueryParameter>& query = {}) {
  return connection.request({method, path, query});
}

std::array<std::uint8_t, 16> address(const char* text) {
  auto block = parse_address_block(text);
  EXPECT_TRUE(block.ok());
  return block->network;
}

constexpr std::string_view kQuickstart = R"(version: 1
network_policies:
  api:
    endpoints:
      - host: host.openshell.internal
        ports: [9090, 9443]
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {method: GET, path: /healthz}
          - allow: {method: GET, path: /tools.json}
          - allow: {method: POST, path: /build}
    binaries: ["**/curl"]
)";

TEST(Matcher, IS_13_IS_14_IS_15_TheQuickstartPolicy) {
  const auto matcher = compile(kQuickstart);
  const auto allowed = connect(*matcher, "host.openshell.internal", 9090);
  ASSERT_TRUE(allowed.allowed) << allowed.reason;
  EXPECT_EQ(allowed.policy, "api");
  EXPECT_EQ(allowed.inspection, Inspection::requests);
  EXPECT_EQ(allowed.protocol, Protocol::rest);
  EXPECT_EQ(allowed.tls, TlsMode::automatic);
  EXPECT_TRUE(allowed.exact_declared_host);
  EXPECT_EQ(allowed.deciding->id(), "api#0");
  const auto tools = request(allowed, "GET", "/tools.json");
  EXPECT_EQ(tools.verdict, Verdict::allow);
  EXPECT_EQ(tools.rule, 1);
  const auto push = request(allowed, "POST", "/push");
  EXPECT_EQ(push.verdict, Verdict::deny);
  EXPECT_EQ(push.reason, "POST /push not permitted by policy");
  const auto python = connect(*matcher, "host.openshell.internal", 9090, "/usr/bin/python3.11");
  EXPECT_FALSE(python.allowed);
  EXPECT_FALSE(python.unknown_endpoint);
  EXPECT_THAT(python.reason,
              HasSubstr("binary '/usr/bin/python3.11' not allowed in policy 'api' (ancestors: [], cmdline: []). SYMLINK HINT"));
  const auto port = connect(*matcher, "host.openshell.internal", 9091);
  EXPECT_FALSE(port.allowed);
  EXPECT_TRUE(port.unknown_endpoint);
  EXPECT_EQ(port.reason, "endpoint host.openshell.internal:9091 is not allowed by any policy");
  EXPECT_FALSE(connect(*matcher, "other.test", 9090).allowed);
  EXPECT_TRUE(matcher->knows_host("host.openshell.internal"));
  EXPECT_FALSE(matcher->knows_host("host.docker.internal"));
  EXPECT_FALSE(matcher->knows_host("other.test"));
}

TEST(Matcher, NoRulesNothingAllowed) {
  const auto matcher = compile("version: 1\n");
  EXPECT_EQ(connect(*matcher, "a.test", 443).reason, "network connections not allowed by policy");
  EXPECT_TRUE(matcher->all_endpoints().empty());
  EXPECT_FALSE(matcher->knows_host("a.test"));
}

TEST(Matcher, InvalidInputIsDenied) {
  const auto matcher = for_curl({"{host: '**.x.test', port: 443}"});
  EXPECT_EQ(connect(*matcher, std::string_view{"a\0.x.test", 9}, 443).reason, "invalid input: network.host contains NUL");
  EXPECT_FALSE(connect(*matcher, "", 443).allowed);
  EXPECT_EQ(connect(*matcher, "a.x.test", 0).reason, "invalid input: network.port");
  EXPECT_FALSE(connect(*matcher, "a.x.test", 443, "").allowed);
}

TEST(Matcher, D36_NoWildcardAndNoHostlessEndpointAdmitsAnAlias) {
  const auto matcher = for_curl(
      {"{host: '*.openshell.internal', port: 443}", "{allowed_ips: [127.0.0.1], port: 443}", "{host: '**.docker.internal', port: 443}"});
  EXPECT_FALSE(connect(*matcher, "host.openshell.internal", 443).allowed);
  EXPECT_FALSE(connect(*matcher, "host.docker.internal", 443).allowed);
  EXPECT_FALSE(matcher->knows_host("host.openshell.internal"));
  EXPECT_TRUE(connect(*matcher, "x.openshell.internal", 443).allowed);
}

TEST(Matcher, BIN_20_BIN_21_BIN_22_BIN_23_BinariesByPathAncestorGlobNeverByCommandLine) {  // BIN-24
  const auto matcher = compile(R"(version: 1
network_policies:
  a: {endpoints: [{host: a.x.test, port: 443}], binaries: [/usr/bin/node, "/opt/ide/**"]}
  empty: {endpoints: [{host: b.x.test, port: 443}]}
)");
  EXPECT_TRUE(connect(*matcher, "a.x.test", 443, "/usr/bin/node").allowed);
  EXPECT_TRUE(connect(*matcher, "a.x.test", 443, "/usr/bin/curl", {"/bin/bash", "/usr/bin/node"}).allowed);
  EXPECT_TRUE(connect(*matcher, "a.x.test", 443, "/opt/ide/bin/x").allowed);
  const auto denied = connect(*matcher, "a.x.test", 443, "/bin/sh", {"/bin/bash", "/sbin/init"}, {"/usr/bin/node", "/work/run.sh"});
  EXPECT_FALSE(denied.allowed);
  EXPECT_THAT(denied.reason, HasSubstr("(ancestors: [/bin/bash -> /sbin/init], cmdline: [/usr/bin/node, /work/run.sh])"));
  EXPECT_FALSE(connect(*matcher, "b.x.test", 443, "/usr/bin/node").allowed) << "a rule without binaries admits no program";
}

TEST(Matcher, BIN_23_CommandLinesChangeNoVerdict) {  // BIN-10
  const auto matcher = compile(R"(version: 1
network_policies:
  a: {endpoints: [{host: a.x.test, port: 443}], binaries: [/usr/bin/node, "**/py*"]}
)");
  for (const char* path : {"/usr/bin/node", "/bin/sh", "/usr/bin/python3"}) {
    const bool plain = connect(*matcher, "a.x.test", 443, path).allowed;
    for (const char* script : {"/usr/bin/node", "/work/py.sh", "", "/bin/sh"}) {
      EXPECT_EQ(connect(*matcher, "a.x.test", 443, path, {}, {script, script}).allowed, plain) << path << " " << script;
    }
  }
}

TEST(Matcher, NP_11_ManyBinariesAndRelaxedMode) {
  std::string yaml = "version: 1\nnetwork_policies:\n  a:\n    endpoints: [{host: a.x.test, port: 443}]\n    binaries:\n";
  for (int i = 0; i < 50; ++i) yaml += "      - /bin/b" + std::to_string(i) + "\n";
  EXPECT_TRUE(connect(*compile(yaml), "a.x.test", 443, "/bin/b49").allowed);
  EXPECT_FALSE(connect(*compile(yaml), "a.x.test", 443, "/bin/b50").allowed);
  EXPECT_TRUE(connect(*compile(yaml, {.require_binary_identity = false, .symlink_targets = {}}), "a.x.test", 443, "").allowed);
}

TEST(Matcher, SymlinkTargetsAddEntriesToPlainPathsOnly) {
  MatcherOptions options;
  options.symlink_targets = {{"/usr/bin/python3", "/usr/bin/python3.11"}, {"/opt/*", "/bin/sh"}};
  const auto matcher = compile(
      "version: 1\nnetwork_policies: {a: {endpoints: [{host: a.x.test, port: 443}], binaries: [/usr/bin/python3, '/opt/*']}}\n", options);
  EXPECT_TRUE(connect(*matcher, "a.x.test", 443, "/usr/bin/python3.11").allowed);
  EXPECT_TRUE(connect(*matcher, "a.x.test", 443, "/usr/bin/python3").allowed);
  EXPECT_FALSE(connect(*matcher, "a.x.test", 443, "/bin/sh").allowed);
}

TEST(Matcher, LiteralsAndHostlessBlocks) {
  const auto matcher = for_curl(
      {"{host: 10.1.2.3, port: 80}", "{host: '2001:DB8::0001', port: 80}", "{allowed_ips: [10.20.0.0/16, 'fd00::/8'], port: 8080}"});
  EXPECT_TRUE(connect(*matcher, "10.1.2.3", 80).allowed);
  EXPECT_TRUE(connect(*matcher, "2001:db8::1", 80).allowed);
  EXPECT_FALSE(connect(*matcher, "10.1.2.4", 80).allowed);
  EXPECT_FALSE(matcher->knows_host("10.1.2.3"));
  const auto lab = connect(*matcher, "10.20.1.1", 8080);
  ASSERT_TRUE(lab.allowed);
  EXPECT_FALSE(lab.exact_declared_host);
  EXPECT_TRUE(lab.deciding->admits_address(address("10.20.1.1")));
  EXPECT_FALSE(lab.deciding->admits_address(address("10.21.1.1")));
  EXPECT_TRUE(lab.deciding->admits_address(address("fd00::1")));
  EXPECT_FALSE(connect(*matcher, "name.x.test", 8080).allowed) << "a block without a host is for literal destinations only";
}

TEST(AddressBlock, Forms) {
  const auto admits = [](const char* block, const char* text) { return parse_address_block(block)->contains(address(text)); };
  EXPECT_TRUE(admits("10.0.0.0/8", "10.255.0.1"));
  EXPECT_FALSE(admits("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(admits("10.1.2.3/31", "10.1.2.2"));
  EXPECT_FALSE(admits("10.1.2.3", "10.1.2.2"));
  EXPECT_TRUE(admits("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(admits("0.0.0.0/0", "2001:db8::1"));
  EXPECT_FALSE(admits("::/0", "1.2.3.4"));
  EXPECT_TRUE(admits("2001:db8::/33", "2001:db8:7fff::1"));
  EXPECT_FALSE(admits("2001:db8::/33", "2001:db8:8000::1"));
  for (const char* bad : {"", "x", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "012.0.0.1"}) {
    EXPECT_FALSE(parse_address_block(bad).ok()) << bad;
  }
}

// --- which endpoint decides
// ----------------------------------------------------------------------------------------------------------------------------

TEST(Matcher, NET_58_ExactHostOverWildcardOverTwoStars) {
  const auto matcher = for_curl({"{host: '**.x.test', port: 443, tls: skip}", "{host: '*.x.test', port: 443, protocol: rest, access: full}",
                                 "{host: api.x.test, port: 443, tls: skip}"});
  EXPECT_EQ(connect(*matcher, "api.x.test", 443).deciding->host, "api.x.test");
  EXPECT_EQ(connect(*matcher, "api.x.test", 443).inspection, Inspection::raw);
  EXPECT_EQ(connect(*matcher, "b.x.test", 443).deciding->host, "*.x.test");
  EXPECT_EQ(connect(*matcher, "b.x.test", 443).inspection, Inspection::requests);
  EXPECT_EQ(connect(*matcher, "a.b.x.test", 443).deciding->host, "**.x.test");
  EXPECT_EQ(connect(*matcher, "a.b.x.test", 443).tls, TlsMode::skip);
}

TEST(Matcher, NET_58_MoreCharactersThenOnePortOverAList) {
  const auto matcher =
      for_curl({"{host: '**.a.test', port: 443, tls: skip}", "{host: '**.b.a.test', port: 443, protocol: rest, access: full}",
                "{host: y.x.test, ports: [443, 80], tls: skip}", "{host: y.x.test, port: 443, protocol: rest, access: full}"});
  EXPECT_EQ(connect(*matcher, "c.b.a.test", 443).inspection, Inspection::requests);
  EXPECT_EQ(connect(*matcher, "c.a.test", 443).inspection, Inspection::raw);
  EXPECT_EQ(connect(*matcher, "y.x.test", 443).inspection, Inspection::requests);
  EXPECT_EQ(connect(*matcher, "y.x.test", 80).inspection, Inspection::raw);
}

TEST(Matcher, NET_58_TheCircleExample) {
  const auto matcher = for_curl({"{host: 'a-*.x.test', port: 443, protocol: rest, enforcement: enforce, access: read-only}",
                                 "{host: '*.x.test', port: 443, path: '/v1/a/**', protocol: rest, access: full}",
                                 "{host: '*-b.*.test', port: 443, path: '/v1/**', protocol: rest, access: full}"});
  const auto connection = connect(*matcher, "a-b.x.test", 443);
  ASSERT_TRUE(connection.allowed);
  ASSERT_EQ(connection.endpoints().size(), 3U);
  EXPECT_EQ(connection.endpoints()[0]->host, "a-*.x.test");
  EXPECT_EQ(connection.endpoints()[1]->host, "*-b.*.test");
  EXPECT_EQ(connection.endpoints()[2]->host, "*.x.test");
  EXPECT_EQ(connection.deciding_for("/v1/a/z")->host, "a-*.x.test");
  EXPECT_EQ(request(connection, "POST", "/v1/a/z").verdict, Verdict::allow) << "the others' allow rules add up";
  EXPECT_EQ(request(connection, "POST", "/other").verdict, Verdict::deny);
}

TEST(Matcher, NET_58_PathDecidesARequestNotTheConnection) {
  const auto matcher =
      for_curl({"{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, access: full}",
                "{host: a.x.test, port: 443, path: /graphql, protocol: graphql, enforcement: enforce, access: read-only}"});
  const auto connection = connect(*matcher, "a.x.test", 443);
  EXPECT_EQ(request(connection, "GET", "/x").verdict, Verdict::allow);
  const auto graphql = request(connection, "POST", "/graphql");
  EXPECT_EQ(graphql.verdict, Verdict::unsupported);
  EXPECT_EQ(graphql.protocol, Protocol::graphql);
  EXPECT_FALSE(graphql.forwards());
}

TEST(Matcher, APathThatNoCandidateCoversIsDenied) {
  const auto matcher =
      for_curl({"{host: a.x.test, port: 443, path: '/v1/**', protocol: rest, access: full}", "{host: a.x.test, port: 443}"});
  const auto connection = connect(*matcher, "a.x.test", 443);
  EXPECT_EQ(connection.inspection, Inspection::requests);
  EXPECT_EQ(request(connection, "GET", "/v1/a").verdict, Verdict::allow);
  const auto outside = request(connection, "GET", "/v2");
  EXPECT_EQ(outside.verdict, Verdict::deny) << "the plain endpoint adds no request access";
  EXPECT_EQ(outside.endpoint, nullptr);
}

TEST(Matcher, NET_58_UserOverProviderAndProposalsNeverDecideOverExplicitOnes) {
  pb::SandboxPolicy policy;
  policy.set_version(1);
  const auto add = [&](const std::string& key, const std::string& host, pb::NetworkEnforcementMode mode, bool advisor) {
    auto& rule = (*policy.mutable_network_policies())[key];
    rule.set_name(key);
    rule.add_binaries()->set_path("/usr/bin/curl");
    auto* endpoint = rule.add_endpoints();
    endpoint->set_host(host);
    endpoint->add_ports(443);
    endpoint->set_port(443);
    endpoint->set_protocol("rest");
    endpoint->set_access(pb::NETWORK_ACCESS_PRESET_READ_ONLY);
    endpoint->set_enforcement(mode);
    endpoint->set_advisor_proposed(advisor);
  };
  add("_provider_p", "api.x.test", pb::NETWORK_ENFORCEMENT_MODE_AUDIT, false);
  add("user", "api.x.test", pb::NETWORK_ENFORCEMENT_MODE_ENFORCE, false);
  add("a_proposal", "b.y.test", pb::NETWORK_ENFORCEMENT_MODE_AUDIT, true);
  add("wild", "*.y.test", pb::NETWORK_ENFORCEMENT_MODE_ENFORCE, false);
  const auto matcher = Matcher::compile(policy);
  ASSERT_TRUE(matcher.ok());
  const auto both = connect(**matcher, "api.x.test", 443);
  EXPECT_EQ(both.deciding->policy, "user");
  EXPECT_EQ(both.policy, "_provider_p") << "the smallest key of the matching rules";
  EXPECT_EQ(request(both, "POST", "/").verdict, Verdict::deny);
  const auto proposal = connect(**matcher, "b.y.test", 443);
  EXPECT_EQ(proposal.deciding->policy, "wild");
  EXPECT_FALSE(proposal.exact_declared_host) << "a proposal gives no trust in private addresses";
}

TEST(Matcher, ModesOfInspection) {
  const auto matcher = for_curl({"{host: l4.x.test, port: 1}", "{host: tcp.x.test, port: 1, protocol: tcp}",
                                 "{host: sql.x.test, port: 1, protocol: sql, access: full}", "{host: skip.x.test, port: 1, tls: skip}",
                                 "{host: ws.x.test, port: 1, protocol: websocket, access: full}",
                                 "{host: rpc.x.test, port: 1, protocol: json-rpc, rules: [{allow: {method: '*'}}]}",
                                 "{host: mcp.x.test, port: 1, protocol: mcp, mcp: {allow_all_known_mcp_methods: true}}"});
  const auto mode = [&](std::string_view host) {
    return std::make_pair(connect(*matcher, host, 1).inspection, connect(*matcher, host, 1).protocol);
  };
  EXPECT_EQ(mode("l4.x.test"), std::make_pair(Inspection::passthrough, Protocol::none));
  EXPECT_EQ(mode("tcp.x.test"), std::make_pair(Inspection::raw, Protocol::tcp));
  EXPECT_EQ(mode("sql.x.test"), std::make_pair(Inspection::raw, Protocol::sql));
  EXPECT_EQ(mode("skip.x.test"), std::make_pair(Inspection::raw, Protocol::none));
  EXPECT_EQ(mode("ws.x.test"), std::make_pair(Inspection::requests, Protocol::websocket));
  EXPECT_EQ(mode("rpc.x.test"), std::make_pair(Inspection::requests, Protocol::json_rpc));
  EXPECT_EQ(mode("mcp.x.test"), std::make_pair(Inspection::requests, Protocol::mcp));
  EXPECT_EQ(request(connect(*matcher, "mcp.x.test", 1), "POST", "/").verdict, Verdict::unsupported);
  EXPECT_EQ(request(connect(*matcher, "tcp.x.test", 1), "GET", "/").verdict, Verdict::deny);
  EXPECT_EQ(request(connect(*matcher, "l4.x.test", 1), "GET", "/").verdict, Verdict::allow);
  EXPECT_EQ(request(connect(*matcher, "none.x.test", 1), "GET", "/").verdict, Verdict::deny);
}

// --- requests
// ------------------------------------------------------------------------------------------------------------------------------------------

TEST(Matcher, L7_01_MethodsAndPresets) {
  const auto matcher =
      for_curl({"{host: ro.x.test, port: 1, protocol: rest, enforcement: enforce, access: read-only}",
                "{host: rw.x.test, port: 1, protocol: rest, enforcement: enforce, access: read-write}",
                "{host: full.x.test, port: 1, protocol: rest, enforcement: enforce, access: full}",
                "{host: get.x.test, port: 1, protocol: rest, enforcement: enforce, rules: [{allow: {method: get, path: '/**'}}]}"});
  const auto allowed = [&](std::string_view host, std::string_view method) {
    return request(connect(*matcher, host, 1), method, "/a").verdict == Verdict::allow;
  };
  EXPECT_TRUE(allowed("ro.x.test", "GET") && allowed("ro.x.test", "HEAD") && allowed("ro.x.test", "OPTIONS"));
  EXPECT_FALSE(allowed("ro.x.test", "POST"));
  EXPECT_TRUE(allowed("rw.x.test", "POST") && allowed("rw.x.test", "PUT") && allowed("rw.x.test", "PATCH"));
  EXPECT_FALSE(allowed("rw.x.test", "DELETE"));
  EXPECT_TRUE(allowed("full.x.test", "DELETE") && allowed("full.x.test", "BREW"));
  EXPECT_TRUE(allowed("get.x.test", "GET") && allowed("get.x.test", "Get") && allowed("get.x.test", "HEAD"));
  EXPECT_FALSE(allowed("get.x.test", "OPTIONS"));
}

TEST(Matcher, L7_01_DenyRulesBeatEveryAllowAndGlobsMeanTheSame) {
  const auto matcher =
      for_curl({"{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, access: full, deny_rules: [{method: DELETE}, {path: "
                "'/admin/**'}, {method: GET, path: /q, query: {tag: 'v1.*'}}, {}]}",
                "{host: '*.x.test', port: 443, protocol: rest, access: full, deny_rules: [{path: /secret}]}"});
  const auto connection = connect(*matcher, "a.x.test", 443);
  const auto deleted = request(connection, "DELETE", "/x");
  EXPECT_EQ(deleted.verdict, Verdict::deny);
  EXPECT_TRUE(deleted.deny_rule);
  EXPECT_EQ(deleted.rule, 0);
  EXPECT_EQ(deleted.reason, "DELETE /x blocked by deny rule");
  EXPECT_EQ(request(connection, "GET", "/admin/x").rule, 1);
  EXPECT_EQ(request(connection, "GET", "/admin").verdict, Verdict::allow);
  EXPECT_EQ(request(connection, "HEAD", "/q", {{"tag", "v1.2"}}).verdict, Verdict::deny) << "HEAD counts as GET in deny rules too";
  EXPECT_EQ(request(connection, "GET", "/q", {{"tag", "v2"}, {"tag", "v1.2"}}).verdict, Verdict::deny) << "one value is enough";
  EXPECT_EQ(request(connection, "GET", "/q", {{"tag", "v1.2.3"}}).verdict, Verdict::allow);
  EXPECT_EQ(request(connection, "GET", "/q").verdict, Verdict::allow) << "a missing key disables the deny rule";
  const auto secret = request(connection, "GET", "/secret");
  EXPECT_EQ(secret.verdict, Verdict::deny) << "deny rules of every matching endpoint count";
  EXPECT_EQ(secret.rule_endpoint->policy, "r1");
}

TEST(Matcher, L7_01_QueryOfAllowRules) {
  const auto matcher =
      for_curl({"{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: GET, path: /dl, query: {tag: "
                "{any: ['v1.*', latest]}, q: '**'}}}]}"});
  const auto connection = connect(*matcher, "a.x.test", 443);
  const auto allowed = [&](std::vector<QueryParameter> query) {
    return request(connection, "GET", "/dl", query).verdict == Verdict::allow;
  };
  EXPECT_TRUE(allowed({{"tag", "v1.2"}, {"q", "a.b/c"}}));
  EXPECT_TRUE(allowed({{"q", ""}, {"tag", "latest"}, {"unlisted", "x"}}));
  EXPECT_FALSE(allowed({{"tag", "v1.2"}})) << "every key has to be there";
  EXPECT_FALSE(allowed({{"tag", "v1.2"}, {"tag", "v2"}, {"q", ""}})) << "all values have to match";
  EXPECT_FALSE(allowed({{"Tag", "v1.2"}, {"q", ""}})) << "keys are case-sensitive";
}

TEST(Matcher, AuditForwardsWhatTheRulesRefuse) {
  const auto matcher = for_curl({"{host: a.x.test, port: 443, protocol: rest, access: read-only}"});
  const auto decision = request(connect(*matcher, "a.x.test", 443), "POST", "/a");
  EXPECT_EQ(decision.verdict, Verdict::audit);
  EXPECT_TRUE(decision.forwards());
  EXPECT_EQ(decision.reason, "POST /a not permitted by policy");
}

TEST(Matcher, RulesWithoutMethodAllowNothingWithoutPathEverything) {
  const auto matcher =
      for_curl({"{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {path: /a}}, {allow: {method: PUT}}]}"});
  const auto connection = connect(*matcher, "a.x.test", 443);
  EXPECT_EQ(request(connection, "GET", "/a").verdict, Verdict::deny);
  const auto put = request(connection, "PUT", "/anything");
  EXPECT_EQ(put.verdict, Verdict::allow);
  EXPECT_EQ(put.rule, 1);
}

TEST(Matcher, EncodedSlashesNeedTheEndpointsConsent) {
  const auto matcher = for_curl({"{host: a.x.test, port: 443, protocol: rest, access: full, allow_encoded_slash: true}",
                                 "{host: b.x.test, port: 443, protocol: rest, access: full}"});
  EXPECT_TRUE(connect(*matcher, "a.x.test", 443).may_allow_encoded_slash());
  EXPECT_TRUE(connect(*matcher, "a.x.test", 443).deciding_for("/g%2Fr")->allow_encoded_slash);
  EXPECT_FALSE(connect(*matcher, "b.x.test", 443).may_allow_encoded_slash());
}

// --- what DNS, credentials and live relays ask
// ---------------------------------------------------------------------------------------------------------

TEST(Matcher, NET_47_OnlyNamedHostsAreKnown) {
  const auto matcher = for_curl({"{host: A.x.test, port: 443}", "{host: '*.y.test', port: 443}", "{allowed_ips: [10.0.0.0/8], port: 443}"});
  EXPECT_TRUE(matcher->knows_host("a.x.test"));
  EXPECT_TRUE(matcher->knows_host("b.y.test"));
  EXPECT_FALSE(matcher->knows_host("y.test"));
  EXPECT_FALSE(matcher->knows_host("c.b.y.test"));
  EXPECT_FALSE(matcher->knows_host(""));
  EXPECT_EQ(matcher->endpoints_for("b.y.test").size(), 1U);
  EXPECT_TRUE(matcher->endpoints_for("z.test").empty());
}

TEST(Matcher, CredentialsMayNotPassUnseen) {
  pb::SandboxPolicy policy =
      *load_policy("version: 1\nnetwork_policies: {a: {endpoints: [{host: a.x.test, port: 443, tls: skip}], binaries: [/usr/bin/curl]}}\n")
           .policy;
  auto* endpoint = (*policy.mutable_network_policies())["a"].mutable_endpoints(0);
  endpoint->set_provider_credentialed(true);
  EXPECT_NE(connect(**Matcher::compile(policy), "a.x.test", 443).uninspected_credential(), nullptr);
  endpoint->set_allow_uninspected_credentials(true);
  EXPECT_EQ(connect(**Matcher::compile(policy), "a.x.test", 443).uninspected_credential(), nullptr);
  endpoint->set_allow_uninspected_credentials(false);
  endpoint->set_tls(pb::NETWORK_TLS_MODE_UNSPECIFIED);
  endpoint->set_protocol("rest");
  endpoint->set_access(pb::NETWORK_ACCESS_PRESET_FULL);
  EXPECT_EQ(connect(**Matcher::compile(policy), "a.x.test", 443).uninspected_credential(), nullptr);
}

TEST(Matcher, FB_06_ALiveRelayGoesOnWhereTheHandlingIsTheSame) {
  const auto before = for_curl({"{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}"});
  const auto live = connect(*before, "a.x.test", 443);
  const auto same = [&](const std::string& endpoint, std::string_view more = "") {
    return live.same_handling(connect(*for_curl({endpoint}, more), "a.x.test", 443));
  };
  EXPECT_TRUE(same("{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}"));
  EXPECT_TRUE(same("{host: a.x.test, ports: [443, 80], protocol: rest, enforcement: enforce, access: full}")) << "rules may differ";
  EXPECT_TRUE(same("{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}",
                   "  z: {endpoints: [{host: other.test, port: 1}], binaries: [/usr/bin/curl]}\n"));
  EXPECT_FALSE(same("{host: a.x.test, port: 443, protocol: rest, enforcement: audit, access: read-only}"));
  EXPECT_FALSE(same("{host: a.x.test, port: 443, tls: skip}"));
  EXPECT_FALSE(same("{host: b.x.test, port: 443}"));
  EXPECT_FALSE(same("{host: '*.x.test', port: 443, protocol: rest, enforcement: enforce, access: read-only}"))
      << "no longer trusted with private addresses";
  EXPECT_FALSE(same("{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, access: read-only, allowed_ips: [10.0.0.0/8]}"));
}

TEST(Matcher, AConnectionKeepsItsMatcherAlive) {
  auto matcher = for_curl({"{host: a.x.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}"});
  const auto connection = connect(*matcher, "a.x.test", 443);
  std::weak_ptr<const Matcher> watch = matcher;
  matcher.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(request(connection, "GET", "/").verdict, Verdict::allow);
}

TEST(Matcher, WhatCannotBeCompiledNamesTheRule) {
  pb::SandboxPolicy policy;
  auto* endpoint = (*policy.mutable_network_policies())["bad"].add_endpoints();
  endpoint->set_host("a.x.test");
  endpoint->add_ports(443);
  endpoint->set_protocol("rest");
  endpoint->add_rules()->mutable_allow()->set_path("/a[");
  EXPECT_THAT(std::string{Matcher::compile(policy).status().message()},
              HasSubstr("network policy 'bad': endpoints[0]: rules[0].allow: glob pattern '/a['"));
  endpoint->clear_rules();
  endpoint->set_protocol("ftp");
  EXPECT_FALSE(Matcher::compile(policy).ok());
  endpoint->set_protocol("rest");
  endpoint->set_enforcement(static_cast<pb::NetworkEnforcementMode>(7));
  EXPECT_FALSE(Matcher::compile(policy).ok()) << "an unknown value is never read as audit";
}

TEST(Matcher, AnAllowedDecisionDoesNotAllocate) {
  const auto matcher = compile(kQuickstart);
  const std::vector<QueryParameter> no_query;
  const auto decide = [&] {
    const auto connection = matcher->connect({"host.openshell.internal", 9090, {"/usr/bin/curl", {}, {}}});
    return connection.allowed && connection.request({"GET", "/tools.json", no_query}).verdict == Verdict::allow;
  };
  ASSERT_TRUE(decide());  // the thread's working memory is there now
  const auto before = allocations;
  const bool allowed = decide();
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(allowed);
}

// Figures, not a verdict: the bound is far above what any machine needs.
TEST(Matcher, DecisionsOnALargePolicyAreFast) {
  pb::SandboxPolicy policy;
  policy.set_version(1);
  for (int i = 0; i < 2'000; ++i) {
    auto& rule = (*policy.mutable_network_policies())["r" + std::to_string(i)];
    rule.add_binaries()->set_path("/usr/bin/curl");
    for (int k = 0; k < 5; ++k) {
      auto* endpoint = rule.add_endpoints();
      endpoint->set_host((k == 4 ? "*.w" : "h" + std::to_string(k) + ".s") + std::to_string(i) + ".x.test");
      endpoint->add_ports(443);
      endpoint->set_protocol("rest");
      endpoint->set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
      endpoint->add_rules()->mutable_allow()->set_method("GET");
      endpoint->mutable_rules(0)->mutable_allow()->set_path("/v1/*/items/**");
    }
  }
  using Clock = std::chrono::steady_clock;
  const auto started = Clock::now();
  const auto matcher = Matcher::compile(policy);
  ASSERT_TRUE(matcher.ok());
  const auto compiled = Clock::now();
  constexpr int kRounds = 20'000;
  const auto per_call = [](Clock::duration spent) { return std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count() / kRounds; };
  const auto time_connect = [&](std::string_view host, bool expected) {
    const auto begin = Clock::now();
    int right = 0;
    for (int i = 0; i < kRounds; ++i) right += connect(**matcher, host, 443).allowed == expected ? 1 : 0;
    EXPECT_EQ(right, kRounds);
    return per_call(Clock::now() - begin);
  };
  const auto exact = time_connect("h3.s1234.x.test", true);
  const auto wildcard = time_connect("any.w777.x.test", true);
  const auto denied = time_connect("none.s1.x.test", false);
  const auto connection = connect(**matcher, "h3.s1234.x.test", 443);
  const auto begin = Clock::now();
  int right = 0;
  for (int i = 0; i < kRounds; ++i) right += request(connection, "GET", "/v1/abc/items/1/2/3").verdict == Verdict::allow ? 1 : 0;
  EXPECT_EQ(right, kRounds);
  const auto judged = per_call(Clock::now() - begin);
  std::cout << "10,000 endpoints: compile " << std::chrono::duration_cast<std::chrono::milliseconds>(compiled - started).count()
            << " ms; connect exact " << exact << " ns, wildcard " << wildcard << " ns, denied " << denied << " ns; request " << judged
            << " ns\n";
  EXPECT_LT(exact, 100'000);
}

}  // namespace
}  // namespace openshell::policy
