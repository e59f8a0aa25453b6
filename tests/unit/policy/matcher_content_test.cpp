// Decisions over what a request holds: GraphQL, JSON-RPC, MCP, WebSocket (spec "Cases to test", Evaluate).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Matcher> compile(std::string_view yaml) {
  const auto parsed = load_policy(yaml);
  EXPECT_TRUE(parsed.ok()) << parsed.diagnostics.render();
  if (!parsed.ok()) return nullptr;
  auto matcher = Matcher::compile(*parsed.policy);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return matcher.ok() ? *matcher : nullptr;
}

// One connection of curl to api.x.test:443 under endpoints given as YAML flow mappings without host and port, one rule each.
Connection under(const std::vector<std::string>& endpoints) {
  std::string yaml = "version: 1\nnetwork_policies:\n";
  int number = 0;
  for (const auto& endpoint : endpoints) {
    yaml += "  r" + std::to_string(number++) + ":\n    endpoints: [{host: api.x.test, port: 443, " + endpoint +
            "}]\n    binaries: [/usr/bin/curl]\n";
  }
  const auto matcher = compile(yaml);
  if (matcher == nullptr) return {};
  return matcher->connect({"api.x.test", 443, {"/usr/bin/curl", {}, {}}});
}

GraphqlOperation operation(std::string type, std::vector<std::string> fields = {"a"}, std::string name = "") {
  GraphqlOperation out;
  out.type = std::move(type);
  out.name = std::move(name);
  out.fields = std::move(fields);
  return out;
}
GraphqlOperation persisted(std::string hash, std::string id = "") {
  GraphqlOperation out;
  out.persisted = true;
  out.persisted_hash = std::move(hash);
  out.persisted_id = std::move(id);
  return out;
}
struct Answer : RequestDecision {
  Miss miss;
};
Answer answer_of(const Connection& connection, const Request& request) {
  const auto decision = connection.request(request);
  return {decision, connection.miss_of(request, decision)};
}
Answer ask(const Connection& connection, std::vector<GraphqlOperation> operations, std::string error = "",
           std::string_view method = "POST") {
  const GraphqlContent content{std::move(operations), std::move(error)};
  return answer_of(connection, {method, "/graphql", {}, &content});
}

JsonRpcContent call(std::string method) {
  JsonRpcContent out;
  out.method = std::move(method);
  return out;
}
JsonRpcContent mcp(std::string method, std::string tool = "", McpMethod kind = McpMethod::available) {
  JsonRpcContent out = call(std::move(method));
  out.classification = kind;
  if (!tool.empty()) {
    out.params.emplace("name", tool);
    out.tool = tool;
  }
  return out;
}
Answer ask(const Connection& connection, const JsonRpcContent& content, std::string_view method = "POST") {
  return answer_of(connection, {method, "/mcp", {}, nullptr, &content});
}

TEST(MatcherContent, L7_04_OperationTypeNameAndFields) {
  const auto connection =
      under({"protocol: graphql, enforcement: enforce, rules: [{allow: {operation_type: query, operation_name: 'Get.*', "
             "fields: ['user*', viewer]}}, {allow: {operation_type: MUTATION, fields: [like]}}], deny_rules: "
             "[{operation_type: query, fields: [userSecrets]}]"});
  const auto good = ask(connection, {operation("query", {"userName", "viewer"}, "Get.It")});
  EXPECT_EQ(good.verdict, Verdict::allow) << good.reason;
  EXPECT_EQ(good.rule, 0);
  EXPECT_EQ(ask(connection, {operation("mutation", {"like"})}).rule, 1);
  const auto name = ask(connection, {operation("query", {"viewer"}, "Get.It.All")});
  EXPECT_EQ(name.verdict, Verdict::deny) << "a star stops at a dot";
  EXPECT_EQ(name.miss.field, Field::operation_name);
  EXPECT_EQ(name.miss.rule, 0);
  const auto field = ask(connection, {operation("query", {"viewer", "other"}, "Get.It")});
  EXPECT_EQ(field.miss.field, Field::fields) << "every field has to match";
  EXPECT_EQ(ask(connection, {operation("query", {}, "Get.It")}).miss.field, Field::fields);
  EXPECT_EQ(ask(connection, {operation("subscription")}).miss.field, Field::operation_type);
  const auto denied = ask(connection, {operation("query", {"userName", "userSecrets"}, "Get.It")});
  EXPECT_EQ(denied.verdict, Verdict::deny) << "one field is enough for a deny rule";
  EXPECT_TRUE(denied.deny_rule);
  EXPECT_EQ(denied.miss.field, Field::none) << "refused by a rule, not for want of one";
  EXPECT_EQ(denied.rule, 0);
  EXPECT_EQ(denied.reason, "GraphQL operation blocked by endpoint policy");
}

