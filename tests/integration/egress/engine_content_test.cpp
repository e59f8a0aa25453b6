// GraphQL, JSON-RPC and MCP through the whole engine: the body is judged before a byte goes upstream (spec "Cases to test" L7 31-36a).
#include <gmock/gmock.h>

#include <fmt/format.h>

#include <mutex>

#include "egress/decisions.hpp"
#include "policy/decision_record.hpp"
#include "policy/replay.hpp"
#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// One endpoint at kHost with `more` in it.
std::string policy(std::uint16_t port, const std::string& more) {
  return fmt::format("  api:\n    endpoints: [{{host: {}, port: {}, {}}}]\n    binaries: [/usr/bin/curl]\n", kHost, port, more);
}

// A request with a body, each on a connection of its own unless `wire` is given.
class Client {
 public:
  Client(World& world, Server& server) : world_{world}, server_{server} {}

  Message post(const std::string& body, const std::string& extra = {}, const std::string& path = "/mcp",
               const std::string& method = "POST") {
    return send(
        get(path, server_.port(), fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n{}", body.size(), extra), method) +
        body);
  }
  Message send(const std::string& bytes) {
    auto opened = world_.open(kHost, server_.port());
    EXPECT_TRUE(opened.wire);
    EXPECT_TRUE(opened.wire->write(bytes));
    return read_message(*opened.wire);
  }

 private:
  World& world_;
  Server& server_;
};

std::string rpc(const std::string& method, const std::string& params = "{}") {
  return fmt::format(R"({{"jsonrpc":"2.0","id":1,"method":"{}","params":{}}})", method, params);
}
constexpr auto kOnlyA = "protocol: json-rpc, enforcement: enforce, rules: [{allow: {method: a}}]";
constexpr auto kVersion = "MCP-Protocol-Version: 2025-11-25\r\n";

std::size_t denied_events(World& world) {
  std::size_t out = 0;
  for (const auto& event : world.events().activities()) {
    out += event.event_class == EventClass::kHttp && event.disposition == Disposition::kDenied ? 1U : 0U;
  }
  return out;
}

TEST(EngineContent, L7_04_GraphqlOperations) {
  Server server;
  World world;
  world.publish(policy(server.port(),
                       "protocol: graphql, enforcement: enforce, path: /graphql, rules: [{allow: {operation_type: query}}, "
                       "{allow: {operation_type: mutation, fields: [like]}}]"));
  Client client{world, server};
  EXPECT_EQ(client.post(R"({"query":"{ viewer { name } }"})", {}, "/graphql").body, "POST /graphql 31");
  EXPECT_EQ(client.post(R"({"query":"mutation { like }"})", {}, "/graphql").status, 200);
  const auto hidden = client.post(R"({"query":"mutation { ...F } fragment F on M { like: deleteAll }"})", {}, "/graphql");
  EXPECT_EQ(hidden.status, 403) << "neither a fragment nor an alias hides the field";
  EXPECT_THAT(hidden.body, HasSubstr("GraphQL operation"));
  EXPECT_THAT(hidden.body, HasSubstr(R"("rule_missing")"));
  EXPECT_EQ(client.post(R"([{"query":"{a}"},{"query":"mutation{deleteAll}"}])", {}, "/graphql").status, 403);
  EXPECT_EQ(client.send(get("/graphql?query=%7Ba%7D", server.port())).status, 200);
  EXPECT_EQ(client.send(get("/other?query=%7Ba%7D", server.port())).status, 403) << "no endpoint has this path";
  EXPECT_EQ(server.requests(), 3);
  EXPECT_EQ(denied_events(world), 3U) << "each denied request makes one event";
  EXPECT_THAT(world.events().all_text(), HasSubstr("GRAPHQL_L7_REQUEST"));
  EXPECT_THAT(world.events().all_text(), Not(HasSubstr("deleteAll")));
}

TEST(EngineContent, GraphqlThatCannotBeReadIsDeniedUnderAuditToo) {
  Server server;
  World world;
  world.publish(policy(server.port(), "protocol: graphql, path: /graphql, access: read-only"));
  Client client{world, server};
  EXPECT_EQ(client.post(R"({"query":"mutation{a}"})", {}, "/graphql").status, 200) << "audit: logged and forwarded";
  const auto twice = client.send(get("/graphql?query=%7Ba%7D&query=%7Bb%7D", server.port()));  // case 31
  EXPECT_EQ(twice.status, 403);
  EXPECT_THAT(twice.body, HasSubstr("must not appear more than once"));
  EXPECT_EQ(client.post(R"({"query":"{a"})", {}, "/graphql").status, 403);
  EXPECT_EQ(client.post(R"({"id":"x"})", {}, "/graphql").status, 200) << "an unregistered one is a matter of the rules";
  EXPECT_EQ(client
                .send(get("/graphql", server.port(), "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n", "POST") +
                      "query={a}")
                .status,
            403);
  EXPECT_EQ(client.send(get("/graphql", server.port(), {}, "DELETE")).status, 403);
  EXPECT_EQ(server.requests(), 2);
}

TEST(EngineContent, PersistedQueries) {  // case 32
  Server server;
  World world;
  world.publish(policy(server.port(),
                       "protocol: graphql, enforcement: enforce, path: /graphql, persisted_queries: allow_registered, "
                       "graphql_persisted_queries: {h1: {operation_type: query}}, access: read-only"));
  Client client{world, server};
  EXPECT_EQ(client.post(R"({"extensions":{"persistedQuery":{"sha256Hash":"h1"}}})", {}, "/graphql").status, 200);
  const auto unknown = client.post(R"({"extensions":{"persistedQuery":{"sha256Hash":"h2"}}})", {}, "/graphql");
  EXPECT_EQ(unknown.status, 403);
  EXPECT_THAT(unknown.body, HasSubstr("GraphQL persisted query is not registered"));
}

TEST(EngineContent, L7_08_L7_09_JsonRpc) {  // case 33, 35
  Server server;
  World world;
  world.publish(policy(server.port(), "protocol: json-rpc, enforcement: enforce, rules: [{allow: {method: reports.list}}]"));
  Client client{world, server};
  EXPECT_EQ(client.post(rpc("reports.list")).body, "POST /mcp 60") << "L7-16: an answer that is no JSON passes as it is";
  EXPECT_EQ(client.post(rpc("reports.delete")).status, 403);
  EXPECT_EQ(client.post(rpc("reports.list", R"({"method":"reports.delete"})")).status, 200) << "params never count";
  EXPECT_EQ(client.post("[" + rpc("reports.list") + "," + rpc("reports.delete") + "]").status, 403);
  EXPECT_EQ(client.send(get("/mcp", server.port(), "Accept: text/event-stream\r\n")).status, 403) << "no stream of generic JSON-RPC";
  EXPECT_EQ(server.requests(), 2);
  EXPECT_THAT(world.events().all_text(), HasSubstr("JSONRPC_L7_REQUEST decision=deny rule_methods=reports.list,reports.delete"));
}

TEST(EngineContent, JsonRpcHardDenialsUnderAudit) {
  Server server;
  World world;
  world.publish(policy(server.port(), "protocol: json-rpc, rules: [{allow: {method: a}}]"));
  Client client{world, server};
  EXPECT_EQ(client.post(rpc("b")).status, 200) << "audit";
  for (const std::string& body : {std::string{"{"}, std::string{R"({"jsonrpc":"2.0","method":"a","method":"b"})"}, rpc(""),
                                  std::string{R"({"jsonrpc":"2.0","id":1,"method":"a","result":1})"}}) {
    const auto answer = client.post(body);
    EXPECT_EQ(answer.status, 403) << body;
    EXPECT_THAT(answer.body, HasSubstr("JSON-RPC request rejected: "));
  }
  const auto response = client.post(R"({"jsonrpc":"2.0","id":1,"result":{}})");
  EXPECT_EQ(response.status, 403);
  EXPECT_THAT(response.body, HasSubstr("JSON-RPC response frames are not permitted from client to server"));
  EXPECT_EQ(server.requests(), 1);
}

TEST(EngineContent, L7_05_L7_06_McpToolsAndMethods) {
  Server server;
  World world;
  world.publish(policy(server.port(),
                       "protocol: mcp, enforcement: enforce, rules: [{allow: {method: tools/list}}, {allow: {method: tools/call, "
                       "tool: search}}, {allow: {method: acme/do}}]"));
  Client client{world, server};
  EXPECT_EQ(client.post(rpc("tools/list"), kVersion).status, 200);
  EXPECT_EQ(client.post(rpc("tools/call", R"({"name":"search"})"), kVersion).status, 200);
  EXPECT_EQ(client.post(rpc("acme/do"), kVersion).status, 200) << "34e: an extension that a rule names";
  EXPECT_EQ(client.post(R"({"jsonrpc":"2.0","id":1,"result":{}})", kVersion).status, 200) << "a response is for policy, which allows it";
  EXPECT_EQ(client.send(get("/mcp", server.port(), "Accept: application/json, text/event-stream\r\n" + std::string{kVersion})).status, 200)
      << "34: a receive stream";
  EXPECT_EQ(server.requests(), 5);
  const auto denied = client.post(rpc("tools/call", R"({"name":"delete"})"), kVersion);
  EXPECT_EQ(denied.status, 403);
  EXPECT_THAT(denied.body, HasSubstr("MCP tool call has no matching allow rule"));
  EXPECT_THAT(denied.body, Not(HasSubstr("delete"))) << "no text of the caller";
  EXPECT_EQ(client.post(rpc("resources/read", R"({"uri":"x"})"), kVersion).status, 403);
  EXPECT_EQ(client.post(rpc("acme/other"), kVersion).status, 403);
  EXPECT_EQ(client.post(rpc("tools/list"), kVersion, "/mcp", "PUT").status, 403);
  EXPECT_EQ(server.requests(), 5);
  EXPECT_THAT(world.events().all_text(), HasSubstr("rule_methods=tools/call tools=delete http_method=POST"));
}

TEST(EngineContent, L7_17_WhatAServerStreamsIsNotJudged) {
  Server server;
  World world;
  world.publish(policy(server.port(), "protocol: mcp, enforcement: enforce, rules: [{allow: {method: tools/list}}]"));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire);
  ASSERT_TRUE(opened.wire->write(get("/sse", server.port(), "Accept: text/event-stream\r\n" + std::string{kVersion})));
  std::string all;
  for (std::string piece = opened.wire->read(); !piece.empty(); piece = opened.wire->read()) all += piece;
  EXPECT_THAT(all, HasSubstr("sampling/createMessage")) << "a method that no client may send";
}

TEST(EngineContent, L7_40_L7_43_McpVersionsUnderAudit) {  // case 34a, 34b, 34c
  Server server;
  World world;
  world.publish(
      policy(server.port(), "protocol: mcp, rules: [{allow: {method: tools/list}}], mcp: {versions: ['2025-03-26', '2025-11-25']}"));
  Client client{world, server};
  EXPECT_EQ(client.post(rpc("ping")).status, 200) << "audit; without a header it is 2025-03-26, which the list has";
  struct Row {
    std::string body, headers;
    int status;
    const char* code;
  };
  const std::vector<Row> rows{
      {rpc("ping"), "MCP-Protocol-Version: 2025-06-18\r\n", 403, "mcp_protocol_version_not_allowed"},
      {rpc("ping"), "MCP-Protocol-Version: 2026-07-28\r\n", 400, "unsupported_mcp_protocol_version"},
      {rpc("ping"), "MCP-Protocol-Version: 2025-11-25\r\nMCP-Protocol-Version: 2025-11-25\r\n", 400, "invalid_mcp_protocol_version_header"},
      {"[" + rpc("ping") + "]", kVersion, 400, "invalid_mcp_request"},
      {rpc("tools/call", R"({"name":"a b"})"), kVersion, 400, "invalid_mcp_request"},
      {"{", kVersion, 400, "invalid_mcp_request"},
      {rpc("sampling/createMessage"), kVersion, 400, "invalid_mcp_request"},
  };
  for (const auto& row : rows) {
    const auto answer = client.post(row.body, row.headers);
    EXPECT_EQ(answer.status, row.status) << row.code;
    EXPECT_THAT(answer.body, HasSubstr(fmt::format(R"("error":"{}")", row.code)));
    for (const char* part :
         {R"("policy":"api")", R"("layer":"l7")", R"("protocol":"mcp")", R"("method":"POST")", R"("path":"/mcp")", R"("denial_id":")"}) {
      EXPECT_THAT(answer.body, HasSubstr(part)) << row.code;
    }
    EXPECT_THAT(answer.body, Not(HasSubstr("rule_missing")));
    EXPECT_THAT(answer.head, HasSubstr("Connection: close"));
  }
  EXPECT_EQ(server.requests(), 1);
  EXPECT_EQ(denied_events(world), rows.size());
}

TEST(EngineContent, L7_10_L7_11_TheBodyIsBounded) {
  Server server;
  World world;
  world.publish(policy(server.port(), "protocol: mcp, enforcement: enforce, rules: [{allow: {method: ping}}], mcp: {max_body_bytes: 100}"));
  Client client{world, server};
  const auto sized = [](std::size_t bytes) {
    std::string out = rpc("ping");
    return out + std::string(bytes - out.size(), ' ');
  };
  EXPECT_EQ(client.post(sized(100), kVersion).status, 200);
  const auto over = client.post(sized(101), kVersion);
  EXPECT_EQ(over.status, 400);
  EXPECT_THAT(over.body, HasSubstr("invalid_mcp_request"));
  const auto chunked = [&](const std::string& body) {
    return client.send(get("/mcp", server.port(), "Transfer-Encoding: chunked\r\n" + std::string{kVersion}, "POST") +
                       fmt::format("{:x};ext=1\r\n{}\r\n{:x}\r\n{}\r\n0\r\nX-Trailer: 1\r\n\r\n", 10, body.substr(0, 10), body.size() - 10,
                                   body.substr(10)));
  };
  EXPECT_EQ(chunked(sized(100)).body, "POST /mcp 100") << "put together, with a length";
  EXPECT_EQ(chunked(sized(101)).status, 400);
  EXPECT_EQ(server.requests(), 2);
  EXPECT_THAT(server.seen(), Not(HasSubstr("chunked")));
  EXPECT_THAT(server.seen(), Not(HasSubstr("X-Trailer")));
}

TEST(EngineContent, ABodyMayComeLateAndTheNextRequestFollows) {
  Server server;
  World world;
  world.publish(policy(server.port(), kOnlyA));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire);
  const auto body = rpc("a");
  const auto head = get("/rpc", server.port(), fmt::format("Content-Length: {}\r\nExpect: 100-continue\r\n", body.size()), "POST");
  ASSERT_TRUE(opened.wire->write(head));
  EXPECT_EQ(read_message(*opened.wire, true).status, 100);
  EXPECT_EQ(server.requests(), 0) << "nothing goes upstream before the body was judged";
  ASSERT_TRUE(opened.wire->write(body.substr(0, 7)));
  ASSERT_TRUE(opened.wire->write(body.substr(7) +
                                 get("/rpc", server.port(), fmt::format("Content-Length: {}\r\n", rpc("b").size()), "POST") + rpc("b")));
  std::string answers;
  for (auto piece = opened.wire->read(); !piece.empty(); piece = opened.wire->read()) answers += piece;
  EXPECT_THAT(answers, HasSubstr("HTTP/1.1 200 OK"));
  EXPECT_THAT(answers, HasSubstr("HTTP/1.1 403 Forbidden")) << "the second of a pipeline is judged by its own body";
  EXPECT_EQ(server.requests(), 1);
  EXPECT_THAT(server.seen(), Not(HasSubstr("Expect")));
}

