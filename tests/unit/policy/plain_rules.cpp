#include "tests/unit/policy/plain_rules.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace openshell::policy::plain {
namespace {

namespace pb = openshell::sandbox::v1;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == at) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out{text};
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

// `*` is any run of one segment; only letters, digits and `*` occur in the tests' patterns.
bool run_matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern.front() != '*') return !text.empty() && pattern.front() == text.front() && run_matches(pattern.substr(1), text.substr(1));
  return run_matches(pattern.substr(1), text) || (!text.empty() && run_matches(pattern, text.substr(1)));
}

bool segment_matches(std::string_view pattern, std::string_view text) {
  return text.empty() ? pattern.empty() : run_matches(pattern, text);
}

using Parts = std::vector<std::string>;
bool segments_match(const Parts& pattern, std::size_t i, const Parts& text, std::size_t j) {
  if (i == pattern.size()) return j == text.size();
  if (pattern[i] != "**") return j < text.size() && segment_matches(pattern[i], text[j]) && segments_match(pattern, i + 1, text, j + 1);
  if (i + 1 == pattern.size()) return j < text.size();  // one or more
  return segments_match(pattern, i + 1, text, j) || (j < text.size() && segments_match(pattern, i, text, j + 1));
}

bool everything(std::string_view pattern) { return pattern.empty() || pattern == "**" || pattern == "/**"; }

struct Candidate {
  std::string key;
  int index = 0;
  const pb::NetworkEndpoint* endpoint = nullptr;
};

bool inspected(const std::string& protocol) {
  return protocol == "rest" || protocol == "websocket" || protocol == "graphql" || protocol == "json-rpc" || protocol == "mcp";
}
bool inspects(const pb::NetworkEndpoint& e) { return inspected(e.protocol()) && e.tls() != pb::NETWORK_TLS_MODE_SKIP; }
bool metadata(const pb::NetworkEndpoint& e) {
  return !e.protocol().empty() || e.allowed_ips_size() > 0 || e.tls() != pb::NETWORK_TLS_MODE_UNSPECIFIED || e.has_credential_binding();
}

bool admits(const pb::NetworkEndpoint& e, const Question& q) {
  if (std::find(e.ports().begin(), e.ports().end(), static_cast<std::uint32_t>(q.port)) == e.ports().end()) return false;
  if (e.host().find('*') == std::string::npos) return lower(e.host()) == q.host;
  return host_matches(lower(e.host()), q.host);
}

bool binary_matches(const std::string& pattern, const std::string& path) {
  if (path.empty()) return false;
  return pattern.find('*') == std::string::npos ? pattern == path : segments_match(split(pattern, '/'), 0, split(path, '/'), 0);
}
bool admits(const pb::NetworkPolicyRule& rule, const Question& q) {
  return std::any_of(rule.binaries().begin(), rule.binaries().end(), [&](const auto& binary) {
    return binary_matches(binary.path(), q.binary) ||
           std::any_of(q.ancestors.begin(), q.ancestors.end(), [&](const auto& path) { return binary_matches(binary.path(), path); });
  });
}

bool covers(const pb::NetworkEndpoint& e, const Question& q) { return path_matches(e.path(), q.path); }

// Larger decides, row by row.
auto connection_key(const Candidate& c) {
  const auto& e = *c.endpoint;
  const auto stars = static_cast<int>(std::count(e.host().begin(), e.host().end(), '*'));
  const int host_class = stars == 0 ? 3 : e.host().find("**") == std::string::npos ? 2 : 1;
  const int characters = stars == 0 ? 0 : static_cast<int>(e.host().size()) - stars;
  const std::set<std::uint32_t> ports{e.ports().begin(), e.ports().end()};
  return std::make_tuple(!e.advisor_proposed(), host_class, characters, stars == 0 ? 0 : -stars, ports.size() == 1);
}
auto path_key(const std::string& path) {
  if (everything(path)) return std::make_pair(0, 0);
  int segments = 0, characters = 0;
  bool literal = true;
  const auto parts = split(path, '/');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    literal = literal && parts[i].find('*') == std::string::npos;
    if (literal && i > 0) ++segments;
  }
  for (const char c : path) characters += c == '*' ? 0 : 1;
  return std::make_pair(segments, characters);
}
bool is_user(const Candidate& c) { return c.key.rfind("_provider_", 0) != 0; }
bool before(const Candidate& a, const Candidate& b, bool request) {
  const auto ka = std::make_tuple(connection_key(a), request ? path_key(a.endpoint->path()) : std::make_pair(0, 0), is_user(a));
  const auto kb = std::make_tuple(connection_key(b), request ? path_key(b.endpoint->path()) : std::make_pair(0, 0), is_user(b));
  if (ka != kb) return ka > kb;
  return std::tie(a.key, a.index) < std::tie(b.key, b.index);
}
std::string name_of(const std::vector<Candidate>& sorted) {
  return sorted.empty() ? "" : sorted.front().key + "#" + std::to_string(sorted.front().index);
}

