// What a GraphQL request or WebSocket message asks for, as the policy judges it. An `error` is a hard denial: no rule and no audit mode
// lets such a request through, since a server might read it otherwise. Pure functions, any thread. (L7-04)
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "policy/content/body_head.hpp"
#include "policy/request_content.hpp"

namespace openshell::policy {

/// Operations of one batched body.
inline constexpr std::size_t kMaxGraphqlBatch = 1'000;

/// A request by HTTP: GET with the operation in its query (decoded, in order), or POST with it in a JSON body.
[[nodiscard]] GraphqlContent classify_graphql(std::string_view method, std::span<const std::pair<std::string, std::string>> query,
                                              const BodyHead& head, std::string_view body);

/// A text message of a GraphQL-over-WebSocket connection (graphql-transport-ws and the older graphql-ws).
struct GraphqlMessage {
  bool control = false;    ///< keeps the connection: passes without a rule
  GraphqlContent content;  ///< of `subscribe` and `start`; `error` for everything that is neither
};
[[nodiscard]] GraphqlMessage classify_graphql_message(std::string_view text);

}  // namespace openshell::policy