TEST(MatcherContent, L7_04_ABatchIsAsGoodAsItsWorstOperation) {
  const auto connection = under({"protocol: graphql, enforcement: enforce, access: read-only"});
  EXPECT_EQ(ask(connection, {operation("query"), operation("query")}).verdict, Verdict::allow);
  const auto mixed = ask(connection, {operation("query"), operation("mutation")});
  EXPECT_EQ(mixed.verdict, Verdict::deny);
  EXPECT_EQ(mixed.miss.operation, 1U);
  EXPECT_EQ(ask(connection, std::vector<GraphqlOperation>{}).verdict, Verdict::deny);
  const auto broken = ask(connection, {operation("query")}, "invalid JSON");
  EXPECT_EQ(broken.verdict, Verdict::deny);
  EXPECT_EQ(broken.reason, "GraphQL request rejected: invalid JSON");
}

TEST(MatcherContent, L7_04_PresetsOfGraphql) {
  const auto allowed = [](std::string_view access, std::string_view type) {
    return ask(under({"protocol: graphql, enforcement: enforce, access: " + std::string{access}}), {operation(std::string{type})})
               .verdict == Verdict::allow;
  };
  EXPECT_TRUE(allowed("read-only", "query"));
  EXPECT_FALSE(allowed("read-only", "mutation"));
  EXPECT_TRUE(allowed("read-write", "mutation"));
  EXPECT_FALSE(allowed("read-write", "subscription"));
  EXPECT_TRUE(allowed("full", "subscription"));
}

TEST(MatcherContent, L7_04_PersistedQueriesNeedTheRegistry) {
  const auto registered =
      under({"protocol: graphql, enforcement: enforce, persisted_queries: allow_registered, graphql_persisted_queries: "
             "{h1: {operation_type: query, fields: [viewer]}, i1: {operation_type: mutation}}, access: read-only"});
  EXPECT_EQ(ask(registered, {persisted("h1")}).verdict, Verdict::allow);
  EXPECT_EQ(ask(registered, {persisted("h1", "i1")}).verdict, Verdict::allow) << "the hash counts";
  EXPECT_EQ(ask(registered, {persisted("", "i1")}).verdict, Verdict::deny) << "registered, but a mutation";
  const auto unknown = ask(registered, {persisted("h2")});
  EXPECT_EQ(unknown.reason, "GraphQL persisted query is not registered");
  EXPECT_EQ(unknown.miss.field, Field::persisted_query);
  const auto off =
      under({"protocol: graphql, enforcement: enforce, graphql_persisted_queries: {h1: {operation_type: query}}, access: full"});
  EXPECT_EQ(ask(off, {persisted("h1")}).reason, "GraphQL persisted query is not registered");
  auto with_text = persisted("h2");
  with_text.type = "query";
  EXPECT_EQ(ask(registered, {with_text}).verdict, Verdict::allow) << "with its text it is an ordinary operation";
}

TEST(MatcherContent, GraphqlThatNobodyReadIsRefusedUnderAuditToo) {
  const auto connection = under({"protocol: graphql, access: full"});
  EXPECT_EQ(connection.request({"POST", "/graphql", {}}).verdict, Verdict::unsupported);
  EXPECT_FALSE(connection.request({"POST", "/graphql", {}}).forwards());
  EXPECT_EQ(ask(under({"protocol: graphql, access: read-only"}), {operation("mutation")}).verdict, Verdict::audit);
}

TEST(MatcherContent, L7_02_L7_03_WebSocketUpgradeAndText) {
  const auto connection =
      under({"protocol: websocket, enforcement: enforce, rules: [{allow: {method: GET, path: '/ws/**'}}, {allow: {method: "
             "WEBSOCKET_TEXT, path: /ws/chat}}]"});
  EXPECT_EQ(connection.request({"GET", "/ws/chat", {}}).verdict, Verdict::allow);
  EXPECT_EQ(connection.request({"GET", "/other", {}}).verdict, Verdict::deny);
  EXPECT_EQ(connection.request({"WEBSOCKET_TEXT", "/ws/chat", {}}).verdict, Verdict::allow);
  EXPECT_EQ(connection.request({"WEBSOCKET_TEXT", "/ws/other", {}}).verdict, Verdict::deny) << "the upgrade's path counts for messages";
  EXPECT_FALSE(connection.deciding->graphql_messages);
  const auto read_only = under({"protocol: websocket, enforcement: enforce, access: read-only"});
  EXPECT_EQ(read_only.request({"GET", "/", {}}).verdict, Verdict::allow);
  EXPECT_EQ(read_only.request({"WEBSOCKET_TEXT", "/", {}}).verdict, Verdict::deny);
}

