// Where the body of an HTTP/1.1 message ends (RFC 9112 sections 6 and 7). Pure; bodies pass through verbatim and are never stored here.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "egress/http/head.hpp"

namespace openshell::egress::http {

inline constexpr std::size_t kMaxChunkLineBytes = 8192;  ///< one chunk-size line, extensions included
inline constexpr std::size_t kMaxTrailerBytes = 16384;   ///< trailer section
inline constexpr std::size_t kMaxTrailerFields = 128;

struct Framing {
  enum class Kind : std::uint8_t { kNone, kLength, kChunked, kUntilClose };
  Kind kind = Kind::kNone;
  std::uint64_t length = 0;  ///< bytes, for kLength
};

absl::StatusOr<Framing> request_framing(const RequestHead& head);
/// `method` is that of the request this answers.
absl::StatusOr<Framing> response_framing(const ResponseHead& head, std::string_view method);

/// Follows a chunked body over any split of its bytes.
class ChunkedReader {
 public:
  enum class Side : std::uint8_t { kRequest, kResponse };  ///< trailer names are refused in requests only
  explicit ChunkedReader(Side side) : side_{side} {}

  /// How many leading bytes of `bytes` belong to this body. Fewer than given: the body is complete and the rest is the next message.
  /// `data` not null: what the chunks carry is appended to it.
  absl::StatusOr<std::size_t> consume(std::string_view bytes, std::string* data = nullptr);
  [[nodiscard]] bool done() const noexcept { return state_ == State::kDone; }

 private:
  enum class State : std::uint8_t { kSizeLine, kData, kDataEnd, kTrailer, kDone };
  absl::StatusOr<std::size_t> take_line(std::string_view bytes, std::size_t limit, const char* over_limit);
  absl::Status size_line();
  absl::Status trailer_line();

  Side side_;
  State state_ = State::kSizeLine;
  std::string line_;  ///< what came of the current line
  bool line_complete_ = false;
  std::uint64_t left_ = 0;  ///< data bytes of the current chunk still to come
  std::size_t trailer_bytes_ = 0;
  std::size_t trailer_fields_ = 0;
};

}  // namespace openshell::egress::http
