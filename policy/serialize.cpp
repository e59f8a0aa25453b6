#include "policy/serialize.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "policy/document.hpp"
#include "policy/mcp_versions.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

// Thrown nowhere: the first fault is kept and the result discarded.
class Writer {
 public:
  absl::StatusOr<Document> policy(const pb::SandboxPolicy& policy) {
    if (policy.version() > 1) {
      return absl::InvalidArgumentError(
          cat("cannot serialize unsupported protobuf policy version ", policy.version(), "; expected 0 (omitted) or 1"));
    }
    Document out = Document::mapping();
    out.set("version", Document::bare("1"));
    if (policy.has_filesystem()) out.set("filesystem_policy", filesystem(policy.filesystem()));
    if (policy.has_landlock()) {
      const auto& mode = policy.landlock().compatibility();
      out.set("landlock", Document::mapping()).set("compatibility", Document::string(mode.empty() ? "best_effort" : mode));
    }
    if (policy.has_process() && !(policy.process().run_as_user().empty() && policy.process().run_as_group().empty())) {
      auto& process = out.set("process", Document::mapping());
      text(process, "run_as_user", policy.process().run_as_user());
      text(process, "run_as_group", policy.process().run_as_group());
    }
    if (!policy.network_policies().empty()) {
      auto& rules = out.set("network_policies", Document::mapping());
      each_sorted(policy.network_policies(), [&](const std::string& key, const auto& rule) { rules.set(key, network_rule(rule)); });
    }
    if (!policy.network_middlewares().empty()) {
      auto& configs = out.set("network_middlewares", Document::mapping());
      each_sorted(policy.network_middlewares(), [&](const std::string& key, const auto& config) { configs.set(key, middleware(config)); });
    }
    if (!status_.ok()) return status_;
    return out;
  }

 private:
  void invalid(std::string what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(std::move(what));
  }

  template <class Map, class Use>
  static void each_sorted(const Map& map, Use&& use) {
    std::map<std::string, typename Map::const_iterator> order;
    for (auto at = map.begin(); at != map.end(); ++at) order.emplace(at->first, at);
    for (const auto& [key, at] : order) use(key, at->second);
  }
  static void text(Document& out, std::string_view key, const std::string& value) {
    if (!value.empty()) out.set(std::string{key}, Document::string(value));
  }
  static void flag(Document& out, std::string_view key, bool value) {
    if (value) out.set(std::string{key}, Document::boolean(true));
  }
  static void number(Document& out, std::string_view key, std::uint32_t value) {
    if (value != 0) out.set(std::string{key}, Document::bare(cat(value)));
  }
  template <class Items>
  static void strings(Document& out, std::string_view key, const Items& items) {
    if (items.empty()) return;
    auto& list = out.set(std::string{key}, Document::list());
    for (const auto& item : items) list.push(Document::string(item));
  }

  static Document filesystem(const pb::FilesystemPolicy& section) {
    Document out = Document::mapping();
    out.set("include_workdir", Document::boolean(section.include_workdir()));
    strings(out, "read_only", section.read_only());
    strings(out, "read_write", section.read_write());
    return out;
  }

  Document network_rule(const pb::NetworkPolicyRule& rule) {
    Document out = Document::mapping();
    text(out, "name", rule.name());
    if (rule.endpoints_size() > 0) {
      auto& list = out.set("endpoints", Document::list());
      for (const auto& item : rule.endpoints()) list.push(endpoint(item));
    }
    if (rule.binaries_size() > 0) {
      auto& list = out.set("binaries", Document::list());
      for (const auto& binary : rule.binaries()) list.push(Document::mapping()).set("path", Document::string(binary.path()));
    }
    return out;
  }

