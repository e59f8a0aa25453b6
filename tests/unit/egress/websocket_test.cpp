// Frames of a workload and the opening handshake: what is carried, and everything that ends a session.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "egress/websocket/frame.hpp"
#include "egress/websocket/handshake.hpp"

namespace openshell::egress::websocket {
namespace {

constexpr MaskKey kKey{0x37, 0xfa, 0x21, 0x3d};

std::string frame(Opcode opcode, std::string_view payload, bool final = true, std::uint8_t extra = 0) {
  auto out = client_frame(opcode, payload, kKey);
  if (!final) out[0] = static_cast<char>(out[0] & 0x7f);
  out[0] = static_cast<char>(static_cast<std::uint8_t>(out[0]) | extra);
  return out;
}

std::vector<Piece> read_all(std::string_view bytes, std::size_t step = 1 << 20) {
  ClientFrames frames;
  std::vector<Piece> out;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    frames.append(bytes.substr(at, step));
    while (auto piece = frames.next()) out.push_back(std::move(*piece));
  }
  return out;
}

/// The word and the code that `bytes` end with; empty: they do not.
std::pair<std::string, int> ending(std::string_view bytes) {
  const auto pieces = read_all(bytes);
  if (pieces.empty() || pieces.back().kind != Piece::Kind::fault) return {};
  return {std::string{pieces.back().fault.word}, static_cast<int>(pieces.back().fault.code)};
}

TEST(WebSocketFrames, ATextMessageComesWholeWhateverItsFragmentsAndReads) {
  const auto bytes = frame(Opcode::text, "he", false) + frame(Opcode::ping, "p") + frame(Opcode::continuation, "", false) +
                     frame(Opcode::continuation, "llo") + frame(Opcode::text, "again");
  for (const std::size_t step : {1UL, 2UL, 7UL, 1000UL}) {
    const auto pieces = read_all(bytes, step);
    ASSERT_EQ(pieces.size(), 5U);
    EXPECT_EQ(pieces[0].kind, Piece::Kind::begin);
    EXPECT_EQ(pieces[1].kind, Piece::Kind::forward);
    EXPECT_EQ(pieces[1].bytes, frame(Opcode::ping, "p"));
    EXPECT_EQ(pieces[2].kind, Piece::Kind::text);
    EXPECT_EQ(pieces[2].bytes, "hello");
    EXPECT_FALSE(pieces[2].own_mask);
    EXPECT_EQ(pieces[4].bytes, "again");
    ASSERT_TRUE(pieces[4].own_mask);
    EXPECT_EQ(client_frame(Opcode::text, pieces[4].bytes, *pieces[4].own_mask), frame(Opcode::text, "again")) << "as it came";
  }
}

TEST(WebSocketFrames, BinaryAndControlGoOnAsTheyCame) {
  const auto bytes = frame(Opcode::binary, std::string(70'000, 'x'), false) + frame(Opcode::pong, "") +
                     frame(Opcode::continuation, std::string(126, 'y')) + frame(Opcode::close, std::string("\x03\xe8", 2) + "bye");
  for (const std::size_t step : {1UL, 1000UL, 1UL << 20}) {
    std::string forwarded;
    for (const auto& piece : read_all(bytes, step)) {
      EXPECT_NE(piece.kind, Piece::Kind::fault);
      forwarded += piece.bytes;
    }
    EXPECT_EQ(forwarded, bytes);
  }
  EXPECT_EQ(read_all(bytes).back().kind, Piece::Kind::close);
}

TEST(WebSocketFrames, EveryViolationHasItsWordAndItsCode) {
  using Ending = std::pair<std::string, int>;
  const auto text = frame(Opcode::text, "x");
  EXPECT_EQ(ending("\x81\x01x"), (Ending{"unmasked_client_frame", 1002}));
  for (const std::uint8_t bit : {0x10, 0x20, 0x40}) EXPECT_EQ(ending(frame(Opcode::text, "x", true, bit)), (Ending{"rsv_bits", 1002}));
  EXPECT_EQ(ending(std::string("\xc1\x01x")), (Ending{"rsv_bits", 1002})) << "the bits come first";
  for (const int opcode : {3, 7, 11, 15})
    EXPECT_EQ(ending(frame(static_cast<Opcode>(opcode), "x")), (Ending{"reserved_opcode", 1002})) << opcode;
  EXPECT_EQ(ending(frame(Opcode::ping, "x", false)), (Ending{"invalid_control_frame", 1002}));
  EXPECT_EQ(ending(frame(Opcode::ping, std::string(126, 'x'))), (Ending{"invalid_control_frame", 1002}));
  EXPECT_TRUE(ending(frame(Opcode::ping, std::string(125, 'x'))).first.empty());
  EXPECT_EQ(ending(frame(Opcode::continuation, "x")), (Ending{"invalid_fragmentation", 1002}));
  EXPECT_EQ(ending(frame(Opcode::text, "x", false) + text), (Ending{"invalid_fragmentation", 1002}));
  EXPECT_EQ(ending(frame(Opcode::binary, "x", false) + text), (Ending{"invalid_fragmentation", 1002}));
  const std::string key(kKey.begin(), kKey.end());
  EXPECT_EQ(ending(std::string("\x82\xfe\x00\x7d", 4) + key), (Ending{"invalid_length", 1002})) << "125 in two bytes";
  EXPECT_EQ(ending(std::string("\x82\xff\0\0\0\0\0\0\xff\xff", 10) + key), (Ending{"invalid_length", 1002})) << "65,535 in eight";
  EXPECT_EQ(ending(std::string("\x82\xff\x80\0\0\0\0\0\0\0", 10) + key), (Ending{"invalid_length", 1002})) << "more than 63 bits";
  EXPECT_EQ(ending(frame(Opcode::close, "x")), (Ending{"invalid_close_frame", 1002}));
  for (const int code : {0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65'535}) {
    const std::string payload{static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
    EXPECT_EQ(ending(frame(Opcode::close, payload)), (Ending{"invalid_close_frame", 1002})) << code;
  }
  for (const int code : {1000, 1003, 1007, 1014, 3000, 4999}) {
    const std::string payload{static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
    EXPECT_TRUE(ending(frame(Opcode::close, payload)).first.empty()) << code;
  }
  EXPECT_EQ(ending(frame(Opcode::close, "") + text), (Ending{"invalid_close_frame", 1002})) << "nothing may follow it";
  EXPECT_EQ(ending(frame(Opcode::close, std::string("\x03\xe8\xff", 3))), (Ending{"invalid_utf8", 1007}));
  EXPECT_EQ(ending(frame(Opcode::text, "\xff")), (Ending{"invalid_utf8", 1007}));
  EXPECT_EQ(ending(frame(Opcode::text, "\xc3", false)), Ending{}) << "a character may be split";
  EXPECT_EQ(ending(frame(Opcode::text, "\xc3", false) + frame(Opcode::continuation, "(")), (Ending{"invalid_utf8", 1007}));
}

TEST(WebSocketFrames, TheLimitsAreExact) {
  using Ending = std::pair<std::string, int>;
  const std::string half(kMaxTextBytes / 2, 'x');
  EXPECT_EQ(read_all(frame(Opcode::text, half, false) + frame(Opcode::continuation, half)).back().bytes.size(), kMaxTextBytes);
  EXPECT_EQ(ending(frame(Opcode::text, half, false) + frame(Opcode::continuation, half + "x")), (Ending{"invalid_length", 1009}));
  const auto head = [](std::uint64_t length) {
    std::string out("\x82\xff");
    for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(length >> shift & 0xff);
    return out + "mask";
  };
  EXPECT_TRUE(ending(head(kMaxBinaryFrameBytes)).first.empty());
  EXPECT_EQ(ending(head(kMaxBinaryFrameBytes + 1)), (Ending{"invalid_length", 1002})) << "refused by its head";
  std::string many = frame(Opcode::text, "", false);
  for (int i = 2; i < kMaxFragments; ++i) many += frame(Opcode::continuation, "", false);
  EXPECT_EQ(read_all(many + frame(Opcode::continuation, "")).back().kind, Piece::Kind::text);
  EXPECT_EQ(ending(many + frame(Opcode::continuation, "", false) + frame(Opcode::continuation, "")),
            (Ending{"invalid_fragmentation", 1002}));
}

TEST(WebSocketFrames, OursStandBetweenThoseOfThePeer) {
  FrameBoundaries boundaries;
  EXPECT_TRUE(boundaries.between_frames());
  const auto bytes = frame(Opcode::binary, std::string(300, 'x')) + std::string("\x81\x02hi");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    boundaries.pass({&bytes[i], 1});
    EXPECT_EQ(boundaries.between_frames(), i + 1 == bytes.size() - 4 || i + 1 == bytes.size()) << i;
  }
  EXPECT_EQ(close_for_client(CloseCode::policy, "no"), std::string("\x88\x04\x03\xf0no", 6));
  EXPECT_EQ(read_all(close_for_server(CloseCode::policy, std::string(200, 'x'))).back().kind, Piece::Kind::close);
  EXPECT_NE(random_mask(), random_mask());
}

http::RequestHead upgrade() {
  const auto head = http::parse_request_head(
      "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Key: "
      "dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat, superchat\r\nSec-WebSocket-Extensions: "
      "permessage-deflate\r\n\r\n");
  EXPECT_TRUE(head.ok()) << head.status();
  return *head;
}

http::ResponseHead answer(const std::string& more = "", const std::string& accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") {
  const auto head = http::parse_response_head(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: " +
      accept + "\r\n" + more + "\r\n");
  EXPECT_TRUE(head.ok()) << head.status();
  return *head;
}

TEST(WebSocketHandshake, OnlyAWholeOneIsAnUpgrade) {
  EXPECT_TRUE(is_upgrade(upgrade()));
  for (const char* name : {"upgrade", "connection", "sec-websocket-key", "sec-websocket-version"}) {
    auto head = upgrade();
    head.fields.remove(name);
    EXPECT_FALSE(is_upgrade(head)) << name;
  }
  const auto changed = [](const char* name, const char* value) {
    auto head = upgrade();
    head.fields.set(name, value);
    return is_upgrade(head);
  };
  EXPECT_FALSE(changed("sec-websocket-version", "12"));
  EXPECT_FALSE(changed("sec-websocket-key", "c2hvcnQ="));
  EXPECT_FALSE(changed("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==dGhl"));
  EXPECT_FALSE(changed("sec-websocket-protocol", "chat, no token"));
  auto twice = upgrade();
  twice.fields.add("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
  EXPECT_FALSE(is_upgrade(twice));
  auto post = upgrade();
  post.method = "POST";
  EXPECT_FALSE(is_upgrade(post));
}

// RFC 6455 section 1.3 has this key and its answer.
TEST(WebSocketHandshake, TheAnswerIsHeldAgainstTheOffer) {
  auto head = upgrade();
  const auto offer = restrict_offer(head);
  EXPECT_FALSE(head.fields.has("sec-websocket-extensions"));
  EXPECT_TRUE(check_accepted(answer(), offer).ok());
  EXPECT_TRUE(check_accepted(answer("Sec-WebSocket-Protocol: superchat\r\n"), offer).ok());
  EXPECT_FALSE(check_accepted(answer("", "s3pPLMBiTxaQ9kYGzzhZRbK+xOp="), offer).ok());
  EXPECT_FALSE(check_accepted(answer("Sec-WebSocket-Protocol: other\r\n"), offer).ok());
  EXPECT_FALSE(check_accepted(answer("Sec-WebSocket-Protocol: chat, superchat\r\n"), offer).ok());
  EXPECT_FALSE(check_accepted(answer("Sec-WebSocket-Extensions: permessage-deflate\r\n"), offer).ok());
  EXPECT_FALSE(check_accepted(answer("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), offer).ok());
  auto other = answer();
  other.fields.set("upgrade", "h2c");
  EXPECT_FALSE(check_accepted(other, offer).ok());
}

}  // namespace
}  // namespace openshell::egress::websocket
