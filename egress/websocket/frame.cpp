#include "egress/websocket/frame.hpp"

#include <openssl/rand.h>

#include <algorithm>
#include <utility>

#include "egress/http/target.hpp"

namespace openshell::egress::websocket {
namespace {

constexpr std::uint8_t kFinal = 0x80, kReserved = 0x70, kOpcode = 0x0f, kMasked = 0x80, kLength = 0x7f;
constexpr std::uint8_t kLength16 = 126, kLength64 = 127;  // the length follows in 2 or 8 bytes
constexpr std::size_t kMaxReason = kMaxControlBytes - 2;

constexpr Fault kUnmasked{"unmasked_client_frame", CloseCode::protocol};
constexpr Fault kRsvBits{"rsv_bits", CloseCode::protocol};
constexpr Fault kReservedOpcode{"reserved_opcode", CloseCode::protocol};
constexpr Fault kInvalidControl{"invalid_control_frame", CloseCode::protocol};
constexpr Fault kInvalidLength{"invalid_length", CloseCode::protocol};
constexpr Fault kTooLong{"invalid_length", CloseCode::too_big};
constexpr Fault kInvalidFragmentation{"invalid_fragmentation", CloseCode::protocol};
constexpr Fault kInvalidClose{"invalid_close_frame", CloseCode::protocol};
constexpr Fault kInvalidUtf8{"invalid_utf8", CloseCode::invalid_text};

std::uint8_t byte_at(std::string_view bytes, std::size_t index) { return static_cast<std::uint8_t>(bytes[index]); }

bool is_control(Opcode opcode) { return static_cast<std::uint8_t>(opcode) >= static_cast<std::uint8_t>(Opcode::close); }

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) value = value << 8 | byte_at(bytes, i);
  return value;
}

std::size_t length_bytes(std::uint8_t second) {
  const auto length = second & kLength;
  return length == kLength16 ? 2 : length == kLength64 ? 8 : 0;
}

void apply_mask(char* bytes, std::size_t count, const MaskKey& key, std::size_t at) {
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(static_cast<std::uint8_t>(bytes[i]) ^ key[(at + i) % key.size()]);
}

/// RFC 6455 section 7.4 and the IANA registry: what an endpoint may send.
bool may_be_sent(std::uint64_t code) {
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

std::string frame_head(Opcode opcode, std::size_t size, bool masked) {
  std::string out{static_cast<char>(kFinal | static_cast<std::uint8_t>(opcode))};
  const std::uint8_t mask = masked ? kMasked : 0;
  const auto put = [&out, size](int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(static_cast<std::uint64_t>(size) >> shift & 0xff);
  };
  if (size <= kMaxControlBytes) {
    out += static_cast<char>(mask | size);
  } else if (size <= 0xffff) {
    out += static_cast<char>(mask | kLength16);
    put(2);
  } else {
    out += static_cast<char>(mask | kLength64);
    put(8);
  }
  return out;
}

std::string close_payload(CloseCode code, std::string_view reason) {
  const auto number = static_cast<std::uint16_t>(code);
  std::string out{static_cast<char>(number >> 8), static_cast<char>(number & 0xff)};
  return out.append(reason.substr(0, kMaxReason));
}

}  // namespace

Piece ClientFrames::fail(Fault fault) {
  over_ = true;
  buffer_ = {};
  used_ = 0;
  text_ = {};
  Piece out;
  out.kind = Piece::Kind::fault;
  out.fault = fault;
  return out;
}

void ClientFrames::append(std::string_view bytes) {
  if (over_ && !closed_) return;
  buffer_.erase(0, std::exchange(used_, 0));
  buffer_.append(bytes);
}

std::optional<Piece> ClientFrames::next() {
  while (!over_ || closed_) {
    const auto before = std::pair{used_, in_payload_};
    auto piece = in_payload_ ? payload() : head();
    if (piece) return piece;
    if (std::pair{used_, in_payload_} == before) break;
  }
  return std::nullopt;
}

std::string_view ClientFrames::waiting() const noexcept { return std::string_view{buffer_}.substr(used_); }

/// What the first two bytes of a frame tell.
Fault ClientFrames::check(std::uint8_t first, std::uint8_t second) const noexcept {
  if ((first & kReserved) != 0) return kRsvBits;
  if ((second & kMasked) == 0) return kUnmasked;
  const auto opcode = static_cast<Opcode>(first & kOpcode);
  switch (opcode) {
    case Opcode::continuation:
    case Opcode::text:
    case Opcode::binary:
    case Opcode::close:
    case Opcode::ping:
    case Opcode::pong:
      break;
    default:
      return kReservedOpcode;
  }
  if (is_control(opcode)) return (first & kFinal) == 0 || (second & kLength) > kMaxControlBytes ? kInvalidControl : Fault{};
  const bool begun = message_ != Opcode::continuation;
  if (begun != (opcode == Opcode::continuation) || fragments_ >= kMaxFragments) return kInvalidFragmentation;
  return {};
}

