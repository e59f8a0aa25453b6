// `openshell-gateway actors` and `openshell-gateway operator-url`: what they ask a running gateway over its operator socket.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>

namespace openshell::gateway {

/// One request; the body of a 200. UNAVAILABLE names the socket and says what to do; another status is an error with the body.
absl::StatusOr<std::string> ask_operator(const std::string& socket, const std::string& method, const std::string& target);
/// `event(name, data)` for each event of `/actors/stream`, until it returns false or the stream ends.
absl::Status follow_operator(const std::string& socket,
                             const std::function<bool(const std::string& event, const std::string& data)>& event);

/// The link for a browser, out of the answer to `POST /login-token`. Good for one minute and for one use.
absl::StatusOr<std::string> login_url(const std::string& json);

/// `GET /actors` as a person reads it: a tree a process, trouble marked.
absl::StatusOr<std::string> actors_text(const std::string& json);

}  // namespace openshell::gateway
