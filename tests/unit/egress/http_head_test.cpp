#include "egress/http/head.hpp"

#include <gmock/gmock.h>

namespace openshell::egress::http {
namespace {

using testing::HasSubstr;

struct Refused {
  const char* name;
  std::string head;
  const char* text;
};

std::string head_of(const std::string& fields, const std::string& line = "GET / HTTP/1.1") { return line + "\r\n" + fields + "\r\n"; }

// The smuggling table: what two readers could understand differently is not understood at all.
TEST(HttpHead, L7_AmbiguousHeadsAreRefused) {
  const std::vector<Refused> table = {
      {"two spaces", head_of("Host: a.test\r\n", "GET  / HTTP/1.1"), "request line must be exactly"},
      {"tab", head_of("Host: a.test\r\n", "GET\t/ HTTP/1.1"), "request line must be exactly"},
      {"no target", head_of("Host: a.test\r\n", "GET HTTP/1.1"), "request line must be exactly"},
      {"trailing space", head_of("Host: a.test\r\n", "GET / HTTP/1.1 "), "request line must be exactly"},
      {"bad method", head_of("Host: a.test\r\n", "G(T / HTTP/1.1"), "method is not a valid HTTP token"},
      {"space in target", head_of("Host: a.test\r\n", "GET /a b HTTP/1.1"), "whitespace or a control byte"},
      {"version 2", head_of("Host: a.test\r\n", "GET / HTTP/2.0"), "Unsupported HTTP version: HTTP/2.0"},
      {"version 1.2", head_of("Host: a.test\r\n", "GET / HTTP/1.2"), "Unsupported HTTP version"},
      {"obs-fold", head_of("Host: a.test\r\nX: a\r\n b\r\n"), "continuation lines are not supported"},
      {"no colon", head_of("Host: a.test\r\nX\r\n"), "missing ':'"},
      {"space before colon", head_of("Host: a.test\r\nTransfer-Encoding : chunked\r\n"), "whitespace before ':'"},
      {"empty name", head_of("Host: a.test\r\n: x\r\n"), "not a valid HTTP token"},
      {"bad name", head_of("Host: a.test\r\nX@Y: x\r\n"), "not a valid HTTP token"},
      {"NUL in value", head_of(std::string{"Host: a.test\r\nX: a\0b\r\n", 22}), "invalid control byte"},
      {"CR in value", head_of("Host: a.test\r\nX: a\rb\r\n"), "invalid control byte"},
      {"empty option", head_of("Host: a.test\r\nConnection: close,\r\n"), "invalid option token"},
      {"nominates host", head_of("Host: a.test\r\nConnection: Host\r\n"), "framing or routing field"},
      {"nominates length", head_of("Host: a.test\r\nConnection: close, Content-Length\r\n"), "framing or routing field"},
      {"nominates coding", head_of("Host: a.test\r\nConnection: transfer-encoding\r\n"), "framing or routing field"},
      {"no host", head_of("X: y\r\n"), "missing a Host header"},
      {"two hosts", head_of("Host: a.test\r\nhost: a.test\r\n"), "multiple Host headers"},
      {"bad host", head_of("Host: a.test/x\r\n"), "invalid authority"},
      {"userinfo", head_of("Host: u@a.test\r\n"), "invalid authority"},
      {"port 0", head_of("Host: a.test:0\r\n"), "invalid authority"},
      {"hex address", head_of("Host: 0x7f000001\r\n"), "invalid authority"},
      {"absolute differs", head_of("Host: b.test\r\n", "GET http://a.test/ HTTP/1.1"), "does not match the Host header"},
      {"utf-8", head_of("Host: a.test\r\nX: \xff\r\n"), "invalid UTF-8"},
  };
  for (const auto& row : table) {
    const auto parsed = parse_request_head(row.head);
    ASSERT_FALSE(parsed.ok()) << row.name;
    EXPECT_THAT(std::string{parsed.status().message()}, HasSubstr(row.text)) << row.name;
  }
}

TEST(HttpHead, OrdinaryHeadsAreRead) {
  const auto parsed = parse_request_head(head_of("Host: A.test:443\r\nX-A:  b \r\nAccept: */*\r\n", "PROPFIND /x?y=1 HTTP/1.1"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->method, "PROPFIND");
  EXPECT_EQ(parsed->target, "/x?y=1");
  EXPECT_EQ(parsed->fields.first("x-a"), "b");
  EXPECT_TRUE(parse_request_head(head_of("", "GET / HTTP/1.0")).ok());
  EXPECT_TRUE(parse_request_head(head_of("Host: a.test:80\r\n", "GET http://A.test./p HTTP/1.1")).ok());
  EXPECT_TRUE(parse_request_head(head_of("Host: [::1]:8080\r\n")).ok());
}

TEST(HttpHead, L7_LengthEndsAtTheEmptyLineAndAtTheLimit) {
  EXPECT_EQ(head_length("GET / HTTP/1.1\r\nA: b\r\n").value(), std::nullopt);
  EXPECT_EQ(head_length("GET / HTTP/1.1\r\n\r\nnext").value(), 18U);
  EXPECT_THAT(std::string{head_length("GET / HTTP/1.1\nHost: a\n\n").status().message()}, HasSubstr("bare LF"));
  const std::string start = "GET / HTTP/1.1\r\nX: ";
  const std::string at_limit = start + std::string(kMaxHeadBytes - start.size() - 4, 'a') + "\r\n\r\n";
  EXPECT_EQ(head_length(at_limit).value(), kMaxHeadBytes);
  const std::string beyond = start + std::string(kMaxHeadBytes - start.size() - 3, 'a') + "\r\n\r\n";
  EXPECT_THAT(std::string{head_length(beyond).status().message()}, HasSubstr("exceed 16384 bytes"));
  EXPECT_FALSE(head_length(std::string(kMaxHeadBytes, 'a')).ok());
}

TEST(HttpHead, L7_MoreThan256FieldsAre431) {
  std::string fields = "Host: a.test\r\n";
  for (std::size_t i = 1; i < kMaxFields; ++i) fields += "A: b\r\n";
  EXPECT_TRUE(parse_request_head(head_of(fields)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(parse_request_head(head_of(fields + "A: b\r\n")).status()));
}

TEST(HttpHead, ResponseHeads) {
  const auto parsed = parse_response_head("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->status, 404);
  EXPECT_EQ(parsed->reason, "Not Found");
  EXPECT_TRUE(parse_response_head("HTTP/1.1 200\r\n\r\n").ok());
  for (const char* bad : {"HTTP/2 200\r\n\r\n", "HTTP/1.1 20\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 2000\r\n\r\n",
                          "ICY 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n"}) {
    EXPECT_FALSE(parse_response_head(bad).ok()) << bad;
  }
}

TEST(HttpHead, HopFieldsStay) {
  auto parsed = parse_request_head(head_of("Host: a.test\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nX-Keep: 2\r\nUpgrade: h2c\r\n"));
  ASSERT_TRUE(parsed.ok());
  strip_hop_fields(parsed->fields);
  EXPECT_EQ(write_head(*parsed), "GET / HTTP/1.1\r\nHost: a.test\r\nX-Keep: 2\r\n\r\n");
}

}  // namespace
}  // namespace openshell::egress::http
