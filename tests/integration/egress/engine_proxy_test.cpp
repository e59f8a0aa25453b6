// Clients that speak to a proxy: CONNECT and absolute-form requests, here over proxy.local of a sandbox.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "egress/http/proxy_request.hpp"
#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::uint16_t kProxyPort = 3128;

std::string policy(
    std::uint16_t port,
    const std::string& more =
        "        protocol: rest\n        enforcement: enforce\n        rules: [{allow: {method: GET, path: \"/v1/**\"}}]\n") {
  return fmt::format("  api:\n    endpoints:\n      - host: {}\n        port: {}\n{}    binaries: [/usr/bin/curl]\n", kHost, port, more);
}

struct ProxyTest : testing::Test {
  Server server;
  World world;

  std::unique_ptr<Wire> proxy(const char* binary = kCurl) {
    auto opened = world.open("proxy.local", kProxyPort, binary);
    EXPECT_TRUE(opened.wire);
    return std::move(opened.wire);
  }
  Message ask(Wire& wire, const std::string& bytes) {
    EXPECT_TRUE(wire.write(bytes));
    return read_message(wire);
  }
  std::string connect_to(const std::string& authority) { return fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", authority); }
  std::string here(std::uint16_t port) { return fmt::format("{}:{}", kHost, port); }
  /// All bytes until the end.
  std::string raw(const std::string& bytes) {
    auto wire = proxy();
    EXPECT_TRUE(wire->write(bytes));
    std::string all;
    for (std::string piece = wire->read(); !piece.empty(); piece = wire->read()) all += piece;
    return all;
  }
};

TEST_F(ProxyTest, NP_04_ConnectOpensATunnelWhoseRequestsAreJudged) {
  world.publish(policy(server.port()));
  auto wire = proxy();
  ASSERT_TRUE(wire->write(connect_to(here(server.port()))));
  EXPECT_EQ(wire->read(), "HTTP/1.1 200 Connection Established\r\n\r\n");
  EXPECT_EQ(ask(*wire, get("/v1/a", server.port())).body, "GET /v1/a 0");
  EXPECT_EQ(ask(*wire, get("/push", server.port(), {}, "POST")).status, 403);
  EXPECT_EQ(server.requests(), 1);
}

TEST_F(ProxyTest, NP_10_TlsInsideATunnelIsInspected) {
  Server secure{&world.server_identity()};
  world.publish(policy(secure.port()));
  auto wire = proxy();
  ASSERT_TRUE(wire->write(connect_to(here(secure.port()))));
  EXPECT_EQ(wire->read(), "HTTP/1.1 200 Connection Established\r\n\r\n");
  ASSERT_EQ(wire->start_tls(world.sandbox_ca(), kHost), "");
  EXPECT_EQ(ask(*wire, get("/v1/a", secure.port())).body, "GET /v1/a 0");
  EXPECT_EQ(ask(*wire, get("/other", secure.port())).status, 403);
}

TEST_F(ProxyTest, BytesBehindTheHeadBelongToTheTunnel) {
  world.publish(policy(server.port()));
  auto wire = proxy();
  ASSERT_TRUE(wire->write(connect_to(here(server.port())) + get("/v1/early", server.port())));
  std::string all;
  while (all.find("GET /v1/early 0") == std::string::npos) {
    const auto piece = wire->read();
    ASSERT_FALSE(piece.empty()) << all;
    all += piece;
  }
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200 Connection Established\r\n\r\nHTTP/1.1 200"));
}

TEST_F(ProxyTest, NP_03_AnAbsoluteFormRequestIsForwardedInOriginForm) {
  world.publish(policy(server.port()));
  auto wire = proxy();
  const auto answer = ask(
      *wire,
      fmt::format("GET http://HOST.openshell.Internal:{}/v1/a/../b?x=1 HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: Basic eDp5\r\n"
                  "Proxy-Connection: keep-alive\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Kept: 2\r\n\r\n",
                  server.port()));
  EXPECT_EQ(answer.body, "GET /v1/b?x=1 0");
  EXPECT_EQ(wire->read(), "") << "one request a connection";
  const auto seen = server.seen();
  EXPECT_THAT(seen, HasSubstr(fmt::format("\r\nHost: {}:{}\r\n", kHost, server.port())));
  EXPECT_THAT(seen, HasSubstr("X-Kept: 2"));
  EXPECT_THAT(seen, HasSubstr("Via: 1.1 openshell-sandbox"));
  for (const auto* gone : {"evil.test", "Proxy-", "X-Hop"}) EXPECT_THAT(seen, Not(HasSubstr(gone)));
}

TEST_F(ProxyTest, AForwardedRequestThatItsRulesRefuseTouchesNobody) {
  world.publish(policy(server.port()));
  auto wire = proxy();
  const auto answer = ask(*wire, fmt::format("POST http://{}/push HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", here(server.port())));
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.body, HasSubstr(R"("error":"policy_denied")"));
  EXPECT_EQ(server.requests(), 0);
}

TEST_F(ProxyTest, WhatThePolicyDoesNotAllowIsRefusedBeforeAnythingIsAsked) {
  world.publish(policy(server.port()));
  auto wire = proxy();
  const auto answer = ask(*wire, connect_to("other.test:443"));
  EXPECT_EQ(answer.status, 403);
  EXPECT_THAT(answer.body, HasSubstr("CONNECT other.test:443 not permitted by policy"));
  auto forwarding = proxy();
  const auto refused = ask(*forwarding, "GET http://other.test/a?token=s3cret HTTP/1.1\r\nHost: other.test\r\n\r\n");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("GET other.test:80/a not permitted by policy"));
  const auto denials = world.events().denials();
  ASSERT_EQ(denials.size(), 2U);
  EXPECT_EQ(denials[0].stage, "connect");
  EXPECT_EQ(denials[0].host, "other.test");
  EXPECT_EQ(denials[0].binary, kCurl);
  EXPECT_EQ(denials[1].stage, "forward");
  EXPECT_THAT(world.events().all_text(), Not(HasSubstr("s3cret")));
}

