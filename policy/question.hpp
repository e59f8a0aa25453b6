// One question to a policy as an owned value: what a decision is made from, and nothing else. The same content as the input document of the
// rules; `question_document.hpp` reads and writes it. (NET-58)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/request_content.hpp"

namespace openshell::policy {

/// A connection, or with `request` one inspected request or message on it.
struct Question {
  struct Http {
    std::string method;                                      ///< as sent; `WEBSOCKET_TEXT` for a text message
    std::string path;                                        ///< canonical, no query
    std::vector<std::pair<std::string, std::string>> query;  ///< decoded
    std::optional<GraphqlContent> graphql;
    std::optional<JsonRpcContent> jsonrpc;
  };
  std::string host;  ///< lower case, no final dot, no brackets
  std::uint16_t port = 0;
  std::string binary;                      ///< real path of the executable; empty: not known, or programs do not matter
  std::vector<std::string> ancestors;      ///< nearest first
  std::vector<std::string> cmdline_paths;  ///< for texts only; never grants anything
  std::optional<Http> request;
  bool relaxed = false;  ///< programs do not matter
};

}  // namespace openshell::policy
