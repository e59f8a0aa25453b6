// Plain HTTP/1.1 answers of the gateway: small, without bodies worth streaming.
#pragma once

#include <functional>
#include <string>

namespace openshell::api {

struct HttpRequest {
  std::string method;
  std::string target;  ///< path and query as sent
  std::string host;
};
struct HttpAnswer {
  int status = 404;
  std::string content_type = "application/json";
  std::string body;  ///< empty: no body, no content type
};
/// Called on the front's thread; must not block.
using HttpHandler = std::function<HttpAnswer(const HttpRequest&)>;

constexpr std::size_t kMaxHttpHeaderBytes = 16 * 1024;
constexpr std::size_t kMaxHttpBodyBytes = 64 * 1024;
constexpr int kHttpIdleSeconds = 30;

}  // namespace openshell::api
