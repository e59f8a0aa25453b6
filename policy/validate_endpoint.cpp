// Checks of one endpoint but for its rules.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>

#include "messages/values.hpp"
#include "policy/glob.hpp"
#include "policy/mcp_versions.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"
#include "policy/validate_parts.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

bool is_address(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

std::vector<std::string_view> labels_of(std::string_view host) {
  std::vector<std::string_view> out;
  while (true) {
    const auto dot = host.find('.');
    out.push_back(host.substr(0, dot));
    if (dot == std::string_view::npos) return out;
    host.remove_prefix(dot + 1);
  }
}

// The host with every wildcard label part replaced by a letter, to ask whether it could be a DNS name.
std::string without_wildcards(std::string_view host) {
  std::string out;
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (host[i] != '*') {
      out += host[i];
    } else if (i == 0 || host[i - 1] != '*') {
      out += 'x';
    }
  }
  return out;
}

// Why a tcp endpoint's host cannot be a DNS name or pattern; empty when it can.
std::string dns_fault(std::string_view host) {
  if (text::trim(host) != host) return "leading or trailing whitespace is not allowed";
  if (host == ".") return "DNS root is not a destination hostname";
  if (host.ends_with('.')) return "omit the trailing DNS root dot";
  if (host.find_first_of(" \t\r\n") != std::string_view::npos) return "host pattern must not contain whitespace";
  for (const auto label : labels_of(host)) {
    if (label.empty()) return "host pattern must not contain empty DNS labels";
  }
  const std::string concrete = without_wildcards(host);
  if (const auto parsed = Host::parse(text::lower(concrete)); !parsed.ok()) {
    return cat("selector cannot represent a valid DNS name: ", std::string{parsed.status().message()});
  }
  return {};
}

// Protocols that are inspected may have rules; the others only a destination.
bool takes_rules(Protocol protocol) { return is_inspected(protocol) || protocol == Protocol::sql; }

class EndpointCheck {
 public:
  EndpointCheck(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Diagnostics& out)
      : place_{place}, endpoint_{endpoint}, out_{out}, protocol_{parse_protocol(endpoint.protocol())} {}

  void host() {
    const std::string& host = endpoint_.host();
    const std::string_view trimmed = text::trim(host);
    const bool tcp = protocol_ == Protocol::tcp;
    if (trimmed.empty()) {
      if (tcp) {
        error("host", "protocol tcp requires a DNS hostname; leave protocol out for a hostless allowed_ips endpoint", "missing host");
      } else if (endpoint_.allowed_ips_size() == 0) {
        error("host", "endpoint host must not be empty unless allowed_ips constrains a non-TCP proxy endpoint", "missing host");
      } else if (protocol_ == Protocol::mcp) {
        out_.error(at("host"), cat(place_.loc(), ": protocol mcp requires host; protocol alone is not a wildcard endpoint"), "",
                   "missing host");
      }
      return;
    }
    if (host.find_first_of("?[]{}") != std::string::npos) {
      error("host", cat("endpoint host '", shown(host), "' uses an unsupported pattern; only '*' and '**' are allowed"),
            "invalid host pattern",
            is_address(std::string{trimmed.substr(1, trimmed.size() > 2 ? trimmed.size() - 2 : 0)})
                ? "write the IPv6 address without brackets"
                : "");
      return;
    }
    if (wildcard_fault(host)) return;
    if (tcp && is_address(host)) {
      error("host",
            cat("protocol tcp endpoint '", shown(host),
                "' must use a DNS hostname, not an IP literal; leave protocol out or use tls: skip for a literal address"),
            "tcp with an IP literal");
      return;
    }
    const std::string fault = is_address(host) ? std::string{} : dns_fault(host);
    if (fault.empty()) return;
    const bool pattern = host.find('*') != std::string::npos;
    if (tcp) {
      error("host", cat("protocol tcp endpoint has invalid DNS host selector '", shown(host), "': ", fault), "invalid host");
    } else if (pattern) {  // compiled for every protocol: one that no name can match is a slip of the pen, not a rule
      error("host", cat("endpoint has invalid host pattern '", shown(host), "': ", fault), "invalid host pattern",
            host.find("://") != std::string::npos ? "write the host alone, without scheme and path" : "");
    } else {
      const bool url = host.find("://") != std::string::npos;
      out_.warning(at("host"),
                   cat(place_.loc(), ": host '", shown(host), "' is neither a DNS name or pattern nor an IP address and matches nothing"),
                   url ? "write the host alone, without scheme and path" : fault);
    }
  }

