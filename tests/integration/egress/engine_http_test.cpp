// Inspected HTTP and HTTPS through the whole engine.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string rest_policy(std::uint16_t port, const std::string& more = {}) {
  return fmt::format(
      "  api:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: rest\n        enforcement: enforce\n{}"
      "        rules:\n          - allow: {{method: GET, path: \"/v1/**\"}}\n          - allow: {{method: GET, path: \"/chunked\"}}\n"
      "          - allow: {{method: GET, path: \"/search\", query: {{q: \"safe*\"}}}}\n          - allow: {{method: POST, path: "
      "\"/build\"}}\n"
      "          - allow: {{method: HEAD, path: \"/v1/**\"}}\n          - allow: {{method: GET, path: \"/c*\"}}\n          - allow: "
      "{{method: GET, path: \"/e*\"}}\n"
      "          - allow: {{method: GET, path: \"/g*\"}}\n          - allow: {{method: GET, path: \"/t*\"}}\n          - allow: {{method: "
      "GET, path: \"/s*\"}}\n"
      "          - allow: {{method: GET, path: \"/big*\"}}\n"
      "    binaries: [/usr/bin/curl]\n",
      kHost, port, more);
}

Message ask(Wire& wire, const std::string& bytes, bool head_only = false) {
  EXPECT_TRUE(wire.write(bytes));
  return read_message(wire, head_only);
}

// L7-01
TEST(EngineHttp, L7_AllowsByMethodAndPathAndKeepsTheConnection) {
  Server server;
  World world;
  world.publish(rest_policy(server.port()));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire);
  EXPECT_EQ(ask(*opened.wire, get("/v1/a", server.port())).body, "GET /v1/a 0");
  EXPECT_EQ(ask(*opened.wire, get("/v1/x/../b?z=%20", server.port())).body, "GET /v1/b?z=%20 0");
  EXPECT_EQ(ask(*opened.wire, get("/build", server.port(), "Content-Length: 3\r\n", "POST") + "abc").body, "POST /build 3");
  EXPECT_EQ(ask(*opened.wire, get("/chunked", server.port())).body, "5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n");
  EXPECT_EQ(server.requests(), 4);
}

TEST(EngineHttp, L7_EachRequestOfAConnectionIsDecided) {
  Server server;
  World world;
  world.publish(rest_policy(server.port()));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire);
  EXPECT_EQ(ask(*opened.wire, get("/v1/a", server.port())).status, 200);
  const auto denied = ask(*opened.wire, get("/push?token=s3cret", server.port(), {}, "DELETE"));
  EXPECT_EQ(denied.status, 403);
  EXPECT_THAT(denied.head, HasSubstr("X-OpenShell-Policy: api"));
  EXPECT_THAT(denied.head, HasSubstr("Connection: close"));
  for (const char* part :
       {R"("error":"policy_denied")", R"("rule":"DELETE /push")", R"("layer":"l7")", R"("method":"DELETE")", R"("path":"/push")",
        R"("binary":"/usr/bin/curl")", R"("denial_id":")", R"("type":"rest_allow")", R"("next_steps":[])"}) {
    EXPECT_THAT(denied.body, HasSubstr(part));
  }
  EXPECT_EQ(opened.wire->read(), "");
  EXPECT_FALSE(opened.wire->broken());
  EXPECT_EQ(server.requests(), 1);
  std::string id;
  for (const auto& event : world.events().activities()) {
    if (event.disposition == Disposition::kDenied) id = event.denial_id.str();
  }
  EXPECT_THAT(denied.body, HasSubstr(id));
  EXPECT_THAT(world.events().all_text(), Not(HasSubstr("s3cret")));
}

TEST(EngineHttp, L7_QueryRules) {
  Server server;
  World world;
  world.publish(fmt::format(
      "  api:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: rest\n        enforcement: enforce\n        rules:\n"
      "          - allow: {{method: GET, path: \"/search\", query: {{q: \"safe*\"}}}}\n    binaries: [/usr/bin/curl]\n",
      kHost, server.port()));
  EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, get("/search?q=safe1", server.port())).status, 200);
  EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, get("/search?q=%73afe1", server.port())).status, 200);
  EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, get("/search?q=evil", server.port())).status, 403);
  EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, get("/search", server.port())).status, 403);
}

