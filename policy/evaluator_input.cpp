#include "policy/evaluator_input.hpp"

#include <algorithm>
#include <map>

#include "policy/document.hpp"
#include "policy/text.hpp"
#include "policy/utf8.hpp"

namespace openshell::policy {
namespace {

template <class Texts>
Document texts(const Texts& items) {
  Document out = Document::list();
  for (const auto& item : items) out.push(Document::string(std::string{item}));
  return out;
}

void optional_text(Document& out, const char* key, const std::string& value) {
  if (!value.empty()) out.set(key, Document::string(value));
}

Document or_null(const std::optional<std::string>& value) { return value ? Document::string(*value) : Document::bare("null"); }

Document graphql(const GraphqlContent& content) {
  Document out = Document::mapping();
  auto& operations = out.set("operations", Document::list());
  for (const auto& one : content.operations) {
    auto& operation = operations.push(Document::mapping());
    operation.set("operation_type", Document::string(one.type));
    optional_text(operation, "operation_name", one.name);
    operation.set("fields", texts(one.fields));
    operation.set("persisted_query", Document::boolean(one.persisted));
    optional_text(operation, "persisted_query_hash", one.persisted_hash);
    optional_text(operation, "persisted_query_id", one.persisted_id);
  }
  optional_text(out, "error", content.error);
  return out;
}

Document jsonrpc(const JsonRpcContent& content) {
  Document out = Document::mapping();
  out.set("method", or_null(content.method));
  auto& params = out.set("params", Document::mapping());
  for (const auto& [name, value] : content.params) params.set(name, Document::string(value));
  out.set("tool", or_null(content.tool));
  if (content.classification != McpMethod::none) {
    out.set("mcp_method_classification", Document::string(content.classification == McpMethod::available ? "available" : "extension"));
  }
  out.set("receive_stream", Document::boolean(content.receive_stream));
  out.set("has_response", Document::boolean(content.has_response));
  out.set("error", or_null(content.error));
  return out;
}

Document request_document(const Request& request) {
  Document out = Document::mapping();
  out.set("method", Document::string(std::string{request.method}));
  out.set("path", Document::string(std::string{request.path}));
  std::map<std::string, std::vector<std::string>> query;
  for (const auto& [name, value] : request.query) query[name].push_back(value);
  auto& parameters = out.set("query_params", Document::mapping());
  for (const auto& [name, values] : query) parameters.set(name, texts(values));
  out.set("graphql", request.graphql != nullptr ? graphql(*request.graphql) : Document::bare("null"));
  out.set("jsonrpc", request.jsonrpc != nullptr ? jsonrpc(*request.jsonrpc) : Document::bare("null"));
  return out;
}

}  // namespace

std::string_view input_fault(const Destination& destination) {
  if (destination.host.empty()) return "network.host is empty";
  if (destination.host.find('\0') != std::string_view::npos) return "network.host contains NUL";
  if (!is_utf8(destination.host)) return "network.host";
  if (destination.port == 0) return "network.port";
  if (!is_utf8(destination.binary.path)) return "exec.path";
  const auto& ancestors = destination.binary.ancestors;
  if (!std::all_of(ancestors.begin(), ancestors.end(), [](const std::string& path) { return is_utf8(path); })) return "exec.ancestors";
  return {};
}

std::string evaluator_input(const Destination& destination, const Request* request) {
  Document out = Document::mapping();
  auto& network = out.set("network", Document::mapping());
  network.set("host", Document::string(std::string{destination.host}));
  network.set("port", Document::bare(std::to_string(destination.port)));
  auto& exec = out.set("exec", Document::mapping());
  exec.set("path", Document::string(std::string{destination.binary.path}));
  exec.set("ancestors", texts(destination.binary.ancestors));
  exec.set("cmdline_paths", texts(destination.binary.cmdline_paths));
  if (request != nullptr) out.set("request", request_document(*request));
  return write_json(out, false);
}

}  // namespace openshell::policy
