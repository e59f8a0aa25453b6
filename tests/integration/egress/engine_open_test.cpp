// Who may open what: names, ports, programs, addresses, and how a refusal is told.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

using testing::HasSubstr;

std::string raw_policy(std::uint16_t port, const std::string& host = kHost) {
  return fmt::format("  raw:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: tcp\n    binaries: [/usr/bin/curl]\n",
                     host, port);
}

// NET-44, NET-39
TEST(EngineOpen, NET_RawRelayBothWaysWithHalfClose) {
  Server server;
  World world;
  world.publish(raw_policy(server.port()));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire);
  opened.wire->write("GET /close HTTP/1.1\r\nHost: anything\r\n\r\n");
  opened.wire->end_writing();
  const auto message = read_message(*opened.wire);
  EXPECT_EQ(message.body + opened.wire->read(), "until the end");
  EXPECT_FALSE(opened.wire->broken());
}

// NET-52, BIN-20, BIN-24, NET-07
TEST(EngineOpen, NET_DeniesByPortBinaryAndName) {  // BIN-02, PP-02
  Server server;
  World world;
  world.publish(raw_policy(server.port()));
  const auto address = world.resolve(kHost);
  EXPECT_EQ(world.connect(address, 1, kCurl).denied.kind, DenialKind::kPolicyDenied);
  EXPECT_EQ(world.connect(address, server.port(), kPython).denied.kind, DenialKind::kPolicyDenied);
  EXPECT_EQ(world.open("unlisted.test", 443).denied.kind, DenialKind::kPolicyDenied);
  const auto denials = world.events().denials();
  ASSERT_EQ(denials.size(), 3U);
  EXPECT_EQ(denials[0].host, kHost);
  EXPECT_EQ(denials[0].port.value, 1);
  EXPECT_EQ(denials[0].stage, "transparent_tcp_connect");
  EXPECT_EQ(denials[1].binary, kPython);
  EXPECT_THAT(denials[1].reason, HasSubstr("binary '/usr/bin/python3' not allowed in policy 'raw'"));
  EXPECT_EQ(denials[2].host, "unlisted.test");
  EXPECT_EQ(denials[2].reason, "endpoint unlisted.test:443 is not allowed by any policy");
  EXPECT_FALSE(denials[2].id.empty());
  EXPECT_EQ(server.requests(), 0);
}

// BIN-21
TEST(EngineOpen, NET_AnAncestorMayBeTheListedProgram) {
  Server server;
  World world;
  auto policy = raw_policy(server.port());
  policy.replace(policy.find("/usr/bin/curl"), 13, "/bin/bash");
  world.publish(policy);
  EXPECT_TRUE(world.open(kHost, server.port(), kPython).wire);
}

// NET-46, NET-45
TEST(EngineOpen, NET_LiteralAddresses) {  // IS-16, PP-02
  World world;
  world.publish(
      "  lab:\n    endpoints:\n      - port: 8080\n        allowed_ips: [\"10.20.0.0/16\"]\n      - host: \"10.4.0.9\"\n        port: "
      "8080\n    binaries: [/usr/bin/curl]\n");
  EXPECT_EQ(world.connect("127.0.0.1", 8080).denied.kind, DenialKind::kInvalidDestination);
  EXPECT_EQ(world.connect("169.254.169.254", 8080).denied.kind, DenialKind::kInvalidDestination);
  EXPECT_EQ(world.connect("::ffff:127.0.0.1", 8080).denied.kind, DenialKind::kInvalidDestination);
  EXPECT_EQ(world.connect("10.21.0.1", 8080).denied.kind, DenialKind::kPolicyDenied);
  EXPECT_EQ(world.connect("10.20.0.1", 9).denied.kind, DenialKind::kPolicyDenied);
  const auto denials = world.events().denials();
  ASSERT_EQ(denials.size(), 2U);
  EXPECT_EQ(denials[0].stage, "ssrf");
  EXPECT_THAT(denials[0].reason, HasSubstr("not in allowed_ips"));
}

