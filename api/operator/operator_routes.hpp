// What the operator interface answers: requests in, answers out, no socket. [ACT-40, tables O1 to O7]
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "api/operator/actor_watch.hpp"
#include "api/operator/browser_access.hpp"

namespace openshell::api {

enum class Entrance : std::uint8_t { socket, browser, metrics };

struct OperatorRequest {
  Entrance entrance = Entrance::socket;
  std::string method, target;  ///< as sent
  std::string host, cookie, fetch_site;
};

struct OperatorAnswer {
  int status = 404;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::string set_cookie, location;
  bool stream = false;  ///< 200, and events follow
};

class OperatorRoutes {
 public:
  using Then = std::function<void(OperatorAnswer)>;

  OperatorRoutes(std::shared_ptr<ActorWatch> watch, std::string epoch, std::string browser_origin,
                 std::function<std::string()> metrics_text);

  /// `then` runs once, on the thread of the watch, possibly within the call. A stream is only allowed here; whoever called serves it.
  void answer(const OperatorRequest& request, Then then);

  [[nodiscard]] const std::string& epoch() const { return epoch_; }

 private:
  [[nodiscard]] std::optional<OperatorAnswer> guard(const OperatorRequest& request, const std::string& path);
  OperatorAnswer login(const OperatorRequest& request);
  void actors(Then then);
  void inspect(const std::string& target, Then then);
  void metrics(Then then);

  const std::shared_ptr<ActorWatch> watch_;
  const std::string epoch_;
  const std::string browser_origin_;  // "127.0.0.1:7788"; empty: there is no port for browsers
  const std::function<std::string()> metrics_text_;
  BrowserAccess access_;
};

/// The value of `name` in the query of `target`, percent-decoded; empty: absent or malformed.
[[nodiscard]] std::string query_value(const std::string& target, std::string_view name);

}  // namespace openshell::api
