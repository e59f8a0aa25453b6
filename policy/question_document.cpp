#include "policy/question_document.hpp"

#include <algorithm>
#include <array>

#include "policy/judgement.hpp"
#include "policy/parse.hpp"
#include "policy/sha256.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::array<std::string_view, 3> kTop{"network", "exec", "request"};
constexpr std::array<std::string_view, 2> kNetwork{"host", "port"};
constexpr std::array<std::string_view, 3> kExec{"path", "ancestors", "cmdline_paths"};
constexpr std::array<std::string_view, 5> kRequest{"method", "path", "query_params", "graphql", "jsonrpc"};
constexpr std::array<std::string_view, 2> kGraphql{"operations", "error"};
constexpr std::array<std::string_view, 6> kOperation{"operation_type",  "operation_name",       "fields",
                                                     "persisted_query", "persisted_query_hash", "persisted_query_id"};
constexpr std::array<std::string_view, 7> kJsonRpc{"method",         "params",       "tool", "mcp_method_classification",
                                                   "receive_stream", "has_response", "error"};

bool is_null(const YamlNode& node) { return node.kind == YamlNode::Kind::scalar && node.type == ScalarType::null; }

class QuestionReader : private ValueReader {
 public:
  QuestionReader(SourceMap& places, Diagnostics& diagnostics) : ValueReader{places, diagnostics, {"invalid input: ", "input"}} {}

  void question(const YamlNode& node, const std::string& path, Question& out) {
    bool network_seen = false, exec_seen = false;
    each_key(node, path, kTop, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "network") {
        network_seen = true;
        network(value, at, out);
      } else if (key == "exec") {
        exec_seen = true;
        exec(value, at, out);
      } else if (!is_null(value)) {
        request(value, at, out.request.emplace());
      }
    });
    if (node.kind != YamlNode::Kind::mapping) return;
    if (!network_seen) missing(node, path, "network", "add `network: {host: HOST, port: PORT}`");
    if (!exec_seen) missing(node, path, "exec", "add `exec: {path: /path/of/the/program}`");
  }

 private:
  void text(const YamlNode& node, const std::string& path, std::string& out) {
    if (!string(node, path, out)) return;
    if (out.find('\0') != std::string::npos) error(node.place, path, cat("invalid input: ", path, " contains NUL"));
  }
  void texts(const YamlNode& node, const std::string& path, std::vector<std::string>& out) {
    bounded(node, path);
    each_element(node, path, [&](const YamlNode& item, const std::string& at) { text(item, at, out.emplace_back()); });
  }
  void optional_text(const YamlNode& node, const std::string& path, std::optional<std::string>& out) {
    if (!is_null(node)) text(node, path, out.emplace());
  }
  void bounded(const YamlNode& node, const std::string& path) {
    if (node.items.size() > kMaxQuestionItems)
      error(node.place, path, cat("invalid input: ", path, " has more than ", kMaxQuestionItems, " items"));
  }

  void network(const YamlNode& node, const std::string& path, Question& out) {
    bool host_seen = false, port_seen = false;
    each_key(node, path, kNetwork, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "port") {
        port_seen = true;
        std::int64_t port = 0;
        if (integer(value, at, 1, 65'535, "port", port)) out.port = static_cast<std::uint16_t>(port);
        return;
      }
      host_seen = true;
      text(value, at, out.host);
      if (out.host != text::lower(out.host) || out.host.empty() || out.host.ends_with('.') || out.host.starts_with('['))
        error(value.place, at, cat("invalid input: ", at, " is no host in lower case without a final dot and without brackets"));
    });
    if (node.kind != YamlNode::Kind::mapping) return;
    if (!host_seen) missing(node, path, "host", "add it");
    if (!port_seen) missing(node, path, "port", "add it");
  }

  void exec(const YamlNode& node, const std::string& path, Question& out) {
    bool seen = false;
    each_key(node, path, kExec, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      seen = seen || key == "path";
      if (key == "path") return text(value, at, out.binary);
      texts(value, at, key == "ancestors" ? out.ancestors : out.cmdline_paths);
    });
    if (!seen && node.kind == YamlNode::Kind::mapping) missing(node, path, "path", "add it; \"\" where programs do not matter");
  }

  void request(const YamlNode& node, const std::string& path, Question::Http& out) {
    bool method_seen = false, path_seen = false;
    each_key(node, path, kRequest, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "method") {
        method_seen = true;
        text(value, at, out.method);
      } else if (key == "path") {
        path_seen = true;
        text(value, at, out.path);
      } else if (key == "query_params") {
        query(value, at, out);
      } else if (is_null(value)) {
        return;
      } else if (key == "graphql") {
        graphql(value, at, out.graphql.emplace());
      } else {
        jsonrpc(value, at, out.jsonrpc.emplace());
      }
    });
    if (node.kind != YamlNode::Kind::mapping) return;
    if (!method_seen) missing(node, path, "method", "add it");
    if (!path_seen) missing(node, path, "path", "add it");
  }

  void query(const YamlNode& node, const std::string& path, Question::Http& out) {
    bounded(node, path);
    each_entry(node, path, [&](const std::string& name, const YamlNode& value, const std::string& at) {
      std::vector<std::string> values;
      texts(value, at, values);
      for (auto& one : values) out.query.emplace_back(name, std::move(one));
    });
  }

  void graphql(const YamlNode& node, const std::string& path, GraphqlContent& out) {
    each_key(node, path, kGraphql, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "error") return text(value, at, out.error);
      bounded(value, at);
      each_element(value, at,
                   [&](const YamlNode& item, const std::string& where) { operation(item, where, out.operations.emplace_back()); });
    });
  }

  void operation(const YamlNode& node, const std::string& path, GraphqlOperation& out) {
    each_key(node, path, kOperation, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "persisted_query") return boolean(value, at, [&](bool on) { out.persisted = on; });
      if (key == "fields") return texts(value, at, out.fields);
      text(value, at,
           key == "operation_type"         ? out.type
           : key == "operation_name"       ? out.name
           : key == "persisted_query_hash" ? out.persisted_hash
                                           : out.persisted_id);
    });
  }

  void jsonrpc(const YamlNode& node, const std::string& path, JsonRpcContent& out) {
    each_key(node, path, kJsonRpc, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "receive_stream") return boolean(value, at, [&](bool on) { out.receive_stream = on; });
      if (key == "has_response") return boolean(value, at, [&](bool on) { out.has_response = on; });
      if (key == "method") return optional_text(value, at, out.method);
      if (key == "tool") return optional_text(value, at, out.tool);
      if (key == "error") return optional_text(value, at, out.error);
      if (key == "params") {
        bounded(value, at);
        return each_entry(
            value, at, [&](const std::string& name, const YamlNode& one, const std::string& where) { text(one, where, out.params[name]); });
      }
      std::string word;
      text(value, at, word);
      if (word == "available" || word == "extension") {
        out.classification = word == "available" ? McpMethod::available : McpMethod::extension;
      } else {
        error(value.place, at, cat("invalid input: ", at, " is neither available nor extension"));
      }
    });
  }
};