TEST(EngineHttp, L7_TlsIsInterceptedWithTheSandboxCaAndVerifiedUpstream) {
  World world;
  Server server{&world.server_identity()};
  world.publish(rest_policy(server.port()));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire);
  ASSERT_EQ(opened.wire->start_tls(world.sandbox_ca(), kHost), "");
  EXPECT_EQ(opened.wire->peer_name(), kHost);
  EXPECT_EQ(opened.wire->alpn(), "http/1.1");
  EXPECT_EQ(ask(*opened.wire, get("/v1/a", server.port())).body, "GET /v1/a 0");
  EXPECT_EQ(ask(*opened.wire, get("/nope", server.port())).status, 403);
  for (const auto& event : world.events().activities()) EXPECT_EQ(event.tls, event.event_class == EventClass::kHttp);
}

TEST(EngineHttp, L7_UpstreamWithAnUntrustedCertificateIs502) {
  World world;
  const auto stranger = pki::CertificateAuthority::create({"Stranger", "Test", pki::KeyKind::kP256});
  const auto identity = stranger->issue(pki::server_profile(kHost), pki::KeyKind::kP256);
  Server server{&*identity};
  world.publish(rest_policy(server.port()));
  auto opened = world.open(kHost, server.port());
  ASSERT_EQ(opened.wire->start_tls(world.sandbox_ca(), kHost), "");
  const auto answer = ask(*opened.wire, get("/v1/a", server.port()));
  EXPECT_EQ(answer.status, 502);
  EXPECT_THAT(answer.body, HasSubstr("upstream_tls_failed"));
  EXPECT_EQ(server.requests(), 0);
}

TEST(EngineHttp, L7_UpstreamWithAnotherNameIs502) {
  World world;
  const auto outside = pki::CertificateAuthority::create({"Outside 2", "Test", pki::KeyKind::kP256});
  const auto identity = outside->issue(pki::server_profile("other.test"), pki::KeyKind::kP256);
  World trusting{[&](EngineOptions& options) { options.additional_ca_bundle_pem = outside->certificate().to_pem(); }};
  Server server{&*identity};
  trusting.publish(rest_policy(server.port()));
  auto opened = trusting.open(kHost, server.port());
  ASSERT_EQ(opened.wire->start_tls(trusting.sandbox_ca(), kHost), "");
  EXPECT_EQ(ask(*opened.wire, get("/v1/a", server.port())).status, 502);
}

struct Smuggled {
  const char* name;
  std::string bytes;
  int status;
};

