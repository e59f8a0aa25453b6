#include "policy/decode.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "policy/decode_reader.hpp"
#include "policy/mcp_versions.hpp"
#include "policy/schema_keys.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;
using namespace keys;  // NOLINT(google-build-using-namespace): the tables of this language

class Decoder : private ValueReader {
 public:
  using ValueReader::ValueReader;

  void policy(const YamlNode& root, pb::SandboxPolicy& out) {
    if (!is_mapping(root, "")) return;
    bool version_seen = false;
    each_key(root, "", kTop, [&](std::string_view key, const YamlNode& node, const std::string& path) {
      if (key == "version") {
        version_seen = true;
        version(node, path, out);
      } else if (key == "filesystem_policy") {
        filesystem(node, path, *out.mutable_filesystem());
      } else if (key == "landlock") {
        landlock(node, path, *out.mutable_landlock());
      } else if (key == "process") {
        each_key(node, path, kProcess, [&](std::string_view name, const YamlNode& value, const std::string& at) {
          string(value, at,
                 name == "run_as_user" ? *out.mutable_process()->mutable_run_as_user() : *out.mutable_process()->mutable_run_as_group());
        });
        out.mutable_process();
      } else if (key == "network_policies") {
        each_entry(node, path, [&](const std::string& name, const YamlNode& value, const std::string& at) {
          rule(value, at, name, (*out.mutable_network_policies())[name]);
        });
      } else {
        each_entry(node, path, [&](const std::string& name, const YamlNode& value, const std::string& at) {
          middleware(value, at, (*out.mutable_network_middlewares())[name]);
        });
      }
    });
    if (!version_seen) missing(root, "", "version", "add `version: 1`");
  }

 private:
  // --- sections
  // ------------------------------------------------------------------------------------------------------------------------------------

  void version(const YamlNode& node, const std::string& path, pb::SandboxPolicy& out) {
    std::int64_t value = 0;
    if (!integer(node, path, 0, std::numeric_limits<std::uint32_t>::max(), "version", value)) return;
    out.set_version(static_cast<std::uint32_t>(value));
    if (value != 1)
      error(node.place, path, cat("unsupported policy version ", value, "; expected version 1"), "write `version: 1`",
            "unsupported version");
  }