// ---- writing

// Bytes of the UTF-8 character that `text` begins with (RFC 3629); 0: none.
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;  // overlong, surrogate
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;  // overlong, beyond U+10FFFF
  return length;
}

void append_member(std::string& out, std::string_view name) {
  if (out.back() != '{') out += ',';
  append_json_text(out, name);
  out += ':';
}

void append_list(std::string& out, std::span<const std::string> items) {
  out += '[';
  for (const auto& item : items) {
    if (out.back() != '[') out += ',';
    append_json_text(out, item);
  }
  out += ']';
}

void append_value(std::string& out, std::string_view value, Values values) {
  if (values == Values::plain) return append_json_text(out, value);
  append_json_text(out, hashed_value(value));
}

void append_optional(std::string& out, const std::optional<std::string>& text, Values values = Values::plain) {
  if (!text) {
    out += "null";
  } else {
    append_value(out, *text, values);
  }
}

void append_flag(std::string& out, std::string_view name, bool on) {
  append_member(out, name);
  out += on ? "true" : "false";
}

// One array a name, names in order of bytes, values of a name in their own order.
void append_query(std::string& out, std::span<const QueryParameter> query, Values values) {
  std::vector<const QueryParameter*> sorted;
  sorted.reserve(query.size());
  for (const auto& pair : query) sorted.push_back(&pair);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  out += '{';
  for (std::size_t i = 0; i < sorted.size();) {
    append_member(out, sorted[i]->first);
    out += '[';
    for (std::size_t j = i; i < sorted.size() && sorted[i]->first == sorted[j]->first; ++i) {
      if (i > j) out += ',';
      append_value(out, sorted[i]->second, values);
    }
    out += ']';
  }
  out += '}';
}