  void ports() {
    const auto check = [&](std::uint32_t port, const std::string& path) {
      if (port >= 1 && port <= 65'535) return;
      out_.error(path, text_of(cat("endpoint '", shown(endpoint_.host()), "' has invalid port ", port, "; expected 1..=65535")), "",
                 "invalid port");
    };
    if (endpoint_.ports_size() == 0 && endpoint_.port() == 0) {
      error("", cat("endpoint '", shown(endpoint_.host()), "' must declare at least one port"), "no port", "add `port: 443`");
      return;
    }
    for (int i = 0; i < endpoint_.ports_size(); ++i) check(endpoint_.ports(i), at(cat("ports[", i, "]")));
    if (endpoint_.ports_size() == 0) check(endpoint_.port(), at("port"));
  }

  void addresses() {
    for (int i = 0; i < endpoint_.allowed_ips_size(); ++i) {
      const std::string& entry = endpoint_.allowed_ips(i);
      const auto block = parse_address_block(entry);
      const std::string path = at(cat("allowed_ips[", i, "]"));
      if (!block.ok()) {
        out_.error(path, cat(place_.loc(), ": ", std::string{block.status().message()}), "write an address or a block like 10.0.0.0/8",
                   "invalid CIDR");
      } else if (touches_blocked(*block)) {
        out_.warning(
            path,
            cat(place_.loc(), ": allowed_ips entry ", entry,
                " falls within an always-blocked range (loopback, link-local or unspecified); no connection of this endpoint will be made"),
            "remove this entry");
      }
    }
  }

  void modes() {
    const auto number = [&](int value, int most, std::string_view name) {
      if (value >= 0 && value <= most) return;
      l7(name, cat("unknown ", name, " enum value ", value), cat("unknown ", name, " value"));
    };
    if (endpoint_.tls() == pb::NETWORK_TLS_MODE_TERMINATE || endpoint_.tls() == pb::NETWORK_TLS_MODE_PASSTHROUGH) {
      l7("tls",
         cat("unknown tls value '", endpoint_.tls() == pb::NETWORK_TLS_MODE_TERMINATE ? "terminate" : "passthrough",
             "'; omit the field to keep automatic TLS termination"),
         "unknown tls value");
    } else {
      number(endpoint_.tls(), pb::NETWORK_TLS_MODE_SKIP, "tls");
    }
    number(endpoint_.enforcement(), pb::NETWORK_ENFORCEMENT_MODE_AUDIT, "enforcement");
    number(endpoint_.access(), pb::NETWORK_ACCESS_PRESET_FULL, "access");
  }

  void protocol() {
    if (!protocol_) {
      constexpr std::array<std::string_view, 7> kKnown{"tcp", "rest", "websocket", "graphql", "sql", "json-rpc", "mcp"};
      const auto near = nearest(text::lower(endpoint_.protocol()), kKnown);
      l7("protocol",
         cat("unknown protocol '", shown(endpoint_.protocol()), "' (expected tcp, rest, websocket, graphql, sql, json-rpc, or mcp)"),
         "unknown protocol", near.empty() ? "" : cat("did you mean '", near, "'?"));
      return;
    }
    if (*protocol_ == Protocol::tcp) {
      raw_tcp();
    } else {
      base_set();
      if (endpoint_.deny_rules_size() > 0 && *protocol_ == Protocol::none) {
        l7("deny_rules", "deny_rules require protocol (L7 inspection must be enabled)", "deny_rules without protocol",
           "add `protocol: rest`");
      }
    }
    if (*protocol_ == Protocol::sql) {
      if (endpoint_.enforcement() == pb::NETWORK_ENFORCEMENT_MODE_ENFORCE) {
        l7("enforcement", "SQL enforcement requires full SQL parsing; use enforcement: audit", "sql with enforce");
      }
      out_.warning(at("protocol"), cat(place_.loc(), ": sql is not inspected"));
    }
    if (*protocol_ == Protocol::none && (endpoint_.access() != pb::NETWORK_ACCESS_PRESET_UNSPECIFIED || endpoint_.rules_size() > 0)) {
      out_.warning(at(endpoint_.rules_size() > 0 ? "rules" : "access"),
                   cat(place_.loc(), ": access and rules have no effect without protocol"), "add `protocol: rest`");
    }
    if (endpoint_.tls() == pb::NETWORK_TLS_MODE_SKIP && is_inspected(*protocol_)) {
      out_.warning(at("tls"), cat(place_.loc(), ": 'tls: skip' with L7 rules on port ",
                                  endpoint_.ports_size() > 0 ? endpoint_.ports(0) : endpoint_.port(),
                                  " - L7 inspection cannot work on encrypted traffic"));
    }
    ignored_fields();
    mcp_options();
    if (is_inspected(*protocol_) || endpoint_.deny_rules_size() > 0 || endpoint_.rules_size() > 0)
      check_rules(place_, endpoint_, *protocol_, out_);
  }

  void path() {
    const std::string& path = endpoint_.path();
    if (path.empty()) return;
    if (!path.starts_with('/') && path != "**") {
      l7("path", "path must start with '/' or be '**'", "invalid path");
      return;
    }
    const auto kind = endpoint_.allow_encoded_slash() ? GlobKind::path_encoded_slash : GlobKind::path;
    if (const auto glob = Glob::compile(path, kind); !glob.ok()) {
      out_.error(at("path"), cat(place_.loc(), ".path: glob pattern '", shown(path), "' ", std::string{glob.status().message()}), "",
                 "invalid glob");
    }
  }

  void limits() {
    if (endpoint_.graphql_max_body_bytes() > kMaxBodyLimitBytes) {
      l7("graphql_max_body_bytes", cat("graphql_max_body_bytes must not exceed ", kMaxBodyLimitBytes), "body limit too large");
    }
    if (endpoint_.json_rpc_max_body_bytes() > kMaxBodyLimitBytes) {
      l7(protocol_ == Protocol::mcp ? "mcp.max_body_bytes" : "json_rpc.max_body_bytes",
         cat("json_rpc_max_body_bytes must not exceed ", kMaxBodyLimitBytes), "body limit too large");
    }
    if (!endpoint_.persisted_queries().empty() && endpoint_.persisted_queries() != "deny" &&
        endpoint_.persisted_queries() != "allow_registered") {
      l7("persisted_queries",
         cat("persisted_queries must be 'deny' or 'allow_registered', got '", shown(endpoint_.persisted_queries()), "'"),
         "unknown persisted_queries value");
    }
  }

  void signing() {
    const std::string& mode = endpoint_.credential_signing();
    if (mode.empty()) return;
    const std::string name = cat("endpoint '", shown(endpoint_.host()), "' has ");
    if (mode != "sigv4" && mode != "sigv4:body" && mode != "sigv4:no_body") {
      error("credential_signing",
            cat(name, "unrecognized credential_signing value '", shown(mode), "' (expected sigv4, sigv4:body, or sigv4:no_body)"),
            "unknown credential_signing value");
    }
    if (protocol_ != Protocol::rest) {
      error("credential_signing", cat(name, "credential_signing set but its protocol is not rest"), "signing without rest");
    }
    if (endpoint_.signing_service().empty()) {
      error("credential_signing", cat(name, "credential_signing set but signing_service is empty"), "signing without service");
    }
    if (endpoint_.request_body_credential_rewrite()) {
      error("request_body_credential_rewrite",
            cat(name, "both credential_signing and request_body_credential_rewrite set; these options are mutually exclusive"),
            "signing with body rewrite");
    }
  }

 private:
  static std::string shown(std::string_view value) { return shorten(value, 256); }
  [[nodiscard]] std::string at(std::string_view field) const {
    return field.empty() || field.front() == '[' ? cat(place_.path(), field) : cat(place_.path(), ".", field);
  }
  [[nodiscard]] std::string text_of(std::string_view rest) const { return cat("network policy '", place_.rule_name, "': ", rest); }
  void error(std::string_view field, std::string_view rest, std::string kind, std::string cure = {}) {
    out_.error(at(field), text_of(rest), std::move(cure), std::move(kind));
  }
  void l7(std::string_view field, std::string_view reason, std::string kind, std::string cure = {}) {
    error(field, cat("endpoint ", place_.index, " has invalid L7 configuration: ", reason), std::move(kind), std::move(cure));
  }

  bool wildcard_fault(std::string_view host) {
    if (host.find('*') == std::string_view::npos) return false;
    const auto labels = labels_of(host);
    bool malformed = host == "*" || host == "**";
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const bool whole = labels[i] == "*" || (i == 0 && labels[i] == "**");
      if (whole || labels[i].find('*') == std::string_view::npos) continue;
      malformed = malformed || i > 0 || labels[i].find("**") != std::string_view::npos;
    }
    if (malformed) {
      error("host",
            cat("invalid host wildcard '", shown(host),
                "'; middle DNS label wildcards must be the entire label '*' and recursive '**' is only allowed as the entire first label"),
            "invalid host wildcard");
      return true;
    }
    if (labels.size() < 3) {
      error("host", cat("TLD wildcard '", shown(host), "' is not allowed; use subdomain wildcards like '*.example.com' instead"),
            "wildcard over a single label");
      return true;
    }
    return false;
  }