  void filesystem(const YamlNode& node, const std::string& path, pb::FilesystemPolicy& out) {
    each_key(node, path, kFilesystem, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "include_workdir") {
        boolean(value, at, [&](bool on) { out.set_include_workdir(on); });
      } else {
        strings(value, at, key == "read_only" ? *out.mutable_read_only() : *out.mutable_read_write());
      }
    });
  }

  void landlock(const YamlNode& node, const std::string& path, pb::LandlockPolicy& out) {
    each_key(node, path, kLandlock,
             [&](std::string_view, const YamlNode& value, const std::string& at) { string(value, at, *out.mutable_compatibility()); });
  }

  void rule(const YamlNode& node, const std::string& path, const std::string& key, pb::NetworkPolicyRule& out) {
    rule_key_ = key;
    rule_name_ = key;
    if (const auto* name = node.find("name"); name != nullptr && name->kind == YamlNode::Kind::scalar && !name->text.empty())
      rule_name_ = name->text;
    each_key(node, path, kRule, [&](std::string_view field, const YamlNode& value, const std::string& at) {
      if (field == "name") {
        string(value, at, *out.mutable_name());
      } else if (field == "endpoints") {
        int index = 0;
        each_element(value, at,
                     [&](const YamlNode& item, const std::string& where) { endpoint(item, where, index++, *out.add_endpoints()); });
      } else {
        each_element(value, at, [&](const YamlNode& item, const std::string& where) { binary(item, where, *out.add_binaries()); });
      }
    });
  }

  void binary(const YamlNode& node, const std::string& path, pb::NetworkBinary& out) {
    if (node.kind == YamlNode::Kind::scalar && node.type == ScalarType::string) {
      out.set_path(node.text);
      return;
    }
    bool seen = false;
    each_key(node, path, kBinary, [&](std::string_view, const YamlNode& value, const std::string& at) {
      seen = true;
      string(value, at, *out.mutable_path());
    });
    if (!seen && node.kind == YamlNode::Kind::mapping) missing(node, path, "path", "name the executable: `path: /usr/bin/curl`");
  }

  void endpoint(const YamlNode& node, const std::string& path, int index, pb::NetworkEndpoint& out) {
    loc_ = cat(rule_key_, ".endpoints[", index, "]");
    protocol_.clear();
    host_.clear();
    if (const auto* protocol = node.find("protocol"); protocol != nullptr) protocol_ = text::lower(protocol->text);
    if (const auto* host = node.find("host"); host != nullptr) host_ = host->text;
    const YamlNode* json_rpc_node = nullptr;
    const YamlNode* mcp_node = nullptr;
    each_key(node, path, kEndpoint, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (endpoint_texts(key, value, at, out) || endpoint_flags(key, value, at, out) || endpoint_modes(key, value, at, out)) return;
      if (key == "json_rpc") json_rpc_node = &value;
      if (key == "mcp") mcp_node = &value;
      endpoint_parts(key, value, at, out);
    });
    check_ports(node, path, out);
    if (json_rpc_node != nullptr) json_rpc(*json_rpc_node, below(path, "json_rpc"), out);
    if (mcp_node != nullptr) mcp(*mcp_node, below(path, "mcp"), out);  // after json_rpc: its limit counts
  }

  bool endpoint_texts(std::string_view key, const YamlNode& value, const std::string& at, pb::NetworkEndpoint& out) {
    std::string* target = nullptr;
    if (key == "host") target = out.mutable_host();
    if (key == "path") target = out.mutable_path();
    if (key == "protocol") target = out.mutable_protocol();
    if (key == "persisted_queries") target = out.mutable_persisted_queries();
    if (key == "credential_signing") target = out.mutable_credential_signing();
    if (key == "signing_service") target = out.mutable_signing_service();
    if (key == "signing_region") target = out.mutable_signing_region();
    if (target == nullptr) return false;
    string(value, at, *target);
    return true;
  }

  bool endpoint_flags(std::string_view key, const YamlNode& value, const std::string& at, pb::NetworkEndpoint& out) {
    if (key == "allow_encoded_slash") {
      boolean(value, at, [&](bool on) { out.set_allow_encoded_slash(on); });
    } else if (key == "websocket_credential_rewrite") {
      boolean(value, at, [&](bool on) { out.set_websocket_credential_rewrite(on); });
    } else if (key == "request_body_credential_rewrite") {
      boolean(value, at, [&](bool on) { out.set_request_body_credential_rewrite(on); });
    } else if (key == "allow_uninspected_credentials") {
      boolean(value, at, [&](bool on) { out.set_allow_uninspected_credentials(on); });
    } else {
      return false;
    }
    return true;
  }

  bool endpoint_modes(std::string_view key, const YamlNode& value, const std::string& at, pb::NetworkEndpoint& out) {
    if (key != "tls" && key != "enforcement" && key != "access") return false;
    std::string mode;
    if (!string(value, at, mode)) return true;
    const auto unknown = [&](std::string_view rest, Keys values) {
      const auto near = nearest(mode, values);
      error(value.place, at, cat(loc_, ": unknown ", key, " value '", shorten(mode, 64), "'", rest),
            near.empty() ? "" : cat("did you mean '", near, "'?"), cat("unknown ", key, " value"));
    };
    constexpr std::array<std::string_view, 1> kTls{"skip"};
    constexpr std::array<std::string_view, 2> kEnforcement{"enforce", "audit"};
    constexpr std::array<std::string_view, 3> kAccess{"read-only", "read-write", "full"};
    if (key == "tls") {
      if (mode == "skip") {
        out.set_tls(pb::NETWORK_TLS_MODE_SKIP);
      } else {
        unknown("; omit the field to keep automatic TLS termination", kTls);
      }
    } else if (key == "enforcement") {
      if (mode == "enforce") {
        out.set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
      } else if (mode == "audit") {
        out.set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_AUDIT);
      } else {
        unknown(" (expected enforce or audit)", kEnforcement);
      }
    } else if (mode == "read-only") {
      out.set_access(pb::NETWORK_ACCESS_PRESET_READ_ONLY);
    } else if (mode == "read-write") {
      out.set_access(pb::NETWORK_ACCESS_PRESET_READ_WRITE);
    } else if (mode == "full") {
      out.set_access(pb::NETWORK_ACCESS_PRESET_FULL);
    } else {
      unknown(" (expected read-only, read-write, or full)", kAccess);
    }
    return true;
  }

  void endpoint_parts(std::string_view key, const YamlNode& value, const std::string& at, pb::NetworkEndpoint& out) {
    std::int64_t port = 0;
    if (key == "port") {
      if (integer(value, at, 0, 65'535, "port", port)) out.set_port(static_cast<std::uint32_t>(port));
    } else if (key == "ports") {
      each_element(value, at, [&](const YamlNode& item, const std::string& where) {
        if (integer(item, where, 0, 65'535, "port", port)) out.add_ports(static_cast<std::uint32_t>(port));
      });
    } else if (key == "rules") {
      if (is_empty_list(value)) {
        error(value.place, at, cat(loc_, ": rules list cannot be empty (would deny all traffic). Use `access: full` or remove rules."), "",
              "empty list");
      }
      int index = 0;
      each_element(value, at, [&](const YamlNode& item, const std::string& where) { allow_rule(item, where, index++, *out.add_rules()); });
    } else if (key == "deny_rules") {
      if (is_empty_list(value)) {
        error(value.place, at, cat(loc_, ": deny_rules list cannot be empty (would have no effect). Remove it if no denials are needed."),
              "", "empty list");
      }
      int index = 0;
      each_element(value, at, [&](const YamlNode& item, const std::string& where) {
        l7(item, where, cat(loc_, ".deny_rules[", index++, "]"), *out.add_deny_rules());
      });
    } else if (key == "allowed_ips") {
      strings(value, at, *out.mutable_allowed_ips());
    } else if (key == "graphql_persisted_queries") {
      each_entry(value, at, [&](const std::string& id, const YamlNode& item, const std::string& where) {
        operation(item, where, (*out.mutable_graphql_persisted_queries())[id]);
      });
    } else if (key == "graphql_max_body_bytes") {
      u32(value, at, "byte limit", [&](std::uint32_t bytes) { out.set_graphql_max_body_bytes(bytes); });
    } else if (key == "credential_binding") {
      binding(value, at, *out.mutable_credential_binding());
    }
  }

  static bool is_empty_list(const YamlNode& node) { return node.kind == YamlNode::Kind::sequence && node.items.empty(); }

  void check_ports(const YamlNode& node, const std::string& path, const pb::NetworkEndpoint& out) {
    if (node.kind != YamlNode::Kind::mapping || node.find("port") == nullptr || node.find("ports") == nullptr) return;
    if (std::find(out.ports().begin(), out.ports().end(), out.port()) != out.ports().end()) return;
    std::string listed;
    for (const auto port : out.ports()) listed += cat(listed.empty() ? "" : ", ", port);
    error(node.find("port")->place, cat(path, ".port"), cat(loc_, ": port and ports are mutually exclusive; use ports for multiple ports"),
          cat("port ", out.port(), " is not among ports [", listed, "]: remove one of the two"), "port and ports");
  }

  void binding(const YamlNode& node, const std::string& path, pb::NetworkCredentialBinding& out) {
    bool seen = false;
    each_key(node, path, kBinding, [&](std::string_view, const YamlNode& value, const std::string& at) {
      seen = true;
      string(value, at, *out.mutable_provider());
    });
    if (!seen && node.kind == YamlNode::Kind::mapping) missing(node, path, "provider", "name the attached provider");
  }

  void operation(const YamlNode& node, const std::string& path, pb::GraphqlOperation& out) {
    each_key(node, path, kOperation, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "operation_type") {
        string(value, at, *out.mutable_operation_type());
      } else if (key == "operation_name") {
        string(value, at, *out.mutable_operation_name());
      } else {
        strings(value, at, *out.mutable_fields());
      }
    });
  }

  // --- stanzas of the JSON-RPC family
  // ----------------------------------------------------------------------------------------------------------------

  void json_rpc(const YamlNode& node, const std::string& path, pb::NetworkEndpoint& out) {
    each_key(node, path, kJsonRpc, [&](std::string_view, const YamlNode& value, const std::string& at) {
      u32(value, at, "byte limit", [&](std::uint32_t bytes) { out.set_json_rpc_max_body_bytes(bytes); });
    });
  }

  void mcp(const YamlNode& node, const std::string& path, pb::NetworkEndpoint& out) {
    if (protocol_ != "mcp") {
      error(node.place, path, cat("network policy '", rule_name_, "': non-MCP endpoint '", host_, "' cannot configure mcp options"),
            "remove mcp or set `protocol: mcp`", "mcp options on another protocol");
      return;
    }
    out.set_json_rpc_max_body_bytes(0);
    auto& options = *out.mutable_mcp();
    each_key(node, path, kMcp, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "versions") {
        mcp_versions(value, at, options);
      } else if (key == "max_body_bytes") {
        u32(value, at, "byte limit", [&](std::uint32_t bytes) { out.set_json_rpc_max_body_bytes(bytes); });
      } else if (key == "strict_tool_names") {
        boolean(value, at, [&](bool on) { options.set_strict_tool_names(on); });
      } else {
        boolean(value, at, [&](bool on) { options.set_allow_all_known_mcp_methods(on); });
      }
    });
  }

  void mcp_versions(const YamlNode& node, const std::string& path, pb::McpOptions& out) {
    if (is_empty_list(node)) {
      error(node.place, path,
            cat("network policy '", rule_name_, "' has an empty mcp.versions list; omit it to use the pinned default revision"), "",
            "empty list");
    }
    std::set<std::string> seen;
    each_element(node, path, [&](const YamlNode& item, const std::string& at) {
      std::string value;
      if (!string(item, at, value)) return;
      if (!is_mcp_version(value)) {
        error(item.place, at,
              cat("network policy '", rule_name_, "': unsupported MCP protocol version '", shorten(value, 64), "'; ", kMcpVersionsAccepted),
              "", "unsupported MCP version");
      } else if (!seen.insert(value).second) {
        error(item.place, at, cat("network policy '", rule_name_, "' has duplicate protocol version '", value, "'"), "remove one of them",
              "duplicate MCP version");
      }
      out.add_versions(value);
    });
  }

  // --- request rules
  // ---------------------------------------------------------------------------------------------------------------------------------

  void allow_rule(const YamlNode& node, const std::string& path, int index, pb::L7Rule& out) {
    bool seen = false;
    each_key(node, path, kAllowWrapper, [&](std::string_view, const YamlNode& value, const std::string& at) {
      seen = true;
      l7(value, at, cat(loc_, ".rules[", index, "].allow"), *out.mutable_allow());
    });
    if (!seen && node.kind == YamlNode::Kind::mapping) missing(node, path, "allow", "write `- allow: {method: GET, path: /...}`");
  }

  template <class Rule>
  void l7(const YamlNode& node, const std::string& path, const std::string& loc, Rule& out) {
    const bool tool_and_name = node.kind == YamlNode::Kind::mapping && node.find("tool") != nullptr && has_params_name(node);
    each_key(node, path, kL7, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      if (key == "method") {
        string(value, at, *out.mutable_method());
      } else if (key == "path") {
        string(value, at, *out.mutable_path());
      } else if (key == "command") {
        string(value, at, *out.mutable_command());
      } else if (key == "operation_type") {
        string(value, at, *out.mutable_operation_type());
      } else if (key == "operation_name") {
        string(value, at, *out.mutable_operation_name());
      } else if (key == "fields") {
        if (is_empty_list(value)) {
          error(value.place, at, cat(loc, ".fields: list must not be empty; omit fields to match all root fields"), "", "empty list");
        }
        strings(value, at, *out.mutable_fields());
      } else if (key == "query") {
        each_entry(value, at, [&](const std::string& name, const YamlNode& item, const std::string& where) {
          matcher(item, where, cat(loc, ".query.", name), (*out.mutable_query())[name]);
        });
      } else if (key == "params") {
        params(value, at, loc, "", out);
      } else if (protocol_ != "mcp") {
        error(value.place, at, cat(loc, ".tool: MCP tool matching is only valid for protocol mcp"), "remove tool",
              "tool on another protocol");
      } else if (tool_and_name) {
        error(value.place, at, cat(loc, ": MCP rules must use either tool or params.name, not both"), "remove one of the two",
              "tool and params.name");
      } else {
        matcher(value, at, cat(loc, ".tool"), (*out.mutable_params())["name"]);
      }
    });
  }

  static bool has_params_name(const YamlNode& rule) {
    const auto* params = rule.find("params");
    return params != nullptr && params->kind == YamlNode::Kind::mapping && params->find("name") != nullptr;
  }

  // `{any: ["a", "b"]}` and nothing else beside it.
  static bool is_any_matcher(const YamlNode& node) {
    return node.kind == YamlNode::Kind::mapping && node.keys.size() == 1 && node.keys.front().text == "any" &&
           node.items.front()->kind == YamlNode::Kind::sequence &&
           std::all_of(node.items.front()->items.begin(), node.items.front()->items.end(),
                       [](const auto& item) { return item->kind == YamlNode::Kind::scalar && item->type == ScalarType::string; });
  }

  void matcher(const YamlNode& node, const std::string& path, const std::string& loc, pb::L7QueryMatcher& out) {
    if (node.kind != YamlNode::Kind::mapping) {
      string(node, path, *out.mutable_glob());
      return;
    }
    bool seen = false;
    each_key(node, path, kMatcher, [&](std::string_view, const YamlNode& value, const std::string& at) {
      seen = true;
      if (is_empty_list(value)) error(value.place, at, cat(loc, ".any: list must not be empty"), "", "empty list");
      strings(value, at, *out.mutable_any());
    });
    if (!seen && node.keys.empty()) wrong(node, path, "a glob or `any: [glob, ...]`");
  }

  // Nested names are flattened with dots.
  template <class Rule>
  void params(const YamlNode& node, const std::string& path, const std::string& loc, const std::string& prefix, Rule& out) {
    each_entry(node, path, [&](const std::string& name, const YamlNode& item, const std::string& at) {
      const std::string flat = prefix.empty() ? name : cat(prefix, ".", name);
      if (item.kind == YamlNode::Kind::mapping && !is_any_matcher(item)) {
        if (item.keys.empty()) wrong(item, at, "a glob, `any: [glob, ...]` or nested names");
        params(item, at, loc, flat, out);
      } else if (out.params().contains(flat)) {
        error(item.place, at, cat("failed to decode sandbox policy fields: ", shown(at), ": parameter '", flat, "' is given twice"), "",
              "duplicate");
      } else {
        matcher(item, at, cat(loc, ".params.", flat), (*out.mutable_params())[flat]);
      }
    });
  }

  // --- middlewares
  // -----------------------------------------------------------------------------------------------------------------------------------

  void middleware(const YamlNode& node, const std::string& path, pb::NetworkMiddlewareConfig& out) {
    bool seen = false;
    each_key(node, path, kMiddleware, [&](std::string_view key, const YamlNode& value, const std::string& at) {
      std::int64_t order = 0;
      if (key == "name") {
        string(value, at, *out.mutable_name());
      } else if (key == "middleware") {
        seen = true;
        string(value, at, *out.mutable_middleware());
      } else if (key == "on_error") {
        string(value, at, *out.mutable_on_error());
      } else if (key == "order") {
        constexpr auto kLeast = std::numeric_limits<std::int32_t>::min();
        constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
        if (integer(value, at, kLeast, kMost, "order", order)) out.set_order(static_cast<std::int32_t>(order));
      } else if (key == "config") {
        if (is_mapping(value, at)) config(value, at, *out.mutable_config());
      } else {
        auto& selector = *out.mutable_endpoints();
        each_key(value, at, kSelector, [&](std::string_view field, const YamlNode& list, const std::string& where) {
          strings(list, where, field == "include" ? *selector.mutable_include() : *selector.mutable_exclude());
        });
      }
    });
    if (!seen && node.kind == YamlNode::Kind::mapping) missing(node, path, "middleware", "name the implementation");
  }

  void config(const YamlNode& node, const std::string& path, google::protobuf::Struct& out) {
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      config_value(*node.items[i], below(path, node.keys[i].text), (*out.mutable_fields())[node.keys[i].text]);
    }
  }

  void config_value(const YamlNode& node, const std::string& path, google::protobuf::Value& out) {
    if (node.kind == YamlNode::Kind::mapping) return config(node, path, *out.mutable_struct_value());
    if (node.kind == YamlNode::Kind::sequence) {
      auto& list = *out.mutable_list_value();
      for (std::size_t i = 0; i < node.items.size(); ++i) config_value(*node.items[i], cat(path, "[", i, "]"), *list.add_values());
      return;
    }
    switch (node.type) {
      case ScalarType::string:
        out.set_string_value(node.text);
        return;
      case ScalarType::null:
        out.set_null_value(google::protobuf::NULL_VALUE);
        return;
      case ScalarType::boolean:
        out.set_bool_value(node.text.front() == 't' || node.text.front() == 'T');
        return;
      default:
        break;
    }
    double number = std::numeric_limits<double>::quiet_NaN();
    std::int64_t whole = 0;
    if (node.type == ScalarType::integer && read_integer(node.text, whole)) {
      number = static_cast<double>(whole);
    } else {
      std::string_view written = node.text;
      if (written.starts_with('+')) written.remove_prefix(1);
      double value = 0;
      const auto [end, fault] = std::from_chars(written.data(), written.data() + written.size(), value);
      if (fault == std::errc{} && end == written.data() + written.size()) number = value;
    }
    if (!std::isfinite(number)) wrong(node, path, "a finite number");
    out.set_number_value(number);
  }

  std::string rule_key_;   // of the rule being read
  std::string rule_name_;  // as texts name it
  std::string loc_;        // `<rule>.endpoints[<i>]`
  std::string protocol_;   // of the endpoint being read, lower case
  std::string host_;
};

}  // namespace