TEST(EngineContent, AClientThatBreaksOffInsideTheBodyReachesNobody) {
  Server server;
  World world;
  world.publish(policy(server.port(), kOnlyA));
  {
    auto opened = world.open(kHost, server.port());
    ASSERT_TRUE(opened.wire);
    ASSERT_TRUE(opened.wire->write(get("/rpc", server.port(), "Content-Length: 50\r\n", "POST") + "{\"json"));
    opened.wire->end_writing();
    EXPECT_EQ(opened.wire->read(), "");
  }
  Client client{world, server};
  EXPECT_EQ(client.post(rpc("a")).status, 200);
  EXPECT_EQ(server.requests(), 1);
}

TEST(EngineContent, AWebsocketEndpointTakesNoPlainRequest) {
  Server server;
  World world;
  world.publish(policy(server.port(), "protocol: websocket, access: full"));
  Client client{world, server};
  const auto answer = client.send(get("/ws", server.port()));
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.body, HasSubstr("unsupported_l7_protocol"));
  EXPECT_EQ(server.requests(), 0);
}

TEST(EngineContent, UpgradesAreRefusedUnderAudit) {  // case 36a
  for (const auto* protocol :
       {"graphql, access: full", "json-rpc, rules: [{allow: {method: '*'}}]", "mcp, mcp: {allow_all_known_mcp_methods: true}"}) {
    Server server;
    World world;
    world.publish(policy(server.port(), std::string{"protocol: "} + protocol));
    Client client{world, server};
    const auto answer = client.send(get("/x", server.port(), "Connection: upgrade\r\nUpgrade: websocket\r\n"));
    EXPECT_EQ(answer.status, 403) << protocol;
    EXPECT_THAT(answer.body, HasSubstr("unsupported_l7_protocol"));
    EXPECT_EQ(server.requests(), 0);
  }
}

