#include "api/client_hello.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace openshell::api {
namespace {

using Bytes = std::span<const unsigned char>;

constexpr unsigned char kHandshakeRecord = 22;
constexpr unsigned char kClientHello = 1;
constexpr unsigned kAlpnExtension = 16;
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::array<std::string_view, 9> kMethods{"GET ", "POST ", "PUT ", "PATCH ", "DELETE ", "HEAD ", "OPTIONS ", "TRACE ", "CONNECT "};

/// Reads big-endian numbers and length-prefixed parts; once something does not fit, it stays failed.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_{bytes} {}
  unsigned number(std::size_t width) {
    const Bytes part = take(width);
    unsigned value = 0;
    for (const unsigned char byte : part) value = value << 8 | byte;
    return value;
  }
  Bytes take(std::size_t size) {
    if (size > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    const Bytes part = rest_.first(size);
    rest_ = rest_.subspan(size);
    return part;
  }
  Bytes vector(std::size_t width) { return take(number(width)); }
  [[nodiscard]] bool empty() const { return rest_.empty(); }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  Bytes rest_;
  bool failed_ = false;
};

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Opening from_alpn(Bytes list) {
  Reader names{Reader{list}.vector(2)};
  bool h2 = false;
  bool http1 = false;
  while (!names.empty()) {
    const auto name = as_text(names.vector(1));
    h2 = h2 || name == "h2";
    http1 = http1 || name == "http/1.1";
  }
  if (names.failed()) return Opening::kUnknown;
  return h2 && !http1 ? Opening::kGrpcTls : Opening::kHttpTls;
}

/// The body of a ClientHello message, whole.
Opening from_hello(Bytes body) {
  Reader hello{body};
  hello.take(2 + 32);  // version, random
  hello.vector(1);     // session id
  hello.vector(2);     // cipher suites
  hello.vector(1);     // compression methods
  if (hello.failed()) return Opening::kUnknown;
  if (hello.empty()) return Opening::kHttpTls;  // no extensions at all
  Reader extensions{hello.vector(2)};
  while (!extensions.empty()) {
    const unsigned type = extensions.number(2);
    const Bytes content = extensions.vector(2);
    if (extensions.failed()) return Opening::kUnknown;
    if (type == kAlpnExtension) return from_alpn(content);
  }
  return hello.failed() ? Opening::kUnknown : Opening::kHttpTls;
}

Opening from_tls(Bytes bytes) {
  std::string message;  // handshake bytes of the records so far
  Reader records{bytes};
  while (true) {
    if (message.size() >= 4) {
      const Bytes whole{reinterpret_cast<const unsigned char*>(message.data()), message.size()};
      if (whole[0] != kClientHello) return Opening::kUnknown;
      const std::size_t size = static_cast<std::size_t>(whole[1]) << 16 | static_cast<std::size_t>(whole[2]) << 8 | whole[3];
      if (size + 4 > kMaxClientHelloBytes) return Opening::kUnknown;
      if (whole.size() >= size + 4) return from_hello(whole.subspan(4, size));
    }
    if (records.empty()) break;
    const unsigned type = records.number(1);
    const unsigned major = records.number(1);
    records.number(1);
    const unsigned size = records.number(2);
    if (records.failed()) break;
    if (type != kHandshakeRecord || major != 3 || size == 0) return Opening::kUnknown;
    const Bytes fragment = records.take(size);
    if (records.failed()) break;
    message += as_text(fragment);
  }
  return bytes.size() >= kMaxClientHelloBytes ? Opening::kUnknown : Opening::kNeedMore;
}

}  // namespace

Opening classify(std::span<const unsigned char> bytes) {
  if (bytes.empty()) return Opening::kNeedMore;
  if (bytes[0] == kHandshakeRecord) {
    if (bytes.size() < 3) return Opening::kNeedMore;
    return bytes[1] == 3 ? from_tls(bytes) : Opening::kUnknown;
  }
  const auto text = as_text(bytes);
  if (text.starts_with(kPreface)) return Opening::kHttp2;
  if (kPreface.starts_with(text)) return Opening::kNeedMore;
  for (const auto method : kMethods) {
    if (text.starts_with(method)) return Opening::kHttp1;
    if (method.starts_with(text)) return Opening::kNeedMore;
  }
  return Opening::kUnknown;
}

}  // namespace openshell::api