void decode_policy(const YamlNode& root, pb::SandboxPolicy& policy, SourceMap& places, Diagnostics& diagnostics) {
  Decoder{places, diagnostics}.policy(root, policy);
}

std::vector<std::pair<std::string, std::vector<std::string>>> known_keys() {
  const auto list = [](Keys keys) { return std::vector<std::string>(keys.begin(), keys.end()); };
  return {{"SandboxPolicy", list(kTop)},
          {"FilesystemPolicy", list(kFilesystem)},
          {"LandlockPolicy", list(kLandlock)},
          {"ProcessPolicy", list(kProcess)},
          {"NetworkPolicyRule", list(kRule)},
          {"NetworkBinary", list(kBinary)},
          {"NetworkEndpoint", list(kEndpoint)},
          {"L7Rule", list(kAllowWrapper)},
          {"L7Allow", list(kL7)},
          {"L7DenyRule", list(kL7)},
          {"L7QueryMatcher", list(kMatcher)},
          {"GraphqlOperation", list(kOperation)},
          {"NetworkCredentialBinding", list(kBinding)},
          {"json_rpc", list(kJsonRpc)},
          {"McpOptions", list(kMcp)},
          {"NetworkMiddlewareConfig", list(kMiddleware)},
          {"MiddlewareEndpointSelector", list(kSelector)}};
}

}  // namespace openshell::policy