/// The judged requests as the supervisor keeps them.
class Records final : public DecisionSink {
 public:
  void decided(const Generation&, const policy::Destination& destination, const policy::Request* request,
               policy::Verdict verdict) noexcept override {
    if (request == nullptr) return;
    const std::lock_guard lock{mutex_};
    lines_.push_back(policy::record_line({}, 1, "h", destination, request, policy::decision_of(verdict)));
  }
  [[nodiscard]] std::vector<policy::DecisionRecord> read() const {
    const std::lock_guard lock{mutex_};
    std::vector<policy::DecisionRecord> out;
    for (const auto& line : lines_) {
      auto record = policy::parse_record(line, "r");
      EXPECT_TRUE(record.ok()) << record.status();
      if (record.ok()) out.push_back(*std::move(record));
    }
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::vector<policy::Decision> decisions_of(const std::vector<policy::DecisionRecord>& records) {
  std::vector<policy::Decision> out;
  for (const auto& record : records) out.push_back(record.decision);
  return out;
}

// What was recorded under a policy is answered by the same policy in the same way.
TEST(EngineContent, ARecordHoldsTheContentThatWasJudged) {
  using policy::Decision;
  const std::string graphql = "protocol: graphql, enforcement: enforce, rules: [{allow: {operation_type: query}}]";
  const std::string mcp =
      "protocol: mcp, enforcement: enforce, rules: [{allow: {method: tools/list}}, {allow: {method: tools/call, tool: search}}]";
  const std::string json_rpc = "protocol: json-rpc, rules: [{allow: {method: a}}, {allow: {method: c}}]";
  const auto call = [](const std::string& tool) { return rpc("tools/call", R"({"name":")" + tool + R"("})"); };
  struct Row {
    std::string endpoint;
    std::vector<std::string> bodies;
    std::vector<Decision> decisions;
  };
  const std::vector<Row> rows{
      {graphql, {R"({"query":"{ viewer }"})", R"({"query":"mutation { like }"})"}, {Decision::allow, Decision::deny}},
      {mcp, {rpc("tools/list"), call("search"), call("delete")}, {Decision::allow, Decision::allow, Decision::deny}},
      // A batch: one record a call, up to the first that is not allowed.
      {json_rpc, {"[" + rpc("a") + "," + rpc("b") + "," + rpc("c") + "]", rpc("c")}, {Decision::allow, Decision::audit, Decision::allow}},
  };
  for (const auto& row : rows) {
    const auto records = std::make_shared<Records>();
    Server server;
    World world{[&](EngineOptions& options) { options.decisions = records; }};
    const auto yaml = policy(server.port(), row.endpoint);
    world.publish(yaml);
    Client client{world, server};
    for (const auto& body : row.bodies) client.post(body, kVersion);
    const auto kept = records->read();
    EXPECT_EQ(decisions_of(kept), row.decisions) << row.endpoint;
    const auto loaded = policy::load_policy("version: 1\nnetwork_policies:\n" + yaml);
    ASSERT_TRUE(loaded.ok()) << loaded.diagnostics.render();
    const auto candidate = policy::Replay::prepare(*loaded.policy, false);
    ASSERT_TRUE(candidate.ok()) << candidate.status();
    const auto report = policy::replay(*candidate, kept);
    EXPECT_EQ(report.changed, 0U) << row.endpoint;
    EXPECT_EQ(report.unresolved, 0U) << row.endpoint;
  }
}

}  // namespace
}  // namespace openshell::egress::test
