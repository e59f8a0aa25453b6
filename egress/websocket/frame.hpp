// WebSocket frames of a workload (RFC 6455 section 5), read strictly: what two readers could understand differently ends the session.
// Pure: bytes in, pieces out; nothing here waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openshell::egress::websocket {

inline constexpr std::size_t kMaxTextBytes = 4 << 20;            ///< of one text message, all its fragments together
inline constexpr std::uint64_t kMaxBinaryFrameBytes = 16 << 20;  ///< payload of one binary frame; a message may have many
inline constexpr int kMaxFragments = 4096;                       ///< frames of one message
inline constexpr std::size_t kMaxControlBytes = 125;             ///< payload of a control frame

enum class Opcode : std::uint8_t { continuation = 0x0, text = 0x1, binary = 0x2, close = 0x8, ping = 0x9, pong = 0xa };

/// Close codes that are ours to send (RFC 6455 section 7.4.1).
enum class CloseCode : std::uint16_t {
  protocol = 1002,
  invalid_text = 1007,
  policy = 1008,
  too_big = 1009,
  restarted = 1012,  ///< the policy changed
  try_later = 1013
};

/// Why a session ends: a word for the log, and what both sides are told. An empty word: none.
struct Fault {
  std::string_view word;
  CloseCode code = CloseCode::protocol;
  [[nodiscard]] explicit operator bool() const noexcept { return !word.empty(); }
};

using MaskKey = std::array<std::uint8_t, 4>;

/// Something to be done with what the workload sent, in its order.
struct Piece {
  enum class Kind : std::uint8_t {
    forward,  ///< goes on as it came: a control frame, or part of a binary one
    begin,    ///< a text message begins; its bytes are asked for next
    text,     ///< a whole text message, unmasked, valid UTF-8
    close,    ///< as forward, and the last
    fault     ///< the session ends; nothing follows
  };
  Kind kind = Kind::forward;
  std::string bytes;
  Opcode opcode = Opcode::text;     ///< of `forward`
  std::optional<MaskKey> own_mask;  ///< text that came in one frame: with this mask it goes out as it came
  Fault fault;
};

/// The frames of one client, in any pieces.
class ClientFrames {
 public:
  void append(std::string_view bytes);
  /// nullopt: more bytes are needed.
  std::optional<Piece> next();
  /// Part of a text message is held.
  [[nodiscard]] bool assembling() const noexcept { return message_ == Opcode::text; }

 private:
  std::optional<Piece> head();
  std::optional<Piece> payload();
  std::optional<Piece> control();
  std::optional<Piece> text_payload();
  Piece fail(Fault fault);
  [[nodiscard]] Fault check(std::uint8_t first, std::uint8_t second) const noexcept;
  [[nodiscard]] std::string_view waiting() const noexcept;

  std::string buffer_;
  std::size_t used_ = 0;  // of it
  bool in_payload_ = false;
  bool over_ = false;    // after a close frame or a fault
  bool closed_ = false;  // by a close frame
  // The frame under way.
  Opcode opcode_ = Opcode::continuation;
  bool final_ = false;
  std::uint64_t left_ = 0;
  MaskKey mask_{};
  std::size_t at_ = 0;  // position in the mask
  std::string head_;    // of a binary or control frame, as it came
  // The message under way; `continuation`: none.
  Opcode message_ = Opcode::continuation;
  int fragments_ = 0;
  std::string text_;
};

/// Follows frames by their lengths alone, to know where one of ours may stand between them.
class FrameBoundaries {
 public:
  void pass(std::string_view bytes);
  [[nodiscard]] bool between_frames() const noexcept { return left_ == 0 && head_.empty(); }

 private:
  std::string head_;  // of a frame whose length is not known yet
  std::uint64_t left_ = 0;
};

/// One whole masked frame, as clients send them. `key` unpredictable (RFC 6455 section 10.3).
std::string client_frame(Opcode opcode, std::string_view payload, const MaskKey& key);
/// A fresh key.
MaskKey random_mask();
/// Close frames in the two directions; the reason is cut at 123 bytes.
std::string close_for_server(CloseCode code, std::string_view reason);
std::string close_for_client(CloseCode code, std::string_view reason);

}  // namespace openshell::egress::websocket