  void ports(Document& out, const pb::NetworkEndpoint& endpoint) {
    std::vector<std::uint32_t> list;
    for (const auto port : endpoint.ports()) list.push_back(port);
    if (list.empty() && endpoint.port() != 0) list.push_back(endpoint.port());
    for (const auto port : list) {
      if (port > 65'535) invalid(cat("cannot serialize endpoint '", endpoint.host(), "': port ", port, " exceeds 65535"));
    }
    if (list.size() == 1) {
      out.set("port", Document::bare(cat(list.front())));
    } else if (list.size() > 1) {
      auto& items = out.set("ports", Document::list());
      for (const auto port : list) items.push(Document::bare(cat(port)));
    }
  }

  // The spelling of an enum value; the values are dense from 0, which is left out.
  void mode(Document& out, std::string_view key, int value, std::initializer_list<std::string_view> spellings) {
    if (value == 0) return;
    if (value < 0 || static_cast<std::size_t>(value) > spellings.size()) {
      invalid(cat("cannot serialize invalid sandbox policy: unknown ", key, " enum value ", value));
      return;
    }
    out.set(std::string{key}, Document::string(std::string{*(spellings.begin() + (value - 1))}));
  }

  Document endpoint(const pb::NetworkEndpoint& e) {
    Document out = Document::mapping();
    const bool mcp_protocol = e.protocol() == "mcp";
    text(out, "host", e.host());
    text(out, "path", e.path());
    ports(out, e);
    text(out, "protocol", e.protocol());
    mode(out, "tls", e.tls(), {"skip"});
    mode(out, "enforcement", e.enforcement(), {"enforce", "audit"});
    mode(out, "access", e.access(), {"read-only", "read-write", "full"});
    if (e.rules_size() > 0) {
      auto& list = out.set("rules", Document::list());
      for (const auto& rule : e.rules()) list.push(Document::mapping()).set("allow", l7(rule.allow(), mcp_protocol));
    }
    strings(out, "allowed_ips", e.allowed_ips());
    if (e.deny_rules_size() > 0) {
      auto& list = out.set("deny_rules", Document::list());
      for (const auto& rule : e.deny_rules()) list.push(l7(rule, mcp_protocol));
    }
    flag(out, "allow_encoded_slash", e.allow_encoded_slash());
    flag(out, "websocket_credential_rewrite", e.websocket_credential_rewrite());
    flag(out, "request_body_credential_rewrite", e.request_body_credential_rewrite());
    flag(out, "allow_uninspected_credentials", e.allow_uninspected_credentials());
    text(out, "persisted_queries", e.persisted_queries());
    if (!e.graphql_persisted_queries().empty()) {
      auto& queries = out.set("graphql_persisted_queries", Document::mapping());
      each_sorted(e.graphql_persisted_queries(), [&](const std::string& key, const pb::GraphqlOperation& operation) {
        auto& entry = queries.set(key, Document::mapping());
        text(entry, "operation_type", operation.operation_type());
        text(entry, "operation_name", operation.operation_name());
        strings(entry, "fields", operation.fields());
      });
    }
    number(out, "graphql_max_body_bytes", e.graphql_max_body_bytes());
    text(out, "credential_signing", e.credential_signing());
    text(out, "signing_service", e.signing_service());
    text(out, "signing_region", e.signing_region());
    if (e.has_credential_binding()) {
      out.set("credential_binding", Document::mapping()).set("provider", Document::string(e.credential_binding().provider()));
    }
    if (!mcp_protocol && e.has_mcp())
      invalid(cat("cannot serialize invalid sandbox policy: endpoint '", e.host(), "' has mcp options without protocol mcp"));
    if (!mcp_protocol && e.json_rpc_max_body_bytes() > 0) {
      number(out.set("json_rpc", Document::mapping()), "max_body_bytes", e.json_rpc_max_body_bytes());
    }
    if (mcp_protocol) mcp(out.set("mcp", Document::mapping()), e);
    return out;
  }

  void mcp(Document& out, const pb::NetworkEndpoint& e) {
    if (e.mcp().versions().empty()) invalid("cannot serialize invalid sandbox policy: an mcp endpoint has no protocol version");
    for (const auto& version : e.mcp().versions()) {
      if (!is_mcp_version(version))
        invalid(cat("cannot serialize invalid sandbox policy: unsupported MCP protocol version '", version, "'"));
    }
    strings(out, "versions", e.mcp().versions());
    number(out, "max_body_bytes", e.json_rpc_max_body_bytes());
    if (e.mcp().has_strict_tool_names()) out.set("strict_tool_names", Document::boolean(e.mcp().strict_tool_names()));
    if (e.mcp().has_allow_all_known_mcp_methods()) {
      out.set("allow_all_known_mcp_methods", Document::boolean(e.mcp().allow_all_known_mcp_methods()));
    }
  }

  static Document matcher(const pb::L7QueryMatcher& matcher) {
    if (matcher.any_size() == 0) return Document::string(matcher.glob());
    Document out = Document::mapping();
    strings(out, "any", matcher.any());
    return out;
  }

  template <class Rule>
  static Document l7(const Rule& rule, bool mcp_protocol) {
    Document out = Document::mapping();
    text(out, "method", rule.method());
    text(out, "path", rule.path());
    text(out, "command", rule.command());
    if (!rule.query().empty()) {
      auto& query = out.set("query", Document::mapping());
      each_sorted(rule.query(), [&](const std::string& key, const pb::L7QueryMatcher& value) { query.set(key, matcher(value)); });
    }
    text(out, "operation_type", rule.operation_type());
    text(out, "operation_name", rule.operation_name());
    strings(out, "fields", rule.fields());
    std::map<std::string, const pb::L7QueryMatcher*> params;
    for (const auto& [key, value] : rule.params()) params.emplace(key, &value);
    if (mcp_protocol) {
      if (const auto name = params.find("name"); name != params.end()) {
        out.set("tool", matcher(*name->second));
        params.erase(name);
      }
    }
    if (params.empty()) return out;
    auto& map = out.set("params", Document::mapping());
    if (mcp_protocol && can_nest(params)) {
      for (const auto& [key, value] : params) nest(map, key, matcher(*value));
    } else {
      for (const auto& [key, value] : params) map.set(key, matcher(*value));
    }
    return out;
  }

  // False where one flat name is a parent of another (`a` and `a.b`), or a part is empty.
  static bool can_nest(const std::map<std::string, const pb::L7QueryMatcher*>& params) {
    for (const auto& [key, value] : params) {
      if (key.empty() || key.front() == '.' || key.back() == '.' || key.find("..") != std::string::npos) return false;
      for (auto dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
        if (params.contains(key.substr(0, dot))) return false;
      }
    }
    return true;
  }

  static void nest(Document& map, std::string_view key, Document value) {
    const auto dot = key.find('.');
    if (dot == std::string_view::npos) {
      map.set(std::string{key}, std::move(value));
      return;
    }
    const std::string head{key.substr(0, dot)};
    const auto found = std::find_if(map.entries.begin(), map.entries.end(), [&](const auto& entry) { return entry.first == head; });
    nest(found != map.entries.end() ? found->second : map.set(head, Document::mapping()), key.substr(dot + 1), std::move(value));
  }

  Document middleware(const pb::NetworkMiddlewareConfig& config) {
    Document out = Document::mapping();
    text(out, "name", config.name());
    text(out, "middleware", config.middleware());
    if (config.order() != 0) out.set("order", Document::bare(cat(config.order())));
    if (config.has_config()) out.set("config", structure(config.config()));
    text(out, "on_error", config.on_error());
    if (config.has_endpoints()) {
      auto& selector = out.set("endpoints", Document::mapping());
      strings(selector, "include", config.endpoints().include());
      strings(selector, "exclude", config.endpoints().exclude());
    }
    return out;
  }

  Document structure(const google::protobuf::Struct& object) {
    Document out = Document::mapping();
    each_sorted(object.fields(), [&](const std::string& key, const google::protobuf::Value& field) { out.set(key, value(field)); });
    return out;
  }

  Document value(const google::protobuf::Value& source) {
    if (source.has_string_value()) return Document::string(source.string_value());
    if (source.has_bool_value()) return Document::boolean(source.bool_value());
    if (source.has_struct_value()) return structure(source.struct_value());
    if (source.has_number_value()) return json_number(source.number_value());
    if (!source.has_list_value()) return Document::bare("null");
    Document out = Document::list();
    for (const auto& item : source.list_value().values()) out.push(value(item));
    return out;
  }

  Document json_number(double number) {
    constexpr double kExactIntegers = 9'007'199'254'740'992.0;  // 2^53
    if (!std::isfinite(number)) invalid("cannot serialize invalid sandbox policy: a number is not finite");
    if (number == std::trunc(number) && std::fabs(number) < kExactIntegers && !(number == 0 && std::signbit(number))) {
      return Document::bare(cat(static_cast<std::int64_t>(number)));
    }
    std::array<char, 32> digits{};
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    std::string out{digits.data(), error == std::errc{} ? static_cast<std::size_t>(end - digits.data()) : 0};
    if (out.find_first_of(".e") == std::string::npos) out += ".0";  // a float stays one for the reader
    return Document::bare(std::move(out));
  }

  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::string> to_yaml(const pb::SandboxPolicy& policy) {
  auto document = Writer{}.policy(policy);
  if (!document.ok()) return document.status();
  return write_yaml(*document);
}

absl::StatusOr<std::string> to_json(const pb::SandboxPolicy& policy, bool pretty) {
  auto document = Writer{}.policy(policy);
  if (!document.ok()) return document.status();
  return write_json(*document, pretty);
}

}  // namespace openshell::policy