void append_graphql(std::string& out, const GraphqlContent& graphql) {
  out += "{\"operations\":[";
  for (const auto& operation : graphql.operations) {
    if (out.back() != '[') out += ',';
    out += '{';
    append_member(out, "operation_type");
    append_json_text(out, operation.type);
    const auto optional = [&](std::string_view name, const std::string& value) {
      if (value.empty()) return;
      append_member(out, name);
      append_json_text(out, value);
    };
    optional("operation_name", operation.name);
    append_member(out, "fields");
    append_list(out, operation.fields);
    append_flag(out, "persisted_query", operation.persisted);
    optional("persisted_query_hash", operation.persisted_hash);
    optional("persisted_query_id", operation.persisted_id);
    out += '}';
  }
  out += ']';
  if (!graphql.error.empty()) {
    append_member(out, "error");
    append_json_text(out, graphql.error);
  }
  out += '}';
}

void append_jsonrpc(std::string& out, const JsonRpcContent& call, Values values) {
  out += '{';
  append_member(out, "method");
  append_optional(out, call.method);
  append_member(out, "params");
  out += '{';
  for (const auto& [name, value] : call.params) {
    append_member(out, name);
    append_value(out, value, values);
  }
  out += '}';
  append_member(out, "tool");
  append_optional(out, call.tool, values);
  if (call.classification != McpMethod::none) {
    append_member(out, "mcp_method_classification");
    append_json_text(out, call.classification == McpMethod::available ? "available" : "extension");
  }
  append_flag(out, "receive_stream", call.receive_stream);
  append_flag(out, "has_response", call.has_response);
  append_member(out, "error");
  append_optional(out, call.error);
  out += '}';
}

void append_request(std::string& out, const Request& request, Values values) {
  out += '{';
  append_member(out, "method");
  append_json_text(out, request.method);
  append_member(out, "path");
  append_json_text(out, request.path);
  append_member(out, "query_params");
  append_query(out, request.query, values);
  if (request.graphql != nullptr) {
    append_member(out, "graphql");
    append_graphql(out, *request.graphql);
  }
  if (request.jsonrpc != nullptr) {
    append_member(out, "jsonrpc");
    append_jsonrpc(out, *request.jsonrpc, values);
  }
  out += '}';
}

}  // namespace

bool read_question(const YamlNode& node, const std::string& path, Question& out, SourceMap& places, Diagnostics& diagnostics) {
  const auto before = diagnostics.error_count();
  QuestionReader{places, diagnostics}.question(node, path, out);
  return diagnostics.error_count() == before;
}

absl::StatusOr<Question> parse_question(std::string_view text, std::string_view file) {
  Diagnostics diagnostics;
  SourceMap places;
  Question out;
  const auto root = read_yaml(text, {}, diagnostics);
  if (root != nullptr) read_question(*root, "", out, places, diagnostics);
  diagnostics.locate(places, file);
  if (diagnostics.has_errors()) return absl::InvalidArgumentError(std::string{text::trim(diagnostics.render())});
  return out;
}

void append_json_text(std::string& out, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto length = character_at(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text.front();
    } else if (c < 0x20 || c == 0x7F) {
      out += "\\u00";
      out += kDigits[c >> 4U];
      out += kDigits[c & 0xFU];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += '"';
}

std::string hashed_value(std::string_view value) { return cat(kHashPrefix, sha256_hex(value)); }

bool is_hashed_value(std::string_view value) {
  return value.size() == kHashPrefix.size() + 64 && value.starts_with(kHashPrefix) &&
         value.find_first_not_of("0123456789abcdef", kHashPrefix.size()) == std::string_view::npos;
}

void append_json(std::string& out, const Destination& destination, const Request* request, Values values) {
  out += "{\"network\":{\"host\":";
  append_json_text(out, destination.host);
  out += ",\"port\":";
  out += std::to_string(destination.port);
  out += "},\"exec\":{\"path\":";
  append_json_text(out, destination.binary.path);
  out += ",\"ancestors\":";
  append_list(out, destination.binary.ancestors);
  out += ",\"cmdline_paths\":";
  append_list(out, destination.binary.cmdline_paths);
  out += '}';
  if (request != nullptr) {
    out += ",\"request\":";
    append_request(out, *request, values);
  }
  out += '}';
}

std::string to_json(const Question& question) {
  std::string out;
  const Destination destination{question.host, question.port, {question.binary, question.ancestors, question.cmdline_paths}};
  if (question.request) {
    const auto request = request_of(*question.request);
    append_json(out, destination, &request, Values::plain);
  } else {
    append_json(out, destination, nullptr, Values::plain);
  }
  return out;
}

}  // namespace openshell::policy