TEST(MatcherContent, AGraphqlMessageIsNotRescuedByATextRule) {
  const auto connection =
      under({"protocol: websocket, enforcement: enforce, rules: [{allow: {method: GET}}, {allow: {method: '*'}}, {allow: "
             "{operation_type: query}}]"});
  EXPECT_TRUE(connection.deciding->graphql_messages);
  EXPECT_EQ(connection.request({"GET", "/", {}}).verdict, Verdict::allow);
  EXPECT_EQ(ask(connection, {operation("query")}, "", "WEBSOCKET_TEXT").verdict, Verdict::allow);
  EXPECT_EQ(ask(connection, {operation("mutation")}, "", "WEBSOCKET_TEXT").verdict, Verdict::deny);
  EXPECT_EQ(connection.request({"WEBSOCKET_TEXT", "/", {}}).verdict, Verdict::unsupported) << "it has to be read first";
}

TEST(MatcherContent, L7_08_GenericJsonRpcMethodsAreLiteral) {
  const auto connection =
      under({"protocol: json-rpc, enforcement: enforce, rules: [{allow: {method: reports.list}}, {allow: {method: status}}], deny_rules: "
             "[{method: status}]"});
  EXPECT_EQ(ask(connection, call("reports.list")).rule, 0);
  const auto other = ask(connection, call("reports.delete"));
  EXPECT_EQ(other.verdict, Verdict::deny);
  EXPECT_EQ(other.reason, "POST /mcp not permitted by policy");
  EXPECT_EQ(other.miss.field, Field::method);
  EXPECT_EQ(ask(connection, call("status")).reason, "POST /mcp blocked by deny rule");
  EXPECT_EQ(ask(connection, call("Reports.list")).verdict, Verdict::deny) << "47f: method names have a case";
  EXPECT_EQ(ask(connection, call("reports.list"), "PUT").verdict, Verdict::deny);
  EXPECT_EQ(ask(connection, call("")).verdict, Verdict::deny);
  const auto all = under({"protocol: json-rpc, enforcement: enforce, rules: [{allow: {method: '*'}}]"});
  EXPECT_EQ(ask(all, call("anything/at.all")).verdict, Verdict::allow);
  JsonRpcContent stream;
  stream.receive_stream = true;
  EXPECT_EQ(ask(all, stream, "GET").verdict, Verdict::deny);
  JsonRpcContent response;
  response.has_response = true;
  EXPECT_EQ(ask(all, response).reason, "JSON-RPC response frames are not permitted from client to server");
  EXPECT_EQ(all.request({"POST", "/mcp", {}}).verdict, Verdict::unsupported);
}

TEST(MatcherContent, ABatchOfCallsIsRefusedByItsFirstRefusal) {
  const auto connection = under({"protocol: json-rpc, enforcement: enforce, rules: [{allow: {method: a}}]"});
  const std::vector<JsonRpcContent> good{call("a"), call("a")}, bad{call("a"), call("b"), call("c")};
  EXPECT_EQ(connection.requests({"POST", "/", {}}, good).verdict, Verdict::allow);
  EXPECT_EQ(connection.requests({"POST", "/", {}}, bad).verdict, Verdict::deny);
  EXPECT_EQ(connection.requests({"POST", "/", {}}, {}).verdict, Verdict::deny) << "nothing asked is nothing allowed";
}

TEST(MatcherContent, L7_05_L7_06_L7_07_McpMethodsAndTools) {
  const auto connection =
      under({"protocol: mcp, enforcement: enforce, rules: [{allow: {method: 'tools/list'}}, {allow: {method: tools/call, tool: "
             "{any: [search, 'read.*']}}}], deny_rules: [{method: tools/call, tool: read.secret}]"});
  EXPECT_EQ(ask(connection, mcp("tools/list")).rule, 0);
  EXPECT_EQ(ask(connection, mcp("tools/call", "search")).rule, 1);
  EXPECT_EQ(ask(connection, mcp("tools/call", "read.file")).verdict, Verdict::allow);
  const auto tool = ask(connection, mcp("tools/call", "delete"));
  EXPECT_EQ(tool.verdict, Verdict::deny);
  EXPECT_EQ(tool.miss.field, Field::tool);
  EXPECT_EQ(tool.miss.rule, 1);
  EXPECT_THAT(tool.reason, HasSubstr("MCP tool call has no matching allow rule"));
  const auto secret = ask(connection, mcp("tools/call", "read.secret"));
  EXPECT_TRUE(secret.deny_rule);
  EXPECT_THAT(secret.reason, HasSubstr("deny_rules"));
  const auto core = ask(connection, mcp("resources/read"));
  EXPECT_EQ(core.miss.field, Field::method);
  EXPECT_THAT(core.reason, HasSubstr("MCP core method not permitted"));
  EXPECT_EQ(core.reason.find("resources"), std::string::npos) << "no text of the caller";
  EXPECT_EQ(ask(connection, mcp("tools/list"), "PUT").verdict, Verdict::deny);
  EXPECT_EQ(ask(connection, mcp("tools/list"), "DELETE").verdict, Verdict::deny);
}

