// One denied request, followed by its id from the line that tells of it over the proposal to the decision of a person and the policy
// revision that came of it. [PP-15]
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/operator/actor_source.hpp"
#include "messages/operator.hpp"

namespace openshell::api {

/// What a denied line says between its words: the key by which denials are folded. Pure.
struct DeniedOpen {
  std::string binary;  ///< "-" or a path
  std::string host;
  std::uint32_t port = 0;
  std::string method, path;  ///< of a request that was read; empty: an open
  std::string policy, reason;
};
/// Of a shorthand line of the supervisor ("NET:OPEN [MED] DENIED /usr/bin/curl(7) -> host:443 [policy:x] [reason:y]"); nothing where it is
/// no such line. What it returns is the sandbox's and the network's word: to be shown, never to be decided upon.
[[nodiscard]] std::optional<DeniedOpen> parse_denied_line(std::string_view line);

/// Without an id: `{"denials":[...]}`, the newest first. With one: `{"denial":{...},"steps":[...]}`, or an error in the same shape.
/// `then` runs once, on any thread.
void trace_denials(const std::shared_ptr<ActorSource>& source, const std::string& denial_id, std::function<void(std::string json)> then);

}  // namespace openshell::api