  static bool touches_blocked(const AddressBlock& block) {
    static const std::array<AddressBlock, 6> kBlocked{*parse_address_block("127.0.0.0/8"), *parse_address_block("169.254.0.0/16"),
                                                      *parse_address_block("0.0.0.0/8"),   *parse_address_block("::1"),
                                                      *parse_address_block("fe80::/10"),   *parse_address_block("::")};
    return std::any_of(kBlocked.begin(), kBlocked.end(),
                       [&](const AddressBlock& blocked) { return blocked.contains(block.network) || block.contains(blocked.network); });
  }

  [[nodiscard]] bool has_access() const { return endpoint_.access() != pb::NETWORK_ACCESS_PRESET_UNSPECIFIED; }
  [[nodiscard]] bool profile() const { return endpoint_.mcp().allow_all_known_mcp_methods(); }

  void raw_tcp() {
    if (has_access() || endpoint_.rules_size() > 0 || endpoint_.deny_rules_size() > 0) {
      l7(endpoint_.rules_size() > 0 ? "rules"
         : has_access()             ? "access"
                                    : "deny_rules",
         "protocol tcp does not support access, rules, or deny_rules; remove those L7 fields", "tcp with rules");
    }
    std::string fields;
    const auto name = [&](bool set, std::string_view field) {
      if (set) fields += cat(fields.empty() ? "" : ", ", field);
    };
    name(endpoint_.enforcement() != pb::NETWORK_ENFORCEMENT_MODE_UNSPECIFIED, "enforcement");
    name(!endpoint_.path().empty(), "path");
    name(endpoint_.allow_encoded_slash(), "allow_encoded_slash");
    name(endpoint_.websocket_credential_rewrite(), "websocket_credential_rewrite");
    name(endpoint_.request_body_credential_rewrite(), "request_body_credential_rewrite");
    name(!endpoint_.persisted_queries().empty(), "persisted_queries");
    name(!endpoint_.graphql_persisted_queries().empty(), "graphql_persisted_queries");
    name(endpoint_.graphql_max_body_bytes() != 0, "graphql_max_body_bytes");
    name(endpoint_.json_rpc_max_body_bytes() != 0, "json_rpc_max_body_bytes");
    name(endpoint_.has_mcp(), "mcp");
    name(!endpoint_.credential_signing().empty(), "credential_signing");
    name(!endpoint_.signing_service().empty(), "signing_service");
    name(!endpoint_.signing_region().empty(), "signing_region");
    name(endpoint_.has_credential_binding(), "credential_binding");
    if (!fields.empty()) {
      l7(fields.substr(0, fields.find(',')), cat("protocol tcp does not support L7-only fields: ", fields, "; remove those fields"),
         "tcp with L7 fields");
    }
  }

