#include "egress/http/body.hpp"

#include <gmock/gmock.h>

namespace openshell::egress::http {
namespace {

using testing::HasSubstr;
using Kind = Framing::Kind;

std::string framing_of(const std::string& fields, const std::string& version = "1.1") {
  const auto head = parse_request_head("POST / HTTP/" + version + "\r\nHost: a.test\r\n" + fields + "\r\n");
  EXPECT_TRUE(head.ok()) << head.status();
  const auto framing = request_framing(*head);
  if (!framing.ok()) return "refused";
  return framing->kind == Kind::kChunked ? "chunked" : framing->kind == Kind::kLength ? std::to_string(framing->length) : "none";
}

TEST(HttpBody, L7_FramingIsUnambiguousOrRefused) {
  EXPECT_EQ(framing_of(""), "none");
  EXPECT_EQ(framing_of("Content-Length: 5\r\n"), "5");
  EXPECT_EQ(framing_of("Content-Length: 5\r\nContent-Length: 5\r\n"), "5");
  EXPECT_EQ(framing_of("Transfer-Encoding: Chunked\r\n"), "chunked");
  for (const char* bad : {"Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: +5\r\n", "Content-Length: -5\r\n",
                          "Content-Length: 0x5\r\n", "Content-Length: 5 5\r\n", "Content-Length: 5, 5\r\n", "Content-Length:\r\n",
                          "Content-Length: 18446744073709551616\r\n", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                          "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked, chunked\r\n",
                          "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n",
                          "Transfer-Encoding:\r\n", "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: chunked;q=1\r\n"}) {
    EXPECT_EQ(framing_of(bad), "refused") << bad;
  }
  EXPECT_EQ(framing_of("Transfer-Encoding: chunked\r\n", "1.0"), "refused");
}

Kind response_kind(int status, const std::string& fields, const std::string& method = "GET") {
  const auto head = parse_response_head("HTTP/1.1 " + std::to_string(status) + " x\r\n" + fields + "\r\n");
  return response_framing(*head, method)->kind;
}

TEST(HttpBody, ResponsesWithoutBody) {
  EXPECT_EQ(response_kind(200, "Content-Length: 9\r\n", "HEAD"), Kind::kNone);
  EXPECT_EQ(response_kind(204, ""), Kind::kNone);
  EXPECT_EQ(response_kind(304, "Content-Length: 9\r\n"), Kind::kNone);
  EXPECT_EQ(response_kind(100, ""), Kind::kNone);
  EXPECT_EQ(response_kind(200, ""), Kind::kUntilClose);
  EXPECT_EQ(response_kind(200, "Transfer-Encoding: chunked\r\n"), Kind::kChunked);
}

/// The same bytes in one piece and byte by byte must end at the same place.
absl::StatusOr<std::size_t> read_all(const std::string& bytes, ChunkedReader::Side side = ChunkedReader::Side::kRequest) {
  ChunkedReader whole{side};
  const auto at_once = whole.consume(bytes);
  ChunkedReader pieces{side};
  std::size_t used = 0;
  absl::Status failed;
  for (const char c : bytes) {
    if (pieces.done()) break;
    const auto step = pieces.consume(std::string_view{&c, 1});
    if (!step.ok()) {
      failed = step.status();
      break;
    }
    used += *step;
  }
  EXPECT_EQ(at_once.ok(), failed.ok());
  if (at_once.ok()) {
    EXPECT_EQ(*at_once, used);
    EXPECT_EQ(whole.done(), pieces.done());
  }
  return whole.done() || !at_once.ok() ? at_once : absl::StatusOr<std::size_t>{absl::OutOfRangeError("incomplete")};
}

TEST(HttpBody, L7_ChunksEndWhereTheyEnd) {
  EXPECT_EQ(read_all("0\r\n\r\n").value(), 5U);
  EXPECT_EQ(read_all("5\r\nhello\r\n0\r\n\r\nGET /next").value(), 15U);
  EXPECT_EQ(read_all("5;ext=\"v\"\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n").value(), 33U);
  EXPECT_TRUE(read_all("5 ;ext\r\nhello\r\n0\r\n\r\n").ok());  // the one place for a blank
  EXPECT_EQ(read_all("A\r\n0123456789\r\n0\r\n\r\n").value(), 20U);
  EXPECT_TRUE(absl::IsOutOfRange(read_all("5\r\nhel").status()));
}

TEST(HttpBody, L7_ChunksThatTwoReadersCouldReadDifferentlyAreRefused) {
  for (const char* bad : {"5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n",
                          "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "\r\nhello\r\n", ";x\r\n", "5 5\r\nhello\r\n", "g\r\n",
                          "10000000000000000\r\n", "5 \r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5\rhello",
                          "0\r\nbroken\r\n\r\n", "0\r\nX : y\r\n\r\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(read_all(bad).status())) << bad;
  }
}

TEST(HttpBody, L7_TrailersThatSteerAreRefusedInRequests) {
  for (const char* name :
       {"Authorization", "content-length", "Cookie", "Host", "Transfer-Encoding", "X-Amz-Date", "X-OpenShell-Credential-A"}) {
    const auto bytes = "0\r\n" + std::string{name} + ": x\r\n\r\n";
    EXPECT_FALSE(read_all(bytes).ok()) << name;
    EXPECT_TRUE(read_all(bytes, ChunkedReader::Side::kResponse).ok()) << name;
  }
}

TEST(HttpBody, L7_LinesAndTrailersAtTheirLimits) {
  const auto line = [](std::size_t length) { return "1;" + std::string(length - 2, 'x') + "\r\na\r\n0\r\n\r\n"; };
  EXPECT_TRUE(read_all(line(kMaxChunkLineBytes - 1)).ok());
  EXPECT_THAT(std::string{read_all(line(kMaxChunkLineBytes + 1)).status().message()}, HasSubstr("exceeds limit"));
  std::string trailers = "0\r\n";
  for (std::size_t i = 0; i < kMaxTrailerFields; ++i) trailers += "a: b\r\n";
  EXPECT_TRUE(read_all(trailers + "\r\n").ok());
  EXPECT_FALSE(read_all(trailers + "a: b\r\n\r\n").ok());
  EXPECT_FALSE(read_all("0\r\na: " + std::string(kMaxTrailerBytes, 'x') + "\r\n\r\n").ok());
}

}  // namespace
}  // namespace openshell::egress::http