// NET-54
TEST(EngineOpen, NET_StaleAndUnknownSyntheticAddressesAreInvalid) {  // PP-02
  World world;
  world.publish(raw_policy(443));
  EXPECT_EQ(world.connect("198.18.0.1", 80).denied.kind, DenialKind::kInvalidDestination);
  EXPECT_EQ(world.connect("198.18.3.3", 443).denied.kind, DenialKind::kInvalidDestination);
  EXPECT_EQ(world.connect("198.19.255.1", 443).denied.kind, DenialKind::kInvalidDestination);
  const auto address = world.resolve(kHost);
  world.publish(raw_policy(444));
  EXPECT_EQ(world.connect(address, 443).denied.kind, DenialKind::kInvalidDestination);
  EXPECT_TRUE(world.events().denials().empty());
}

TEST(EngineOpen, NET_ANameAllowedMeanwhileIsDeniedOnceMoreWithoutAProposal) {
  Server server;
  World world;
  world.publish("  none:\n    endpoints:\n      - host: a.test\n        port: 1\n        protocol: tcp\n    binaries: [/usr/bin/curl]\n");
  const auto early = world.resolve(kHost);
  world.publish(raw_policy(server.port()));
  EXPECT_EQ(world.connect(early, server.port()).denied.kind, DenialKind::kPolicyDenied);
  EXPECT_TRUE(world.events().denials().empty());
  EXPECT_TRUE(world.open(kHost, server.port()).wire);
}

// BIN-19
TEST(EngineOpen, BIN_FirstUsePinsAndAnotherFileIsRefused) {
  Server server;
  World world;
  world.publish(raw_policy(server.port()));
  ASSERT_TRUE(world.open(kHost, server.port()).wire);
  OpenIntent intent;
  intent.address = *IpAddress::parse(world.resolve(kHost));
  intent.port = Port{server.port()};
  intent.identity = ResolvedIdentity{{kCurl, std::string(64, 'a')}, {}, {}};
  EXPECT_EQ(world.open_intent(intent).denied.kind, DenialKind::kIdentityUnavailable);
  intent.identity = FailedIdentity{"the process is gone"};
  EXPECT_EQ(world.open_intent(intent).denied.kind, DenialKind::kIdentityUnavailable);
  intent.identity = ResolvedIdentity{{kCurl, ""}, {}, {}};
  EXPECT_EQ(world.open_intent(intent).denied.kind, DenialKind::kIdentityUnavailable);
}

TEST(EngineOpen, NET_AliasesAreSeparateAndNeedTheirOwnRule) {
  Server server;
  World world;
  world.publish(raw_policy(server.port()));
  EXPECT_EQ(world.open("host.docker.internal", server.port()).denied.kind, DenialKind::kPolicyDenied);
  world.publish(raw_policy(server.port(), "\"*.openshell.internal\""));
  EXPECT_EQ(world.open(kHost, server.port()).denied.kind, DenialKind::kPolicyDenied);
}

TEST(EngineOpen, NET_NothingIsOpenBeforeAPolicyOrInQuarantine) {
  World world;
  OpenIntent intent;
  intent.address = *IpAddress::parse("192.0.2.7");
  intent.port = Port{80};
  EXPECT_EQ(world.open_intent(intent).denied.kind, DenialKind::kMediationUnavailable);
  EXPECT_EQ(world.resolve("a.test"), "rcode 2");
  world.publish(raw_policy(80), [](Generation& generation) {
    generation.matcher = nullptr;
    generation.quarantine_reason = "the policy update is invalid";
  });
  EXPECT_EQ(world.open_intent(intent).denied.kind, DenialKind::kPolicyDenied);
  EXPECT_EQ(world.resolve("a.test"), "rcode 2");
}

TEST(EngineOpen, NET_StreamLimit) {
  Server server;
  World world{[](EngineOptions& options) { options.max_streams = 2; }};
  world.publish(raw_policy(server.port()));
  const auto a = world.open(kHost, server.port());
  const auto b = world.open(kHost, server.port());
  EXPECT_TRUE(a.wire && b.wire);
  EXPECT_EQ(world.open(kHost, server.port()).denied.kind, DenialKind::kResourceExhausted);
}