// --- what rules say

std::vector<std::string> globs_of(const pb::L7QueryMatcher& m) {
  return m.any_size() > 0 ? std::vector<std::string>{m.any().begin(), m.any().end()} : std::vector<std::string>{m.glob()};
}
bool matcher_matches(const pb::L7QueryMatcher& m, const std::string& value) {
  const auto globs = globs_of(m);
  return std::any_of(globs.begin(), globs.end(), [&](const auto& glob) { return name_matches(glob, value); });
}
bool method_matches(const std::string& rule, const std::string& method) {
  return rule == "*" || lower(rule) == lower(method) || (lower(rule) == "get" && lower(method) == "head");
}

template <class Rule>
bool query_matches(const Rule& rule, const Question& q, bool deny) {
  return std::all_of(rule.query().begin(), rule.query().end(), [&](const auto& entry) {
    int present = 0, good = 0;
    for (const auto& [name, value] : q.query) {
      if (name != entry.first) continue;
      ++present;
      good += matcher_matches(entry.second, value) ? 1 : 0;
    }
    return deny ? good > 0 : present > 0 && good == present;
  });
}

bool rpc(const std::string& protocol) { return protocol == "json-rpc" || protocol == "mcp"; }
bool has_error(const JsonRpcContent& c) { return c.error && !c.error->empty(); }

template <class Rule>
bool call_matches(const Rule& rule, const pb::NetworkEndpoint& e, const JsonRpcContent& c, bool deny) {
  const bool tool = rule.params().contains("name");
  std::string method = rule.method();
  if (method.empty() && e.mcp().allow_all_known_mcp_methods()) method = tool ? "tools/call" : "*";
  if (method.empty()) return false;
  bool fits = false;
  if (e.protocol() == "json-rpc") fits = method == "*" || method == *c.method;
  if (e.protocol() == "mcp" && (deny || c.classification == McpMethod::available)) fits = name_matches(method, *c.method);
  if (e.protocol() == "mcp" && !deny && c.classification == McpMethod::extension) fits = method == *c.method;
  if (!fits || !tool) return fits;
  const auto name = c.params.find("name");
  return name != c.params.end() && matcher_matches(rule.params().at("name"), name->second);
}

struct Effective {
  bool known = true;
  std::string type, name;
  std::vector<std::string> fields;
};
Effective effective(const pb::NetworkEndpoint& e, const GraphqlOperation& o) {
  if (!o.persisted || !o.type.empty()) return {true, o.type, o.name, o.fields};
  const auto& key = o.persisted_hash.empty() ? o.persisted_id : o.persisted_hash;
  const auto found = e.graphql_persisted_queries().find(key);
  if (e.persisted_queries() != "allow_registered" || found == e.graphql_persisted_queries().end()) return {false, "", "", {}};
  const auto& entry = found->second;
  return {true, entry.operation_type(), entry.operation_name(), {entry.fields().begin(), entry.fields().end()}};
}

