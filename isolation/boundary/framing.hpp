// Frames inside the byte streams of the channel, with incremental decoders. A decoder takes bytes as they come, in any pieces, and hands
// out whole frames; it refuses a frame by its header, before the payload is stored. No I/O, no thread of its own; one decoder belongs to
// one direction.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openshell::boundary {

inline constexpr std::size_t kMaxControlFrameBytes = 1'048'576;  ///< JSON of one request or response
inline constexpr std::size_t kMaxProcessFrameBytes = 65'536;     ///< payload of one process I/O frame
inline constexpr std::size_t kMaxMediationJsonBytes = 262'144;   ///< JSON of one DNS frame
inline constexpr std::size_t kMaxChunkBytes = 16'384;            ///< what we put into one BoundaryChunk
inline constexpr std::size_t kMaxGrpcMessageBytes = 65'536;      ///< what gRPC accepts as one message, both directions

/// u32 big-endian length, then JSON. Empty or larger than kMaxControlFrameBytes: asserted, the caller made it.
[[nodiscard]] std::string encode_control_frame(std::string_view json);

/// A stream starts with one control frame; what follows it in the same bytes belongs to the stream that the request opened (`take_rest`).
class ControlFrameDecoder {
 public:
  /// InvalidArgument for a length of 0 or above kMaxControlFrameBytes; the decoder is dead afterwards.
  absl::Status append(std::string_view bytes);
  /// The JSON of the frame once it is whole; nullopt before, and after it was taken.
  std::optional<std::string> next();
  /// Bytes received behind the frames taken so far.
  std::string take_rest();

 private:
  std::string buffer_;
  bool taken_ = false;  // what comes now is no frame any more
  bool dead_ = false;
};

enum class Channel : std::uint8_t { stdin_data = 0, stdout_data = 1, stderr_data = 2, exit_status = 3, stdin_closed = 4, tcp_decision = 5 };

struct ProcessFrame {
  Channel channel = Channel::stdin_data;
  std::string payload;
  friend bool operator==(const ProcessFrame&, const ProcessFrame&) = default;
};

/// u8 channel, u32 big-endian length, payload of at most kMaxProcessFrameBytes (asserted).
[[nodiscard]] std::string encode_process_frame(Channel channel, std::string_view payload);

/// Header only (5 bytes), for a payload that is sent from its own buffer.
[[nodiscard]] std::string encode_process_frame_header(Channel channel, std::uint32_t length);

class ProcessFrameDecoder {
 public:
  /// InvalidArgument for an unknown channel, a length above kMaxProcessFrameBytes or a channel 4 with a payload; the decoder is dead
  /// afterwards.
  absl::Status append(std::string_view bytes);
  std::optional<ProcessFrame> next();
  /// True once a header was refused, be it in append() or, for a later frame of the same bytes, in next(): the stream must end.
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  /// Whole and partial bytes held, for back-pressure.
  [[nodiscard]] std::size_t buffered() const noexcept { return buffer_.size() - start_; }
  /// Bytes behind the frames taken so far: after a channel-5 decision they are the relay's.
  std::string take_rest();

 private:
  absl::Status check_header() const;
  std::string buffer_;
  std::size_t start_ = 0;
  bool dead_ = false;
};

/// Frames of `Mediate` after `mediation_ready`.
enum class MediationKind : std::uint8_t { dns_question = 5, dns_answer = 6 };

struct MediationFrame {
  MediationKind kind = MediationKind::dns_question;
  std::uint64_t stream_id = 0;  ///< the sandbox's, never reused in a generation
  std::string json;
  friend bool operator==(const MediationFrame&, const MediationFrame&) = default;
};

/// u8 kind, u64 big-endian stream id, u32 big-endian length, JSON of at most kMaxMediationJsonBytes (asserted).
[[nodiscard]] std::string encode_mediation_frame(const MediationFrame& frame);

class MediationFrameDecoder {
 public:
  /// InvalidArgument for an unknown kind, a length of 0 or above kMaxMediationJsonBytes; the decoder is dead afterwards.
  absl::Status append(std::string_view bytes);
  std::optional<MediationFrame> next();
  /// As of ProcessFrameDecoder.
  [[nodiscard]] bool dead() const noexcept { return dead_; }

 private:
  absl::Status check_header() const;
  std::string buffer_;
  std::size_t start_ = 0;
  bool dead_ = false;
};

}  // namespace openshell::boundary