std::optional<Piece> ClientFrames::head() {
  const auto bytes = waiting();
  if (over_) {
    if (bytes.empty()) return std::nullopt;
    closed_ = false;
    return fail(kInvalidClose);  // a frame behind the close frame
  }
  if (bytes.size() < 2) return std::nullopt;
  const auto first = byte_at(bytes, 0), second = byte_at(bytes, 1);
  if (const auto fault = check(first, second)) return fail(fault);
  const auto extended = length_bytes(second);
  const auto size = 2 + extended + mask_.size();
  if (bytes.size() < size) return std::nullopt;
  const auto length = extended == 0 ? second & kLength : big_endian(bytes.substr(2, extended));
  const bool minimal = extended == 0 || (extended == 2 ? length >= kLength16 : length > 0xffff);
  if (!minimal || length >> 63 != 0) return fail(kInvalidLength);
  opcode_ = static_cast<Opcode>(first & kOpcode);
  final_ = (first & kFinal) != 0;
  left_ = length;
  at_ = 0;
  for (std::size_t i = 0; i < mask_.size(); ++i) mask_[i] = byte_at(bytes, 2 + extended + i);
  head_ = bytes.substr(0, size);
  used_ += size;
  in_payload_ = true;
  if (is_control(opcode_)) return std::nullopt;
  const bool begins = message_ == Opcode::continuation;
  if (begins) message_ = opcode_;
  fragments_ = begins ? 1 : fragments_ + 1;
  if (message_ == Opcode::binary && length > kMaxBinaryFrameBytes) return fail(kInvalidLength);
  if (message_ == Opcode::text && length > kMaxTextBytes - text_.size()) return fail(kTooLong);
  if (!begins || message_ != Opcode::text) return std::nullopt;
  Piece out;
  out.kind = Piece::Kind::begin;
  return out;
}

std::optional<Piece> ClientFrames::payload() {
  if (is_control(opcode_)) return control();
  if (message_ == Opcode::text) return text_payload();
  const auto bytes = waiting();
  if (bytes.empty() && left_ > 0 && head_.empty()) return std::nullopt;
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
  Piece out;
  out.opcode = Opcode::binary;
  out.bytes = std::exchange(head_, {}).append(bytes.substr(0, count));
  used_ += count;
  left_ -= count;
  if (left_ == 0) {
    in_payload_ = false;
    if (final_) message_ = Opcode::continuation;
  }
  return out;
}

std::optional<Piece> ClientFrames::control() {
  const auto size = static_cast<std::size_t>(left_);
  if (waiting().size() < size) return std::nullopt;
  std::string plain{waiting().substr(0, size)};
  Piece out;
  out.opcode = opcode_;
  out.bytes = std::exchange(head_, {}).append(plain);
  used_ += size;
  in_payload_ = false;
  if (opcode_ != Opcode::close) return out;
  apply_mask(plain.data(), plain.size(), mask_, 0);
  const std::string_view told{plain};
  if (size == 1 || (size >= 2 && !may_be_sent(big_endian(told.substr(0, 2))))) return fail(kInvalidClose);
  if (size > 2 && !http::is_valid_utf8(told.substr(2))) return fail(kInvalidUtf8);
  over_ = closed_ = true;
  out.kind = Piece::Kind::close;
  return out;
}

std::optional<Piece> ClientFrames::text_payload() {
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, waiting().size()));
  const auto before = text_.size();
  text_.append(waiting().substr(0, count));
  apply_mask(text_.data() + before, count, mask_, at_);
  used_ += count;
  at_ = (at_ + count) % mask_.size();
  left_ -= count;
  if (left_ > 0) return std::nullopt;
  in_payload_ = false;
  if (!final_) return std::nullopt;
  message_ = Opcode::continuation;
  if (!http::is_valid_utf8(text_)) return fail(kInvalidUtf8);
  Piece out;
  out.kind = Piece::Kind::text;
  out.bytes = std::exchange(text_, {});
  if (fragments_ == 1) out.own_mask = mask_;
  return out;
}

void FrameBoundaries::pass(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
    left_ -= skipped;
    bytes.remove_prefix(skipped);
    if (bytes.empty()) return;
    head_ += bytes.front();
    bytes.remove_prefix(1);
    if (head_.size() < 2) continue;
    const auto second = byte_at(head_, 1);
    const auto extended = length_bytes(second);
    const std::size_t size = 2 + extended + ((second & kMasked) != 0 ? sizeof(MaskKey) : 0);
    if (head_.size() < size) continue;
    left_ = extended == 0 ? second & kLength : big_endian(std::string_view{head_}.substr(2, extended));
    head_.clear();
  }
}

std::string client_frame(Opcode opcode, std::string_view payload, const MaskKey& key) {
  auto out = frame_head(opcode, payload.size(), true);
  for (const auto byte : key) out += static_cast<char>(byte);
  const auto begin = out.size();
  out.append(payload);
  apply_mask(out.data() + begin, payload.size(), key, 0);
  return out;
}

MaskKey random_mask() {
  MaskKey out{};
  RAND_bytes(out.data(), static_cast<int>(out.size()));
  return out;
}

std::string close_for_server(CloseCode code, std::string_view reason) {
  return client_frame(Opcode::close, close_payload(code, reason), random_mask());
}

std::string close_for_client(CloseCode code, std::string_view reason) {
  const auto payload = close_payload(code, reason);
  return frame_head(Opcode::close, payload.size(), false) + payload;
}

}  // namespace openshell::egress::websocket