TEST(MatcherContent, McpStreamsAndResponses) {
  const auto connection = under({"protocol: mcp, enforcement: enforce, rules: [{allow: {method: tools/list}}]"});
  JsonRpcContent stream;
  stream.receive_stream = true;
  EXPECT_EQ(ask(connection, stream, "GET").verdict, Verdict::allow);
  EXPECT_EQ(ask(connection, stream, "POST").verdict, Verdict::deny);
  EXPECT_EQ(ask(connection, JsonRpcContent{}, "GET").verdict, Verdict::deny);
  JsonRpcContent response;
  response.has_response = true;
  EXPECT_EQ(ask(connection, response).verdict, Verdict::allow);
  auto broken = mcp("tools/list");
  broken.error = "invalid JSON";
  EXPECT_EQ(ask(connection, broken).verdict, Verdict::deny);
}

TEST(MatcherContent, McpProfileAndExtensions) {
  const auto profile =
      under({"protocol: mcp, enforcement: enforce, mcp: {allow_all_known_mcp_methods: true}, deny_rules: [{method: "
             "'tools/x*'}, {tool: rm}]"});
  EXPECT_EQ(ask(profile, mcp("resources/read")).verdict, Verdict::allow);
  EXPECT_EQ(ask(profile, mcp("tools/call", "any")).verdict, Verdict::allow);
  EXPECT_EQ(ask(profile, mcp("tools/call", "rm")).verdict, Verdict::deny);
  EXPECT_EQ(ask(profile, mcp("acme/do", "", McpMethod::extension)).verdict, Verdict::deny) << "34e: the profile covers no extension";
  EXPECT_THAT(ask(profile, mcp("acme/do", "", McpMethod::extension)).reason, HasSubstr("extension"));
  EXPECT_THAT(ask(profile, mcp("tools/xtra", "", McpMethod::extension)).reason, HasSubstr("deny_rules")) << "a deny glob covers extensions";
  const auto named =
      under({"protocol: mcp, enforcement: enforce, mcp: {allow_all_known_mcp_methods: true}, rules: [{allow: {tool: search}}, "
             "{allow: {method: acme/do}}]"});
  EXPECT_EQ(ask(named, mcp("acme/do", "", McpMethod::extension)).verdict, Verdict::allow);
  EXPECT_EQ(ask(named, mcp("tools/call", "search")).verdict, Verdict::allow) << "an empty method of a tool rule is tools/call";
  EXPECT_EQ(ask(named, mcp("tools/call", "other")).verdict, Verdict::deny) << "naming one tool closes the others";
  EXPECT_EQ(ask(named, mcp("prompts/list")).verdict, Verdict::allow);
  const auto globs = under({"protocol: mcp, enforcement: enforce, rules: [{allow: {method: 'tools/*'}}]"});
  EXPECT_EQ(ask(globs, mcp("tools/list")).verdict, Verdict::allow);
  EXPECT_EQ(ask(globs, mcp("tools/acme", "", McpMethod::extension)).verdict, Verdict::deny) << "34e: no glob covers an extension";
  const auto none = under({"protocol: mcp, enforcement: enforce, mcp: {allow_all_known_mcp_methods: true}, rules: [{allow: {}}]"});
  EXPECT_EQ(ask(none, mcp("prompts/list")).verdict, Verdict::allow);
}

