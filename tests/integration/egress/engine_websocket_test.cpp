// WebSocket through the whole engine: the upgrade and every text message are judged (L7 rows, RFC 6455).
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "egress/websocket/frame.hpp"
#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using websocket::Opcode;

std::string rules(std::uint16_t port, const std::string& more = {}, bool texts = true) {
  return fmt::format(
      "  chat:\n    endpoints:\n      - host: {}\n        port: {}\n        protocol: websocket\n        enforcement: enforce\n{}"
      "        rules:\n          - allow: {{method: GET, path: \"/ws/**\"}}\n{}    binaries: [/usr/bin/curl]\n",
      kHost, port, more, texts ? "          - allow: {method: WEBSOCKET_TEXT, path: \"/ws/talk\"}\n" : "");
}

std::string handshake(const std::string& path, std::uint16_t port, const std::string& extra = {}) {
  return fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}:{}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
      "Sec-WebSocket-Version: 13\r\n{}\r\n",
      path, kHost, port, extra);
}

std::string text(std::string_view message) { return websocket::client_frame(Opcode::text, message, {1, 2, 3, 4}); }
std::string answer(std::string_view message) { return std::string{'\x81', static_cast<char>(message.size())}.append(message); }
std::string close_of(websocket::CloseCode code, std::string_view reason) { return websocket::close_for_client(code, reason); }

std::string read_bytes(Wire& wire, std::size_t count) {
  std::string out;
  while (out.size() < count) {
    const auto more = wire.read();
    if (more.empty()) break;
    out += more;
  }
  return out;
}

std::string read_to_end(Wire& wire) {
  std::string out;
  for (auto more = wire.read(); !more.empty(); more = wire.read()) out += more;
  return out;
}

struct Talk {
  explicit Talk(const std::string& policy_more = {}, const std::string& path = "/ws/talk", bool texts = true) {
    world.publish(rules(server.port(), policy_more, texts));
    opened = world.open(kHost, server.port());
    EXPECT_TRUE(opened.wire);
    if (!opened.wire) return;
    EXPECT_TRUE(opened.wire->write(handshake(path, server.port(), "Sec-WebSocket-Extensions: permessage-deflate\r\n")));
    head = read_message(*opened.wire, true);
  }
  Wire& wire() { return *opened.wire; }
  Server server;
  World world;
  World::Opened opened;
  Message head;
};

// L7-02, L7-03
TEST(EngineWebSocket, L7_02_L7_03_AnAllowedSessionCarriesMessagesBothWays) {
  Talk talk;
  ASSERT_EQ(talk.head.status, 101);
  ASSERT_TRUE(talk.wire().write(text("hello")));
  EXPECT_EQ(read_bytes(talk.wire(), 7), answer("hello"));
  const auto split = text("in two reads");
  ASSERT_TRUE(talk.wire().write(split.substr(0, 5)));
  ASSERT_TRUE(talk.wire().write(split.substr(5)));
  EXPECT_EQ(read_bytes(talk.wire(), 14), answer("in two reads"));
  ASSERT_TRUE(talk.wire().write(websocket::client_frame(Opcode::close, std::string("\x03\xe8", 2), {1, 2, 3, 4})));
  EXPECT_EQ(read_to_end(talk.wire()), std::string("\x88\x02\x03\xe8", 4));
  EXPECT_FALSE(talk.wire().broken());
  EXPECT_THAT(talk.server.seen(), Not(HasSubstr("permessage"))) << "what is read here is not compressed";
}

TEST(EngineWebSocket, L7_02_TheUpgradeIsJudgedByItsPath) {
  Server server;
  World world;
  world.publish(rules(server.port()));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(handshake("/other", server.port())));
  const auto refused = read_message(*opened.wire);
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("policy_denied"));
  EXPECT_EQ(server.requests(), 0);
}

TEST(EngineWebSocket, L7_02_WhatIsNoWholeHandshakeIsRefused) {
  Server server;
  World world;
  world.publish(rules(server.port()));
  for (const std::string& request :
       {get("/ws/talk", server.port()), get("/ws/talk", server.port(), "Upgrade: websocket\r\nConnection: Upgrade\r\n"),
        handshake("/ws/talk", server.port(), "Sec-WebSocket-Version: 13\r\n")}) {
    auto opened = world.open(kHost, server.port());
    ASSERT_TRUE(opened.wire->write(request));
    const auto refused = read_message(*opened.wire);
    EXPECT_EQ(refused.status, 403);
    EXPECT_THAT(refused.body, HasSubstr("websocket endpoint requires a valid WebSocket upgrade request"));
  }
  EXPECT_EQ(server.requests(), 0);
}