// NET-63
TEST(EngineOpen, NET_ExplainAnswersHttpAndTlsAndDialsNothing) {
  Server server;
  World world;
  world.publish(raw_policy(server.port()), [](Generation& generation) { generation.denied_http = DeniedHttp::kExplain; });
  auto plain = world.open("pay.test", 80);
  ASSERT_TRUE(plain.wire);
  plain.wire->write("GET /x?secret HTTP/1.1\r\nHost: pay.test\r\n\r\n");
  const auto answer = read_message(*plain.wire);
  EXPECT_EQ(answer.status, 403);
  for (const char* part : {R"("layer":"l4")", R"("rule":"CONNECT pay.test:80")", R"("path":"/x")", R"("type":"endpoint_allow")",
                           R"("reason":"endpoint pay.test:80 is not allowed by any policy")"}) {
    EXPECT_THAT(answer.body, HasSubstr(part));
  }
  ASSERT_EQ(world.events().denials().size(), 1U);
  EXPECT_THAT(answer.body, HasSubstr(world.events().denials()[0].id.str()));
  auto secure = world.open("pay.test", 443);
  ASSERT_EQ(secure.wire->start_tls(world.sandbox_ca(), "pay.test"), "");
  secure.wire->write("GET / HTTP/1.1\r\nHost: pay.test\r\n\r\n");
  EXPECT_EQ(read_message(*secure.wire).status, 403);
  auto other = world.open("pay.test", 22);
  other.wire->write(std::string{"\0\1\2", 3});
  EXPECT_EQ(other.wire->read(), "");
  // What no approval could open is still refused.
  EXPECT_EQ(world.connect("169.254.169.254", 80).denied.kind, DenialKind::kInvalidDestination);
  EXPECT_EQ(server.requests(), 0);
}

TEST(EngineOpen, L7_WithoutACaNothingInspectedOpens) {
  Server server;
  World world{[](EngineOptions& options) { options.ca = nullptr; }};
  world.publish(
      fmt::format("  api:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: rest\n        access: full\n    binaries: "
                  "[/usr/bin/curl]\n",
                  kHost, server.port()));
  EXPECT_EQ(world.open(kHost, server.port()).denied.kind, DenialKind::kPolicyDenied);
}

// NET-61
TEST(EngineOpen, NET_DnsTable) {
  World world;
  world.publish(raw_policy(443));
  EXPECT_THAT(world.resolve(kHost), HasSubstr("198.18."));
  EXPECT_EQ(world.resolve(kHost), world.resolve("HOST.openshell.INTERNAL."));
  EXPECT_EQ(world.resolve(kHost, 28), "no data");
  EXPECT_EQ(world.resolve(kHost, 16), "no data");
  EXPECT_THAT(world.resolve("unlisted.test"), HasSubstr("198.18."));
  EXPECT_EQ(world.resolve("unlisted.test", 28), "no data");
  EXPECT_EQ(world.resolve("policy.local"), "198.18.0.1");
  EXPECT_EQ(world.resolve("proxy.local"), "198.18.0.2");
  for (const char* never :
       {"single", "printer.local", "localhost", "x.localhost", "1.0.0.127.in-addr.arpa", "10.0.0.1", "0x7f.1", "a.1", "a_b.test"}) {
    EXPECT_EQ(world.resolve(never), "rcode 3") << never;
  }
  const auto question = *dns::build_question(9, "unlisted.test", 1);
  std::string framed{static_cast<char>(question.size() >> 8), static_cast<char>(question.size() & 0xff)};
  EXPECT_TRUE(world.dns(DnsTransport::kTcp, framed + question).has_value());
  EXPECT_FALSE(world.dns(DnsTransport::kTcp, framed + question + "x").has_value());
  EXPECT_EQ(((*world.dns(DnsTransport::kUdp, "xy"))[3] & 15), 1);
}

}  // namespace
}  // namespace openshell::egress::test
