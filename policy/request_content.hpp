// What an inspected message says beyond method, path and query: GraphQL operations, or one JSON-RPC call. Who parses the bytes fills it in;
// the matcher and the tools that ask it read it. Owned plain values. (NET-58)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace openshell::policy {

/// One operation of a GraphQL request or message.
struct GraphqlOperation {
  std::string type;                 ///< `query`, `mutation`, `subscription`; empty: persisted only, the text is not known
  std::string name;                 ///< empty: unnamed
  std::vector<std::string> fields;  ///< of the operation's root, sorted
  bool persisted = false;
  std::string persisted_hash, persisted_id;  ///< empty: not given
};

struct GraphqlContent {
  std::vector<GraphqlOperation> operations;
  std::string error;  ///< why it could not be classified; empty: it could
};

/// Where the selected MCP revision puts a method. Anything else was refused before a decision.
enum class McpMethod : std::uint8_t { none, available, extension };

/// One call of a JSON-RPC or MCP request. A batch is one decision a call.
struct JsonRpcContent {
  std::optional<std::string> method;
  std::map<std::string, std::string> params;  ///< mcp: only `name`; json-rpc: empty
  std::optional<std::string> tool;
  McpMethod classification = McpMethod::none;
  bool receive_stream = false;  ///< the GET that opens the server's event stream
  bool has_response = false;    ///< response frames from client to server
  std::optional<std::string> error;
};

}  // namespace openshell::policy
