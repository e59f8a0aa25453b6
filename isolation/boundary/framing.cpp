#include "isolation/boundary/framing.hpp"

#include <cassert>

namespace openshell::boundary {
namespace {

constexpr std::size_t kProcessHeader = 5;
constexpr std::size_t kMediationHeader = 13;
constexpr std::size_t kCompactAbove = 65'536;

void append_u32(std::string& out, std::uint32_t n) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((n >> shift) & 0xff);
}

std::uint64_t read_big_endian(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < count; ++i) n = n << 8 | static_cast<unsigned char>(bytes[at + i]);
  return n;
}

/// Consumed bytes are dropped only now and then, so that many small frames in one buffer cost no quadratic copying.
void compact(std::string& buffer, std::size_t& start) {
  if (start == buffer.size()) {
    buffer.clear();
    start = 0;
  } else if (start > kCompactAbove) {
    buffer.erase(0, start);
    start = 0;
  }
}

}  // namespace

std::string encode_control_frame(std::string_view json) {
  assert(!json.empty() && json.size() <= kMaxControlFrameBytes);
  std::string out;
  out.reserve(4 + json.size());
  append_u32(out, static_cast<std::uint32_t>(json.size()));
  out.append(json);
  return out;
}

absl::Status ControlFrameDecoder::append(std::string_view bytes) {
  if (dead_) return absl::InvalidArgumentError("control stream already refused");
  buffer_.append(bytes);
  if (!taken_ && buffer_.size() >= 4) {
    const std::uint64_t length = read_big_endian(buffer_, 0, 4);
    if (length == 0 || length > kMaxControlFrameBytes) {
      dead_ = true;
      buffer_.clear();
      return absl::InvalidArgumentError("control frame length out of range 1..1048576");
    }
  }
  return absl::OkStatus();
}

std::optional<std::string> ControlFrameDecoder::next() {
  if (dead_ || taken_ || buffer_.size() < 4) return std::nullopt;
  const std::size_t length = read_big_endian(buffer_, 0, 4);
  if (buffer_.size() - 4 < length) return std::nullopt;
  std::string json = buffer_.substr(4, length);
  buffer_.erase(0, 4 + length);
  taken_ = true;
  return json;
}

std::string ControlFrameDecoder::take_rest() { return std::exchange(buffer_, {}); }

std::string encode_process_frame_header(Channel channel, std::uint32_t length) {
  assert(length <= kMaxProcessFrameBytes);
  std::string out;
  out += static_cast<char>(channel);
  append_u32(out, length);
  return out;
}

std::string encode_process_frame(Channel channel, std::string_view payload) {
  std::string out = encode_process_frame_header(channel, static_cast<std::uint32_t>(payload.size()));
  out.append(payload);
  return out;
}

absl::Status ProcessFrameDecoder::check_header() const {
  if (buffered() == 0) return absl::OkStatus();
  const auto channel = static_cast<unsigned char>(buffer_[start_]);
  if (channel > static_cast<unsigned char>(Channel::tcp_decision)) return absl::InvalidArgumentError("unknown channel in a process frame");
  if (buffered() < kProcessHeader) return absl::OkStatus();
  const std::uint64_t length = read_big_endian(buffer_, start_ + 1, 4);
  if (length > kMaxProcessFrameBytes) return absl::InvalidArgumentError("process frame longer than 65536 bytes");
  if (channel == static_cast<unsigned char>(Channel::stdin_closed) && length != 0) {
    return absl::InvalidArgumentError("process frame of channel 4 carries bytes");
  }
  return absl::OkStatus();
}

absl::Status ProcessFrameDecoder::append(std::string_view bytes) {
  if (dead_) return absl::InvalidArgumentError("process stream already refused");
  compact(buffer_, start_);
  buffer_.append(bytes);
  const absl::Status status = check_header();
  dead_ = !status.ok();
  return status;
}

std::optional<ProcessFrame> ProcessFrameDecoder::next() {
  if (dead_ || buffered() < kProcessHeader) return std::nullopt;
  if (!check_header().ok()) {  // the header of a later frame of the same bytes
    dead_ = true;
    return std::nullopt;
  }
  const std::size_t length = read_big_endian(buffer_, start_ + 1, 4);
  if (buffered() - kProcessHeader < length) return std::nullopt;
  ProcessFrame frame{static_cast<Channel>(buffer_[start_]), buffer_.substr(start_ + kProcessHeader, length)};
  start_ += kProcessHeader + length;
  return frame;
}

std::string ProcessFrameDecoder::take_rest() {
  std::string rest = buffer_.substr(start_);
  buffer_.clear();
  start_ = 0;
  return rest;
}

std::string encode_mediation_frame(const MediationFrame& frame) {
  assert(!frame.json.empty() && frame.json.size() <= kMaxMediationJsonBytes);
  std::string out;
  out.reserve(kMediationHeader + frame.json.size());
  out += static_cast<char>(frame.kind);
  append_u32(out, static_cast<std::uint32_t>(frame.stream_id >> 32));
  append_u32(out, static_cast<std::uint32_t>(frame.stream_id));
  append_u32(out, static_cast<std::uint32_t>(frame.json.size()));
  out.append(frame.json);
  return out;
}

absl::Status MediationFrameDecoder::check_header() const {
  const std::size_t held = buffer_.size() - start_;
  if (held == 0) return absl::OkStatus();
  const auto kind = static_cast<unsigned char>(buffer_[start_]);
  if (kind != static_cast<unsigned char>(MediationKind::dns_question) && kind != static_cast<unsigned char>(MediationKind::dns_answer)) {
    return absl::InvalidArgumentError("unknown kind of a mediation frame");
  }
  if (held < kMediationHeader) return absl::OkStatus();
  const std::uint64_t length = read_big_endian(buffer_, start_ + 9, 4);
  if (length == 0 || length > kMaxMediationJsonBytes) return absl::InvalidArgumentError("mediation frame length out of range 1..262144");
  return absl::OkStatus();
}

absl::Status MediationFrameDecoder::append(std::string_view bytes) {
  if (dead_) return absl::InvalidArgumentError("mediation stream already refused");
  compact(buffer_, start_);
  buffer_.append(bytes);
  const absl::Status status = check_header();
  dead_ = !status.ok();
  return status;
}

std::optional<MediationFrame> MediationFrameDecoder::next() {
  if (dead_ || buffer_.size() - start_ < kMediationHeader) return std::nullopt;
  if (!check_header().ok()) {
    dead_ = true;
    return std::nullopt;
  }
  const std::size_t length = read_big_endian(buffer_, start_ + 9, 4);
  if (buffer_.size() - start_ - kMediationHeader < length) return std::nullopt;
  MediationFrame frame{static_cast<MediationKind>(buffer_[start_]), read_big_endian(buffer_, start_ + 1, 8),
                       buffer_.substr(start_ + kMediationHeader, length)};
  start_ += kMediationHeader + length;
  return frame;
}

}  // namespace openshell::boundary