// L7-03: also in fragments, and also behind one that was allowed.
TEST(EngineWebSocket, L7_03_ADeniedTextNeverReachesUpstream) {
  for (const bool fragments : {false, true}) {
    Talk talk{{}, "/ws/talk", false};
    ASSERT_EQ(talk.head.status, 101);
    auto bytes = text("s3cret");
    if (fragments) {
      bytes = websocket::client_frame(Opcode::text, "s3", {1, 2, 3, 4});
      bytes[0] = '\x01';
      bytes += websocket::client_frame(Opcode::continuation, "cret", {1, 2, 3, 4});
    }
    ASSERT_TRUE(talk.wire().write(bytes));
    const auto told = read_to_end(talk.wire());
    EXPECT_EQ(told.substr(0, 1), "\x88");
    EXPECT_EQ(told.substr(2, 2), "\x03\xf0") << "1008";
    EXPECT_THAT(talk.server.seen(), Not(HasSubstr("s3")));
    const auto events = talk.world.events().activities();
    EXPECT_EQ(events.back().method, "WEBSOCKET_TEXT");
    EXPECT_EQ(events.back().disposition, Disposition::kDenied);
    EXPECT_FALSE(events.back().denial_id.empty());
    EXPECT_THAT(talk.world.events().all_text(), Not(HasSubstr("s3cret")));
  }
}

TEST(EngineWebSocket, L7_03_AProtocolFaultEndsTheSessionWithItsCode) {
  Talk talk;
  ASSERT_EQ(talk.head.status, 101);
  ASSERT_TRUE(talk.wire().write(text("before") + "\x81\x01x"));
  const auto told = read_to_end(talk.wire());
  EXPECT_THAT(told, HasSubstr(close_of(websocket::CloseCode::protocol, "unmasked_client_frame")));
  EXPECT_FALSE(talk.wire().broken());
  EXPECT_THAT(talk.server.seen(), HasSubstr("<before>"));
}

TEST(EngineWebSocket, TheServersFirstFramesComeThrough) {
  Talk talk{{}, "/ws/greets"};
  EXPECT_EQ(talk.head.status, 101);
  EXPECT_EQ(talk.head.body + read_bytes(talk.wire(), 7 - talk.head.body.size()), answer("hello"));
}

TEST(EngineWebSocket, AServerThatAcceptsAnotherHandshakeIsNoServer) {
  Talk talk{{}, "/ws/liar"};
  EXPECT_EQ(talk.head.status, 502);
}

// FB-06: a policy that no longer admits the session ends it with 1012; one that only changes its messages is in force for the next.
TEST(EngineWebSocket, FB_06_ANewPolicyIsInForceForALiveSession) {
  Talk talk;
  ASSERT_EQ(talk.head.status, 101);
  ASSERT_TRUE(talk.wire().write(text("one")));
  EXPECT_EQ(read_bytes(talk.wire(), 5), answer("one"));
  EXPECT_EQ(talk.world.publish(rules(talk.server.port())).kept, 1U);
  ASSERT_TRUE(talk.wire().write(text("two")));
  EXPECT_EQ(read_bytes(talk.wire(), 5), answer("two"));
  talk.world.publish("  other:\n    endpoints:\n      - host: other.test\n        port: 443\n    binaries: [/usr/bin/curl]\n");
  EXPECT_EQ(read_to_end(talk.wire()), close_of(websocket::CloseCode::restarted, "policy changed"));
}

TEST(EngineWebSocket, FB_06_ANewRuleForMessagesHoldsForTheNextOne) {
  Talk talk;
  ASSERT_EQ(talk.head.status, 101);
  EXPECT_EQ(talk.world.publish(rules(talk.server.port(), {}, false)).kept, 1U);
  ASSERT_TRUE(talk.wire().write(text("late")));
  EXPECT_EQ(read_to_end(talk.wire()).substr(2, 2), "\x03\xf0");
  EXPECT_THAT(talk.server.seen(), Not(HasSubstr("late")));
}

}  // namespace
}  // namespace openshell::egress::test