  // Rules or a preset have to say what is allowed.
  void base_set() {
    const bool rules = endpoint_.rules_size() > 0;
    const bool any = rules || has_access();
    if (rules && has_access()) l7("access", "rules and access are mutually exclusive", "rules and access");
    if (*protocol_ == Protocol::mcp) {
      if (has_access()) {
        l7("access",
           "protocol mcp does not support access presets; use rules/deny_rules or set mcp.allow_all_known_mcp_methods: true for an "
           "allow-all MCP policy",
           "mcp with access");
      } else if (!rules && !profile()) {
        l7("", "protocol mcp requires rules when mcp.allow_all_known_mcp_methods is false", "no rules");
      }
    } else if (*protocol_ == Protocol::json_rpc) {
      if (has_access()) {
        l7("access", "protocol json-rpc does not support access presets; use explicit rules with allow.method such as \"*\"",
           "json-rpc with access");
      } else if (!rules) {
        l7("", "protocol json-rpc requires explicit rules with allow.method", "no rules");
      }
    } else if (takes_rules(*protocol_) && !any) {
      l7("", "protocol requires rules or access to define allowed traffic", "no rules", "add `access: read-only` or rules");
    }
    if (rules && !(*protocol_ == Protocol::mcp && profile()) && all_empty()) {
      l7("rules", "rules would deny all traffic (no allow clause found). Use `access: full` or add allow clauses to rules.",
         "rules allow nothing");
    }
    if (endpoint_.deny_rules_size() > 0 && takes_rules(*protocol_) && *protocol_ != Protocol::mcp && !any) {
      l7("deny_rules", "deny_rules require rules or access to define the base allow set", "deny_rules without rules");
    }
  }

