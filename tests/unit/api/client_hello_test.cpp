#include "api/client_hello.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace openshell::api {
namespace {

std::string number(std::size_t value, int width) {
  std::string out;
  for (int i = width - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}
std::string sized(const std::string& content, int width) { return number(content.size(), width) + content; }

/// A ClientHello as RFC 8446 section 4.1.2 lays it out; empty list: no ALPN extension.
std::string hello(const std::vector<std::string>& protocols, const std::string& more_extensions = "") {
  std::string list;
  for (const auto& protocol : protocols) list += sized(protocol, 1);
  std::string extensions = more_extensions;
  if (!protocols.empty()) extensions += number(16, 2) + sized(sized(list, 2), 2);
  const std::string body =
      "\x03\x03" + std::string(32, 'r') + sized("session", 1) + sized("\x13\x01", 2) + sized(std::string{'\0'}, 1) + sized(extensions, 2);
  return std::string{"\x01"} + sized(body, 3);
}
std::string record(const std::string& fragment) { return std::string{"\x16\x03\x01"} + sized(fragment, 2); }
Opening look(const std::string& bytes) { return classify({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()}); }

TEST(ClientHello, H2AloneIsGrpcAnythingElseIsHttp) {
  EXPECT_EQ(look(record(hello({"h2"}))), Opening::kGrpcTls);
  EXPECT_EQ(look(record(hello({"grpc-exp", "h2"}))), Opening::kGrpcTls);
  EXPECT_EQ(look(record(hello({"h2", "http/1.1"}))), Opening::kHttpTls);
  EXPECT_EQ(look(record(hello({"http/1.1"}))), Opening::kHttpTls);
  EXPECT_EQ(look(record(hello({}))), Opening::kHttpTls);
}

TEST(ClientHello, EveryPrefixNeedsMoreAndSplitRecordsAreFollowed) {
  const std::string message = hello({"h2"});
  const std::string whole = record(message);
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_EQ(look(whole.substr(0, size)), Opening::kNeedMore) << size;
  for (std::size_t cut = 1; cut < message.size(); cut += 7) {
    EXPECT_EQ(look(record(message.substr(0, cut)) + record(message.substr(cut))), Opening::kGrpcTls) << cut;
  }
}

TEST(ClientHello, LargeOnesUpToTheBound) {
  const auto padded = [](std::size_t size) { return hello({"h2"}, number(21, 2) + sized(std::string(size, '\0'), 2)); };
  const std::string fits = padded(15'000);
  ASSERT_LT(fits.size() + 10, kMaxClientHelloBytes);
  EXPECT_EQ(look(record(fits.substr(0, 8000)) + record(fits.substr(8000))), Opening::kGrpcTls);
  const std::string large = padded(17'000);
  EXPECT_EQ(look(record(large.substr(0, 16'000))), Opening::kUnknown);
}

TEST(ClientHello, DamagedLengthsAreUnknownNotRead) {
  const std::string whole = record(hello({"h2", "http/1.1"}));
  for (std::size_t i = 5; i < whole.size(); ++i) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[i] = value;
      (void)look(damaged);  // any answer, no read beyond the end (run under ASan)
    }
  }
  EXPECT_EQ(look(record(std::string{"\x02"} + hello({"h2"}).substr(1))), Opening::kUnknown);
  EXPECT_EQ(look(std::string{"\x16\x02\x01", 3}), Opening::kUnknown);
  EXPECT_EQ(look(record("")), Opening::kUnknown);
}

TEST(Plaintext, ThePrefaceIsHttp2MethodsAreHttp1) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  EXPECT_EQ(look(preface), Opening::kHttp2);
  for (std::size_t size = 1; size < preface.size(); ++size) EXPECT_EQ(look(preface.substr(0, size)), Opening::kNeedMore);
  EXPECT_EQ(look("GET / HTTP/1.1"), Opening::kHttp1);
  EXPECT_EQ(look("OPTIONS * "), Opening::kHttp1);
  EXPECT_EQ(look("P"), Opening::kNeedMore);
  EXPECT_EQ(look("PRI * HTTP/1.1"), Opening::kUnknown);
  EXPECT_EQ(look("SSH-2.0-x"), Opening::kUnknown);
}

}  // namespace
}  // namespace openshell::api