TEST_F(ProxyTest, AProxyGrantsNothing) {
  world.publish(policy(server.port()));
  auto wire = proxy(kPython);
  EXPECT_EQ(ask(*wire, connect_to(here(server.port()))).status, 403) << "the rule names another program";
  EXPECT_FALSE(world.open("proxy.local", 80).wire) << "and no other port of it is served";
}

// NP-09: the same destination checks.
TEST_F(ProxyTest, NP_09_AnAddressThatNoRuleMayOpenIsRefused) {
  world.publish(
      "  api:\n    endpoints:\n      - {host: 127.0.0.1, port: 80}\n      - {host: 169.254.169.254, port: 80}\n      - {host: 10.1.2.3, "
      "port: 6443}\n"
      "    binaries: [/usr/bin/curl]\n");
  for (const auto* where : {"127.0.0.1:80", "169.254.169.254:80", "[::ffff:127.0.0.1]:80", "10.1.2.3:6443"}) {
    auto wire = proxy();
    const auto answer = ask(*wire, connect_to(where));
    EXPECT_EQ(answer.status, 403) << where;
  }
}

TEST_F(ProxyTest, AnUpstreamThatIsNotThereIsA502) {
  world.publish(policy(1));
  auto wire = proxy();
  const auto answer = ask(*wire, connect_to(here(1)));
  EXPECT_EQ(answer.status, 502);
  EXPECT_THAT(answer.body, HasSubstr(fmt::format("connection to {}:1 failed", kHost)));
  auto forwarding = proxy();
  EXPECT_EQ(ask(*forwarding, fmt::format("GET http://{}:1/v1/a HTTP/1.1\r\nHost: a\r\n\r\n", kHost)).status, 502);
}

// Such a request once took the whole supervisor along: there was no upstream to reset.
TEST_F(ProxyTest, AMalformedBodyToAnUpstreamThatIsNotThereIsAnswered) {
  world.publish(policy(1, ""));
  const auto answer =
      raw(fmt::format("POST http://{}:1/v1/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", kHost));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 "));
  EXPECT_EQ(ask(*proxy(), connect_to("other.test:443")).status, 403) << "and the next client is served";
}

TEST_F(ProxyTest, AnUpgradeIsForwardedAndADeclinedOneEndsTheConnection) {
  world.publish(
      policy(server.port(),
             "        protocol: websocket\n        enforcement: enforce\n        rules: [{allow: {method: GET, path: \"/**\"}}]\n"));
  const auto handshake = [&](const std::string& path) {
    return fmt::format(
        "GET http://{}{} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        here(server.port()), path);
  };
  auto wire = proxy();
  ASSERT_TRUE(wire->write(handshake("/ws/talk")));
  EXPECT_EQ(read_message(*wire, true).status, 101);
  const auto declined = raw(handshake("/v1/plain") + get("/v1/more", server.port()));
  EXPECT_THAT(declined, HasSubstr("GET /v1/plain 0"));
  EXPECT_THAT(declined, Not(HasSubstr("GET /v1/more"))) << "one request a connection";
}

TEST_F(ProxyTest, MalformedHeadsAreAnsweredWithoutABody) {
  world.publish(policy(server.port()));
  constexpr auto kBad = "HTTP/1.1 400 Bad Request\r\n\r\n";
  for (const std::string head :
       {"CONNECT host.test HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT host.test:0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT [::1:443 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /origin HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://a.test/#f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a.test/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET http://a.test/ HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "CONNECT a.test:1 HTTP/1.1\r\nHost : a\r\n\r\n", "nonsense\r\n\r\n"}) {
    EXPECT_EQ(raw(head), kBad) << head;
  }
  EXPECT_EQ(raw("CONNECT a.test:1 HTTP/1.1\r\nX: " + std::string(http::kMaxProxyHeadBytes, 'a')),
            "HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n");
  EXPECT_THAT(raw("GET https://a.test/ HTTP/1.1\r\nHost: a\r\n\r\n"), HasSubstr("\r\n\r\nUse CONNECT for HTTPS URLs"));
  EXPECT_THAT(raw("GET ftp://a.test/ HTTP/1.1\r\nHost: a\r\n\r\n"), HasSubstr("unsupported_proxy_scheme"));
  EXPECT_EQ(server.requests(), 0);
}

TEST_F(ProxyTest, ANewPolicyEndsATunnelThatItDoesNotAllow) {
  world.publish(policy(server.port()));
  auto wire = proxy();
  ASSERT_TRUE(wire->write(connect_to(here(server.port()))));
  EXPECT_EQ(wire->read(), "HTTP/1.1 200 Connection Established\r\n\r\n");
  auto waiting = proxy();  // nothing said yet: it is asked of the policy of then
  world.publish("  {}\n");
  EXPECT_EQ(wire->read(), "");
  EXPECT_EQ(ask(*waiting, connect_to(here(server.port()))).status, 403);
}

TEST_F(ProxyTest, AnEndpointWithoutInspectionIsRelayedRaw) {
  world.publish(policy(server.port(), "        tls: skip\n"));
  auto wire = proxy();
  ASSERT_TRUE(wire->write(connect_to(here(server.port()))));
  EXPECT_EQ(wire->read(), "HTTP/1.1 200 Connection Established\r\n\r\n");
  EXPECT_EQ(ask(*wire, get("/anything", server.port(), {}, "DELETE")).body, "DELETE /anything 0");
}

}  // namespace
}  // namespace openshell::egress::test