  [[nodiscard]] bool all_empty() const {
    return std::all_of(endpoint_.rules().begin(), endpoint_.rules().end(), [](const pb::L7Rule& rule) {
      const auto& a = rule.allow();
      return a.method().empty() && a.path().empty() && a.command().empty() && a.operation_type().empty() && a.operation_name().empty() &&
             a.fields_size() == 0 && a.params().empty();
    });
  }

  void ignored_fields() {
    const bool graphql = *protocol_ == Protocol::graphql || *protocol_ == Protocol::websocket;
    const bool graphql_fields =
        !endpoint_.persisted_queries().empty() || !endpoint_.graphql_persisted_queries().empty() || endpoint_.graphql_max_body_bytes() != 0;
    const bool tcp = *protocol_ == Protocol::tcp;  // an error there
    const auto warn = [&](std::string_view field, std::string_view what) { out_.warning(at(field), cat(place_.loc(), ": ", what)); };
    if (graphql_fields && !graphql && !tcp) {
      warn("persisted_queries", "GraphQL-specific endpoint fields are ignored unless protocol is graphql or websocket");
    }
    if (endpoint_.json_rpc_max_body_bytes() != 0 && *protocol_ != Protocol::json_rpc && *protocol_ != Protocol::mcp && !tcp) {
      warn("json_rpc", "JSON-RPC-specific endpoint fields are ignored unless protocol is json-rpc or mcp");
    }
    if (endpoint_.websocket_credential_rewrite() && *protocol_ != Protocol::websocket && !tcp) {
      warn("websocket_credential_rewrite", "websocket_credential_rewrite is ignored unless protocol is websocket");
    }
    if (endpoint_.request_body_credential_rewrite() && *protocol_ != Protocol::rest && !tcp) {
      warn("request_body_credential_rewrite", "request_body_credential_rewrite is ignored unless protocol is rest");
    }
  }

  void mcp_options() {
    if (*protocol_ != Protocol::mcp) {
      if (endpoint_.has_mcp() && *protocol_ != Protocol::tcp) {
        error("mcp",
              cat("endpoint '", shown(endpoint_.host()), "' uses protocol '", text::lower(endpoint_.protocol()),
                  "' and cannot configure mcp options"),
              "mcp options on another protocol");
      }
      return;
    }
    std::set<std::string> seen;
    for (int i = 0; i < endpoint_.mcp().versions_size(); ++i) {
      const std::string& version = endpoint_.mcp().versions(i);
      const std::string name = cat("MCP endpoint '", shown(endpoint_.host()), "' ");
      const std::string field = cat("mcp.versions[", i, "]");
      if (!is_mcp_version(version)) {
        error(field, cat(name, "has unsupported protocol version '", shorten(version, 64), "'; ", kMcpVersionsAccepted),
              "unsupported MCP version");
      } else if (!seen.insert(version).second) {
        error(field, cat(name, "repeats protocol version '", version, "'"), "duplicate MCP version");
      }
    }
  }

  const EndpointPlace& place_;
  const pb::NetworkEndpoint& endpoint_;
  Diagnostics& out_;
  std::optional<Protocol> protocol_;
};

}  // namespace

void check_host_and_ports(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Diagnostics& out) {
  EndpointCheck check{place, endpoint, out};
  check.host();
  check.ports();
  check.addresses();
}

void check_signing(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Diagnostics& out) {
  EndpointCheck{place, endpoint, out}.signing();
}

void check_l7(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Diagnostics& out) {
  EndpointCheck check{place, endpoint, out};
  check.modes();
  check.path();
  check.limits();
  check.protocol();
}

}  // namespace openshell::policy