bool operation_matches(const std::string& type, const std::string& name, const std::vector<std::string>& fields, const Effective& o,
                       bool deny) {
  if (type != "*" && (type.empty() || lower(type) != lower(o.type))) return false;
  if (!name.empty() && !name_matches(name, o.name)) return false;
  if (fields.empty()) return true;
  const auto listed = [&](const std::string& field) {
    return std::any_of(fields.begin(), fields.end(), [&](const auto& pattern) { return name_matches(pattern, field); });
  };
  return deny ? std::any_of(o.fields.begin(), o.fields.end(), listed)
              : !o.fields.empty() && std::all_of(o.fields.begin(), o.fields.end(), listed);
}

bool graphql_allowed(const pb::NetworkEndpoint& e, const GraphqlContent& content) {
  if (content.operations.empty() || !content.error.empty()) return false;
  return std::all_of(content.operations.begin(), content.operations.end(), [&](const auto& operation) {
    const auto o = effective(e, operation);
    if (!o.known) return false;
    if (e.rules_size() == 0 && e.protocol() == "graphql") {
      const auto access = e.access();
      return access == pb::NETWORK_ACCESS_PRESET_FULL || (access != 0 && lower(o.type) == "query") ||
             (access == pb::NETWORK_ACCESS_PRESET_READ_WRITE && lower(o.type) == "mutation");
    }
    return std::any_of(e.rules().begin(), e.rules().end(), [&](const auto& rule) {
      const auto& a = rule.allow();
      return !a.operation_type().empty() &&
             operation_matches(a.operation_type(), a.operation_name(), {a.fields().begin(), a.fields().end()}, o, false);
    });
  });
}

bool preset_allows(const pb::NetworkEndpoint& e, const Question& q) {
  const auto any = [&](std::initializer_list<const char*> methods) {
    return std::any_of(methods.begin(), methods.end(), [&](const char* method) { return method_matches(method, q.method); });
  };
  const bool websocket = e.protocol() == "websocket";
  switch (e.access()) {
    case pb::NETWORK_ACCESS_PRESET_FULL:
      return true;
    case pb::NETWORK_ACCESS_PRESET_READ_ONLY:
      return websocket ? any({"GET"}) : any({"GET", "HEAD", "OPTIONS"});
    case pb::NETWORK_ACCESS_PRESET_READ_WRITE:
      return websocket ? any({"GET", "WEBSOCKET_TEXT"}) : any({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"});
    default:
      return false;
  }
}

bool allowed_by(const pb::NetworkEndpoint& e, const Question& q) {
  if (rpc(e.protocol())) {
    if (q.jsonrpc == nullptr) return false;
    const auto& c = *q.jsonrpc;
    const bool mcp = e.protocol() == "mcp";
    if (has_error(c)) return false;
    if (mcp && q.method == "GET") return c.receive_stream && !c.method && !c.has_response;
    if (q.method != "POST") return false;
    if (c.has_response) return mcp;
    if (!c.method || c.method->empty()) return false;
    bool names_tools = false;
    for (const auto& rule : e.rules()) {
      if (call_matches(rule.allow(), e, c, false)) return true;
      names_tools = names_tools || rule.allow().params().contains("name");
    }
    return mcp && e.mcp().allow_all_known_mcp_methods() && c.classification == McpMethod::available &&
           !(*c.method == "tools/call" && names_tools);
  }
  if (q.graphql != nullptr && graphql_allowed(e, *q.graphql)) return true;
  if (e.rules_size() == 0 && e.protocol() != "graphql") return preset_allows(e, q);
  return std::any_of(e.rules().begin(), e.rules().end(), [&](const auto& rule) {
    const auto& a = rule.allow();
    return !a.method().empty() && method_matches(a.method(), q.method) && path_matches(a.path(), q.path) && query_matches(a, q, false);
  });
}

bool denied_by(const pb::NetworkEndpoint& e, const Question& q) {
  for (const auto& rule : e.deny_rules()) {
    const bool http = !rule.method().empty() || !rule.path().empty() || !rule.query().empty();
    if (!rpc(e.protocol()) && http && (rule.method().empty() || method_matches(rule.method(), q.method)) &&
        path_matches(rule.path(), q.path) && query_matches(rule, q, true)) {
      return true;
    }
    if (rpc(e.protocol()) && q.jsonrpc != nullptr && q.method == "POST" && q.jsonrpc->method && !q.jsonrpc->method->empty() &&
        call_matches(rule, e, *q.jsonrpc, true)) {
      return true;
    }
    if (q.graphql == nullptr || rule.operation_type().empty()) continue;
    for (const auto& operation : q.graphql->operations) {
      const auto o = effective(e, operation);
      if (o.known &&
          operation_matches(rule.operation_type(), rule.operation_name(), {rule.fields().begin(), rule.fields().end()}, o, true)) {
        return true;
      }
    }
  }
  if (!inspects(e)) return false;
  if (e.protocol() == "json-rpc" && q.jsonrpc != nullptr && q.method == "POST" && q.jsonrpc->has_response) return true;
  return (e.protocol() == "graphql" || e.protocol() == "websocket") && q.graphql != nullptr && !graphql_allowed(e, *q.graphql);
}

}  // namespace

bool path_matches(std::string_view pattern, std::string_view path) {
  return everything(pattern) || segments_match(split(pattern, '/'), 0, split(path, '/'), 0);
}

bool host_matches(std::string_view pattern, std::string_view host) {
  const auto labels = split(pattern, '.');
  const auto text = split(host, '.');
  if (labels.front() == "**") {
    if (text.size() < labels.size()) return false;
    return std::equal(labels.rbegin(), labels.rend() - 1, text.rbegin(),
                      [](const auto& p, const auto& t) { return segment_matches(p, t); });
  }
  return labels.size() == text.size() &&
         std::equal(labels.begin(), labels.end(), text.begin(), [](const auto& p, const auto& t) { return segment_matches(p, t); });
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.substr(0, 2) == "**") {
    return name_matches(pattern.substr(2), name) || (!name.empty() && name_matches(pattern, name.substr(1)));
  }
  if (pattern.front() == '*') {
    return name_matches(pattern.substr(1), name) || (!name.empty() && name.front() != '.' && name_matches(pattern, name.substr(1)));
  }
  return !name.empty() && pattern.front() == name.front() && name_matches(pattern.substr(1), name.substr(1));
}

