#include "egress/http/body.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace openshell::egress::http {
namespace {

absl::Status bad(const char* text) { return absl::InvalidArgumentError(text); }

constexpr std::array<std::string_view, 9> kRefusedTrailers = {
    "authorization", "content-length", "cookie", "host", "proxy-authorization", "te", "trailer", "x-amz-*", "transfer-encoding"};

bool refused_trailer(std::string_view name) {
  const auto begins = [&](std::string_view prefix) {
    return name.size() >= prefix.size() && equal_ignoring_case(name.substr(0, prefix.size()), prefix);
  };
  return begins("x-amz-") || begins("x-openshell-credential") ||
         std::any_of(kRefusedTrailers.begin(), kRefusedTrailers.end(), [&](auto refused) { return equal_ignoring_case(name, refused); });
}

/// Equal repetitions count as one, as separate fields and within one (RFC 9110 section 8.6).
absl::StatusOr<std::optional<std::uint64_t>> content_length(const Fields& fields) {
  std::optional<std::uint64_t> out;
  for (const auto value : fields.values("content-length")) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || error != std::errc{} || end != value.data() + value.size()) return bad("Content-Length is not a number");
    if (out && *out != number) return bad("several Content-Length values differ");
    out = number;
  }
  return out;
}

absl::StatusOr<Framing> declared(const Fields& fields, int minor_version, Framing absent) {
  const auto length = content_length(fields);
  if (!length.ok()) return length.status();
  const auto codings = fields.values("transfer-encoding");
  if (codings.empty()) return *length ? Framing{Framing::Kind::kLength, **length} : absent;
  if (*length) return bad("both Transfer-Encoding and Content-Length are present");
  if (codings.size() != 1 || !equal_ignoring_case(codings.front(), "chunked")) return bad("Transfer-Encoding is not exactly 'chunked'");
  if (minor_version == 0) return bad("a chunked body is not possible in HTTP/1.0");
  return Framing{Framing::Kind::kChunked, 0};
}

}  // namespace

absl::StatusOr<Framing> request_framing(const RequestHead& head) { return declared(head.fields, head.minor_version, Framing{}); }

absl::StatusOr<Framing> response_framing(const ResponseHead& head, std::string_view method) {
  const Framing until_close{Framing::Kind::kUntilClose, 0};
  auto framing = declared(head.fields, head.minor_version, until_close);
  if (!framing.ok()) return framing;
  if (method == "HEAD" || head.status == 204 || head.status == 304 || head.status / 100 == 1) return Framing{};
  return framing;
}

absl::StatusOr<std::size_t> ChunkedReader::take_line(std::string_view bytes, std::size_t limit, const char* over_limit) {
  line_complete_ = false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const bool after_cr = !line_.empty() && line_.back() == '\r';
    if (c == '\n') {
      if (!after_cr) return bad("chunked body contains a bare LF");
      line_.pop_back();
      line_complete_ = true;
      return i + 1;
    }
    if (after_cr) return bad("chunked body contains a bare CR");
    const auto byte = static_cast<unsigned char>(c);
    if (c != '\r' && c != '\t' && (byte < 0x20 || byte == 0x7f)) return bad("chunked body line contains a control byte");
    if (line_.size() == limit) return bad(over_limit);
    line_.push_back(c);
  }
  return bytes.size();
}

absl::Status ChunkedReader::size_line() {
  std::string_view token{line_};
  // Blanks may stand before the `;` of an extension and nowhere else (RFC 9112 section 7.1): readers differ on any other.
  if (const auto extension = token.find(';'); extension != std::string_view::npos) {
    token = token.substr(0, extension);
    while (!token.empty() && (token.back() == ' ' || token.back() == '\t')) token.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), left_, 16);
  if (token.empty() || token.front() == '-' || error != std::errc{} || end != token.data() + token.size())
    return bad("chunk size is not a hexadecimal number");
  state_ = left_ == 0 ? State::kTrailer : State::kData;
  return absl::OkStatus();
}

absl::Status ChunkedReader::trailer_line() {
  if (line_.empty()) {
    state_ = State::kDone;
    return absl::OkStatus();
  }
  trailer_bytes_ += line_.size() + 2;
  if (trailer_bytes_ > kMaxTrailerBytes) return bad("trailers exceed their limit");
  if (++trailer_fields_ > kMaxTrailerFields) return bad("too many trailer fields");
  const std::string_view line{line_};
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return bad("trailer field is malformed");
  if (side_ == Side::kRequest && refused_trailer(line.substr(0, colon))) return bad("trailer field is not allowed in a trailer section");
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> ChunkedReader::consume(std::string_view bytes, std::string* data) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::kDone) {
    const auto rest = bytes.substr(used);
    if (state_ == State::kData) {
      const auto step = static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest.size()));
      if (data != nullptr) data->append(rest.substr(0, step));
      used += step;
      left_ -= step;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    const bool trailer = state_ == State::kTrailer;
    auto step = take_line(rest, trailer ? kMaxTrailerBytes : kMaxChunkLineBytes,
                          trailer ? "trailers exceed their limit" : "chunked request line exceeds limit");
    if (!step.ok()) return step;
    used += *step;
    if (!line_complete_) continue;
    absl::Status status;
    if (trailer) {
      status = trailer_line();
    } else if (state_ == State::kSizeLine) {
      status = size_line();
    } else if (line_.empty()) {
      state_ = State::kSizeLine;
    } else {
      status = bad("chunk is longer than its size");
    }
    if (!status.ok()) return status;
    line_.clear();
  }
  return used;
}

}  // namespace openshell::egress::http