TEST(EngineHttp, L7_SmugglingTableNothingReachesUpstream) {
  Server server;
  World world;
  world.publish(rest_policy(server.port()));
  const auto host = fmt::format("Host: {}:{}\r\n", kHost, server.port());
  const std::vector<Smuggled> table = {
      {"TE and CL", "POST /build HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400},
      {"TE space", "POST /build HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
      {"TE list", "POST /build HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"CL differ", "POST /build HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"CL plus", "POST /build HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\na", 400},
      {"bare LF", "GET /v1/a HTTP/1.1\n" + host + "\n", 400},
      {"obs-fold", "GET /v1/a HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", 400},
      {"two hosts", "GET /v1/a HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"no host", "GET /v1/a HTTP/1.1\r\n\r\n", 400},
      {"other host", "GET /v1/a HTTP/1.1\r\nHost: admin.test\r\n\r\n", 403},
      {"other port", "GET /v1/a HTTP/1.1\r\nHost: host.openshell.internal:1\r\n\r\n", 403},
      {"absolute other", "GET http://admin.test/v1/a HTTP/1.1\r\n" + host + "\r\n", 400},
      {"connect", fmt::format("CONNECT {}:{} HTTP/1.1\r\n{}\r\n", kHost, server.port(), host), 400},
      {"climb", "GET /v1/../../push HTTP/1.1\r\n" + host + "\r\n", 400},
      {"slash", "GET /v1%2f..%2fpush HTTP/1.1\r\n" + host + "\r\n", 400},
      {"backslash", "GET /v1\\..\\push HTTP/1.1\r\n" + host + "\r\n", 400},
      {"dots", "GET /v1/%2e%2e/push HTTP/1.1\r\n" + host + "\r\n", 403},
      {"params", "GET /v1/..;x=1/push HTTP/1.1\r\n" + host + "\r\n", 403},
      {"h2c", "GET /v1/a HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n", 403},
      {"websocket",
       "GET /v1/a HTTP/1.1\r\n" + host +
           "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
       403},
      {"nominated", "POST /build HTTP/1.1\r\n" + host + "Connection: content-length\r\nContent-Length: 1\r\n\r\na", 400},
      {"unknown method", "BREW /v1/a HTTP/1.1\r\n" + host + "\r\n", 403},
      {"preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403},
      {"http 1.0 chunked", "POST /build HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"not http", "\x01\x02\x03\x04\x05\x06\x07\x08", 403},
      {"head too long", "GET /v1/a HTTP/1.1\r\n" + host + "X: " + std::string(20000, 'a') + "\r\n\r\n", 400},
  };
  for (const auto& row : table) {
    auto opened = world.open(kHost, server.port());
    ASSERT_TRUE(opened.wire) << row.name;
    const auto answer = ask(*opened.wire, row.bytes);
    EXPECT_EQ(answer.status, row.status) << row.name << "\n" << answer.head << answer.body;
    EXPECT_EQ(opened.wire->read(), "") << row.name;
  }
  EXPECT_EQ(server.requests(), 0) << server.seen();
}

// A chunked body is carried as it comes: its head is upstream before the chunk that breaks it, but never the whole request.
TEST(EngineHttp, L7_BrokenChunkedBodiesAre400) {
  Server server;
  World world;
  world.publish(rest_policy(server.port()));
  const auto host = fmt::format("Host: {}:{}\r\n", kHost, server.port());
  const std::vector<Smuggled> table = {
      {"chunk bare LF", "POST /build HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400},
      {"chunk sign", "POST /build HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", 400},
      {"steering trailer", "POST /build HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\nHost: b\r\n\r\n", 400},
  };
  for (const auto& row : table) {
    auto opened = world.open(kHost, server.port());
    EXPECT_EQ(ask(*opened.wire, row.bytes).status, row.status) << row.name;
    EXPECT_EQ(opened.wire->read(), "") << row.name;
  }
  EXPECT_THAT(server.seen(), Not(HasSubstr("hello")));
  EXPECT_THAT(world.events().all_text(), HasSubstr("chunked request body is malformed"));
}

TEST(EngineHttp, L7_APipelinedRequestIsDecidedOnItsOwn) {
  Server server;
  World world;
  world.publish(rest_policy(server.port()));
  auto opened = world.open(kHost, server.port());
  // The second request hides behind a complete body.
  ASSERT_TRUE(
      opened.wire->write(get("/build", server.port(), "Content-Length: 3\r\n", "POST") + "abc" + get("/push", server.port(), {}, "POST")));
  std::string all;
  for (auto more = opened.wire->read(); !more.empty(); more = opened.wire->read()) all += more;
  EXPECT_THAT(all, testing::StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(all, HasSubstr("HTTP/1.1 403 Forbidden"));
  EXPECT_EQ(server.requests(), 1);
}

TEST(EngineHttp, L7_ResponsesAreCarriedAsTheyAre) {
  Server server;
  World world;
  world.publish(rest_policy(server.port()));
  const auto one = [&](const std::string& bytes, bool head_only = false) {
    auto opened = world.open(kHost, server.port());
    auto message = ask(*opened.wire, bytes, head_only);
    if (message.has("until the end")) opened.wire->read();
    return std::pair{std::move(message), std::move(opened.wire)};
  };
  EXPECT_EQ(one(get("/v1/a", server.port(), {}, "HEAD"), true).first.status, 200);
  const auto close = one(get("/close", server.port()));
  EXPECT_EQ(close.first.body, "until the end");
  EXPECT_FALSE(close.second->broken());
  auto cut = one(get("/cut", server.port()));
  EXPECT_EQ(cut.first.body, "only this");
  const auto garbage = one(get("/garbage", server.port()));
  EXPECT_EQ(garbage.first.status, 502);
  EXPECT_THAT(garbage.first.body, HasSubstr("upstream_invalid_response"));
  EXPECT_EQ(one(get("/switch", server.port())).first.status, 0);
  EXPECT_EQ(one(get("/big", server.port())).first.body.size(), 8U << 20);
  // An answer that nobody asked for never becomes the answer to the next question.
  auto two = one(get("/two", server.port()));
  EXPECT_EQ(two.first.body, "first");
  two.second->write(get("/v1/a", server.port()));
  EXPECT_EQ(read_message(*two.second).status, 0);
}

TEST(EngineHttp, L7_ExpectContinueIsForwarded) {
  Server server;
  World world;
  world.publish(rest_policy(server.port()));
  auto opened = world.open(kHost, server.port());
  const auto interim = ask(*opened.wire, get("/build", server.port(), "Content-Length: 5\r\nExpect: 100-continue\r\n", "POST"));
  EXPECT_EQ(interim.status, 100);
  EXPECT_EQ(ask(*opened.wire, "hello").body, "POST /build 5");
}

TEST(EngineHttp, L7_AuditForwardsAndSaysSo) {
  Server server;
  World world;
  world.publish(fmt::format(
      "  api:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: rest\n        enforcement: audit\n        rules:\n"
      "          - allow: {{method: GET, path: /ok}}\n    binaries: [/usr/bin/curl]\n",
      kHost, server.port()));
  EXPECT_EQ(ask(*world.open(kHost, server.port()).wire, get("/other", server.port())).status, 200);
  EXPECT_THAT(world.events().all_text(), HasSubstr("L7_REQUEST audit GET"));
}

constexpr auto kSecret = "real-token-value-0123456789";

ProviderEnvironment generic_token() {
  ProviderEnvironment environment;
  environment.revision = 41;
  environment.values.emplace("API_TOKEN", Secret{kSecret});
  return environment;
}

// CR-83, CR-76, CR-27
TEST(EngineHttp, CR_PlaceholderIsResolvedUpstreamAndNeverSeenDownstream) {  // CR-77
  World world;
  Server plain;
  Server secure{&world.server_identity()};
  const auto token = world.install(generic_token(), "API_TOKEN");
  EXPECT_EQ(token, "openshell:resolve:env:v41_API_TOKEN");
  world.publish(rest_policy(plain.port()) + [&] {
    auto second = rest_policy(secure.port());
    return second.replace(2, 3, "tls");
  }());
  auto http = world.open(kHost, plain.port());
  EXPECT_EQ(ask(*http.wire, get("/v1/a", plain.port(), "Authorization: Bearer " + token + "\r\n")).status, 200);
  EXPECT_THAT(plain.seen(), HasSubstr(std::string{"Authorization: Bearer "} + kSecret));
  auto https = world.open(kHost, secure.port());
  ASSERT_EQ(https.wire->start_tls(world.sandbox_ca(), kHost), "");
  EXPECT_EQ(ask(*https.wire, get("/v1/a", secure.port(), "Authorization: " + token + "\r\n")).status, 200);
  EXPECT_THAT(secure.seen(), HasSubstr(std::string{"Authorization: "} + kSecret));
  // What the upstream echoes in a head is masked.
  const auto echoed = ask(*https.wire, get("/echo-header", secure.port(), "Authorization: Bearer " + token + "\r\n"));
  EXPECT_EQ(echoed.status, 200);
  EXPECT_THAT(echoed.head, HasSubstr("X-Echo: Bearer [CREDENTIAL]"));
  // Bodies pass unchanged, whatever they hold.
  const auto body = "{\"seen\":\"" + token + "\"}";
  EXPECT_EQ(ask(*https.wire, get("/build", secure.port(),
                                 fmt::format("Content-Length: {}\r\nAuthorization: Bearer {}\r\n", body.size(), token), "POST") +
                                 body)
                .status,
            200);
  EXPECT_THAT(secure.seen(), HasSubstr(body));
  const auto all = world.events().all_text();
  EXPECT_THAT(all, Not(HasSubstr(kSecret)));
  EXPECT_THAT(all, Not(HasSubstr("API_TOKEN")));
}

// CR-85, CR-72, CR-73
TEST(EngineHttp, CR_PlaceholdersThatMayNotResolveAreRefusedHere) {
  World world;
  Server server;
  const auto token = world.install(generic_token(), "API_TOKEN");
  world.publish(rest_policy(server.port()));
  struct Row {
    const char* name;
    std::string fields;
    std::string path;
    int status;
  };
  const std::vector<Row> table = {
      {"other header", "X-Token: " + token + "\r\n", "/v1/a", 500},
      {"embedded", "Authorization: a=" + token + "\r\n", "/v1/a", 500},
      {"unknown key", "Authorization: Bearer openshell:resolve:env:v41_NO_SUCH\r\n", "/v1/a", 500},
      {"malformed", "Authorization: Bearer openshell:resolve:env:\r\n", "/v1/a", 500},
      {"path", "", "/v1/" + token, 500},
      {"query", "", "/v1/a?k=" + token, 500},
      {"query name", "", "/v1/a?" + token + "=1", 500},
      {"encoded marker", "X-A: openshell%3Aresolve%3Aenv%3Av41_API_TOKEN\r\n", "/v1/a", 500},
      {"header name", "sk-OPENSHELL-RESOLVE-ENV-API_TOKEN: x\r\n", "/v1/a", 500},
      {"other basic", "Proxy-Authorization: Basic b3BlbnNoZWxsOnJlc29sdmU6ZW52OnY0MV9BUElfVE9LRU4=\r\n", "/v1/a", 500},
  };
  for (const auto& row : table) {
    auto opened = world.open(kHost, server.port());
    const auto answer = ask(*opened.wire, get(row.path, server.port(), row.fields));
    EXPECT_EQ(answer.status, row.status) << row.name << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("credential_unavailable")) << row.name;
    EXPECT_FALSE(answer.has("API_TOKEN")) << row.name;
  }
  EXPECT_EQ(server.requests(), 0) << server.seen();
  EXPECT_THAT(world.events().all_text(), Not(HasSubstr("API_TOKEN")));
}

// CR-28, CR-30, CR-68
TEST(EngineHttp, CR_BoundCredentialsKeepToTheirEndpoints) {
  World world;
  Server server;
  auto environment = generic_token();
  environment.bindings["API_TOKEN"] = {{{kHost, server.port(), "/v1/**"}}, "provider-1:API_TOKEN", ""};
  const auto token = world.install(environment, "API_TOKEN");
  world.publish(rest_policy(server.port()));
  const auto with = [&](const std::string& path, const std::string& value) {
    return ask(*world.open(kHost, server.port()).wire, get(path, server.port(), "Authorization: " + value + "\r\n"));
  };
  EXPECT_EQ(with("/v1/a", "Bearer " + token).status, 200);
  const auto elsewhere = with("/chunked", "Bearer " + token);
  EXPECT_EQ(elsewhere.status, 403);
  EXPECT_THAT(elsewhere.body, HasSubstr("credential_endpoint_mismatch"));
  EXPECT_EQ(with("/v1/a", "Bearer openshell:resolve:env:API_TOKEN").status, 500);
  // Basic: decoded, replaced, encoded again.
  EXPECT_EQ(with("/v1/a", "Basic dXNlcjpvcGVuc2hlbGw6cmVzb2x2ZTplbnY6djQxX0FQSV9UT0tFTg==").status, 200);
  EXPECT_THAT(server.seen(), HasSubstr("Authorization: Basic dXNlcjpyZWFsLXRva2VuLXZhbHVlLTAxMjM0NTY3ODk="));
}

TEST(EngineHttp, CR_WithoutCredentialsAMarkerNeverLeaves) {
  World world;
  Server server;
  world.publish(rest_policy(server.port()));
  const auto answer =
      ask(*world.open(kHost, server.port()).wire, get("/v1/a", server.port(), "Authorization: Bearer openshell:resolve:env:v1_X\r\n"));
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(server.requests(), 0);
}

}  // namespace
}  // namespace openshell::egress::test
