// What is decided on, as one plain value that any engine can be given: the connection, and with `request` one inspected request of it or
// one WebSocket message. The compiled matcher takes it as Destination and Request; this is the same as a JSON document, for an evaluator of
// rules and for records. Pure, any thread. (BIN-26)
//
//   {"network": {"host": "api.x.test", "port": 443},
//    "exec": {"path": "/usr/bin/curl", "ancestors": ["/usr/bin/bash"], "cmdline_paths": []},
//    "request": {"method": "POST", "path": "/v1/items", "query_params": {"tag": ["a", "b"]}, "graphql": null, "jsonrpc": null}}
//
// `graphql`: {"operations": [{"operation_type", "operation_name"?, "fields", "persisted_query", "persisted_query_hash"?,
// "persisted_query_id"?}], "error"?}. `jsonrpc`: {"method", "params", "tool", "mcp_method_classification"?, "receive_stream",
// "has_response", "error"}; method, tool and error may be null. `exec.cmdline_paths` is for texts: no rule reads it.
#pragma once

#include <string>
#include <string_view>

#include "policy/matcher.hpp"

namespace openshell::policy {

/// What of the destination no engine may see: `network.host contains NUL`, `network.port`, `exec.path`; empty: nothing. Such an input is
/// denied before any rule is evaluated, under audit too.
[[nodiscard]] std::string_view input_fault(const Destination& destination);

/// The document; `request` null: of the connection. Compact, members in the order above, query parameters and params sorted by name.
[[nodiscard]] std::string evaluator_input(const Destination& destination, const Request* request);

}  // namespace openshell::policy