Answer answer(const pb::SandboxPolicy& policy, const Question& question) {
  Answer out;
  std::map<std::string, const pb::NetworkPolicyRule*> rules;
  for (const auto& [key, rule] : policy.network_policies()) rules.emplace(key, &rule);
  std::vector<Candidate> matching, candidates;
  for (const auto& [key, rule] : rules) {
    if (!admits(*rule, question)) continue;
    for (int i = 0; i < rule->endpoints_size(); ++i) {
      const auto& e = rule->endpoints(i);
      if (!admits(e, question)) continue;
      if (matching.empty()) out.matched = key;
      matching.push_back({key, i, &e});
      if (metadata(e)) candidates.push_back(matching.back());
      out.exact_host = out.exact_host || (e.host().find('*') == std::string::npos && !e.advisor_proposed());
    }
  }
  out.allow_network = !matching.empty();
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return before(a, b, false); });
  out.connection_decides = name_of(candidates);
  std::vector<Candidate> covering;
  for (const auto& c : candidates) {
    if (covers(*c.endpoint, question)) covering.push_back(c);
  }
  std::sort(covering.begin(), covering.end(), [](const auto& a, const auto& b) { return before(a, b, true); });
  out.request_decides = name_of(covering);
  const bool any_inspects = std::any_of(candidates.begin(), candidates.end(), [](const auto& c) { return inspects(*c.endpoint); });
  if (!any_inspects) {
    out.allow_request = out.allow_network;
    return out;
  }
  if (covering.empty()) return out;
  const auto& deciding = *covering.front().endpoint;
  if (!inspects(deciding)) {
    out.allow_request = true;
    return out;
  }
  for (const auto& c : candidates) {
    if (inspected(c.endpoint->protocol()) && covers(*c.endpoint, question) && denied_by(*c.endpoint, question)) return out;
  }
  out.allow_request = std::any_of(candidates.begin(), candidates.end(), [&](const auto& c) {
    return c.endpoint->protocol() == deciding.protocol() && inspects(*c.endpoint) && covers(*c.endpoint, question) &&
           allowed_by(*c.endpoint, question);
  });
  return out;
}

}  // namespace openshell::policy::plain