TEST(MatcherContent, DenyRulesOfAnotherProtocolsEndpointCountWhereTheyCanMatch) {
  const auto connection = under({"protocol: rest, enforcement: enforce, access: full, deny_rules: [{path: '/mcp/secret/**'}]",
                                 "protocol: mcp, path: '/mcp/**', enforcement: enforce, rules: [{allow: {method: tools/list}}]"});
  const JsonRpcContent list = mcp("tools/list");
  EXPECT_EQ(connection.request({"POST", "/mcp/open", {}, nullptr, &list}).verdict, Verdict::allow);
  const auto secret = connection.request({"POST", "/mcp/secret/x", {}, nullptr, &list});
  EXPECT_EQ(secret.verdict, Verdict::deny);
  EXPECT_EQ(secret.rule_endpoint->policy, "r0");
  const JsonRpcContent call_other = mcp("resources/read");
  EXPECT_EQ(connection.request({"POST", "/mcp/open", {}, nullptr, &call_other}).verdict, Verdict::deny)
      << "the rest endpoint's full access speaks another vocabulary";
}

TEST(MatcherContent, WhatMissedIsSaid) {
  const auto connection =
      under({"protocol: rest, enforcement: enforce, path: '/v1/**', rules: [{allow: {method: GET, path: /v1/a}}, {allow: "
             "{method: POST, path: /v1/b, query: {tag: 'x*'}}}]"});
  const std::vector<QueryParameter> query{{"tag", "y"}};
  const auto by_query = answer_of(connection, {"POST", "/v1/b", query});
  EXPECT_EQ(by_query.miss.field, Field::query);
  EXPECT_EQ(by_query.miss.name, "tag");
  EXPECT_EQ(by_query.miss.rule, 1);
  EXPECT_EQ(answer_of(connection, {"POST", "/v1/a", {}}).miss.field, Field::path);
  EXPECT_EQ(answer_of(connection, {"DELETE", "/v1/a", {}}).miss.field, Field::method);
  EXPECT_EQ(answer_of(connection, {"GET", "/v2", {}}).miss.field, Field::endpoint_path);
  EXPECT_EQ(answer_of(connection, {"GET", "/v1/a", {}}).miss.field, Field::none) << "allowed";
  const auto matcher =
      compile("version: 1\nnetwork_policies: {a: {endpoints: [{host: '*.x.test', ports: [80, 81]}], binaries: [/bin/a]}}\n");
  const auto ask_open = [&](std::string_view host, std::uint16_t port, std::string_view binary) {
    return matcher->connect({host, port, {binary, {}, {}}}).miss;
  };
  EXPECT_EQ(ask_open("a.x.test", 80, "/bin/b").field, Field::binary);
  EXPECT_EQ(ask_open("a.x.test", 80, "/bin/b").endpoint->policy, "a");
  EXPECT_EQ(ask_open("a.x.test", 82, "/bin/a").field, Field::port);
  EXPECT_EQ(ask_open("b.test", 80, "/bin/a").field, Field::host);
  EXPECT_EQ(ask_open("b.test", 80, "/bin/a").endpoint, nullptr);
  EXPECT_EQ(ask_open("a.x.test", 81, "/bin/a").field, Field::none);
  EXPECT_EQ(to_string(Field::endpoint_path), "endpoint.path");
  EXPECT_EQ(to_string(Field::tool), "tool");
}

TEST(MatcherContent, ManyRulesGiveTheFirstThatAllows) {
  std::string rules;
  for (int i = 0; i < 200; ++i) {
    const std::string n = std::to_string(i);
    rules += (i == 0 ? "" : ", ");
    rules += i % 4 == 0   ? "{allow: {method: GET, path: '/a/" + n + "/**'}}"
             : i % 4 == 1 ? "{allow: {method: POST, path: /b/" + n + "}}"
             : i % 4 == 2 ? "{allow: {method: GET, path: '/c/*/" + n + "'}}"
                          : "{allow: {method: PUT, path: '/d" + n + "*'}}";
  }
  const auto connection = under({"protocol: rest, enforcement: enforce, rules: [" + rules + ", {allow: {method: GET, path: '**/last'}}]"});
  const auto rule_of = [&](std::string_view method, std::string_view path) { return connection.request({method, path, {}}).rule; };
  EXPECT_EQ(rule_of("GET", "/a/8/x/y"), 8);
  EXPECT_EQ(rule_of("POST", "/b/9"), 9);
  EXPECT_EQ(rule_of("GET", "/c/any/10"), 10);
  EXPECT_EQ(rule_of("PUT", "/d11xyz"), 11);
  EXPECT_EQ(rule_of("GET", "/a/8/last"), 8) << "the first in the order of writing";
  EXPECT_EQ(rule_of("GET", "/a/201/last"), 200);
  EXPECT_EQ(rule_of("GET", "/a/8"), -1);
  EXPECT_EQ(rule_of("DELETE", "/b/9"), -1);
}

}  // namespace
}  // namespace openshell::policy
