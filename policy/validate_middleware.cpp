// Checks of network_middlewares that need no implementation.
#include <algorithm>
#include <cmath>
#include <map>

#include "policy/glob.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"
#include "policy/validate_parts.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

// Why a selector pattern is none; empty when it is.
std::string selector_fault(std::string_view pattern) {
  if (pattern.empty()) return "host pattern must not be empty";
  if (pattern.find_first_of(" \t\r\n") != std::string_view::npos) return "host pattern must not contain whitespace";
  if (pattern.find_first_of("{}") != std::string_view::npos) {
    return "host pattern must not contain brace alternates; list each host pattern separately";
  }
  if (pattern.starts_with('.') || pattern.ends_with('.') || pattern.find("..") != std::string_view::npos) {
    return "host pattern must not contain empty DNS labels";
  }
  if (const auto glob = Glob::compile(pattern, GlobKind::host); !glob.ok()) {
    return cat("invalid host pattern: ", std::string{glob.status().message()});
  }
  return {};
}

// A number that is not finite and a value of no kind have no text.
bool has_text(const google::protobuf::Value& value);
bool has_text(const google::protobuf::Struct& object) {
  return std::all_of(object.fields().begin(), object.fields().end(), [](const auto& field) { return has_text(field.second); });
}
bool has_text(const google::protobuf::Value& value) {
  if (value.has_struct_value()) return has_text(value.struct_value());
  if (value.has_list_value()) {
    const auto& items = value.list_value().values();
    return std::all_of(items.begin(), items.end(), [](const auto& item) { return has_text(item); });
  }
  if (value.has_number_value()) return std::isfinite(value.number_value());
  return value.kind_case() != google::protobuf::Value::KIND_NOT_SET;
}

bool is_literal(std::string_view pattern) { return pattern.find_first_of("*?[") == std::string_view::npos; }

bool host_overlap(std::string_view a, std::string_view b) {
  const auto x = Glob::compile(text::lower(a), GlobKind::host);
  const auto y = Glob::compile(text::lower(b), GlobKind::host);
  return !x.ok() || !y.ok() || Glob::overlap(*x, *y);
}

// Could the selector pick a host that the endpoint admits? Errs on the side of yes.
bool may_select(const pb::MiddlewareEndpointSelector& selector, const std::string& host) {
  for (const auto& include : selector.include()) {
    if (!host.empty() && !host_overlap(include, host)) continue;
    const bool excluded = std::any_of(selector.exclude().begin(), selector.exclude().end(), [&](const std::string& exclude) {
      if (!host.empty() && is_literal(host)) return host_overlap(exclude, host);
      if (is_literal(include)) return host_overlap(exclude, include);
      return exclude == "**" || text::lower(exclude) == text::lower(include) || text::lower(exclude) == text::lower(host);
    });
    if (!excluded) return true;
  }
  return false;
}

class MiddlewareCheck {
 public:
  MiddlewareCheck(const pb::SandboxPolicy& policy, Diagnostics& out) : policy_{policy}, out_{out} {}

  void run() {
    const auto count = policy_.network_middlewares().size();
    if (count > kMaxMiddlewares) {
      out_.error("network_middlewares", cat("too many middleware configs (", count, " > ", kMaxMiddlewares, ")"), "",
                 "too many middlewares");
    }
    std::map<std::string, const pb::NetworkMiddlewareConfig*> ordered;
    for (const auto& [key, config] : policy_.network_middlewares()) ordered.emplace(key, &config);
    std::map<std::int32_t, std::string> orders;
    for (const auto& [key, config] : ordered) {
      const auto [taken, fresh] = orders.emplace(config->order(), key);
      if (!fresh) {
        out_.error(cat("network_middlewares.", key, ".order"),
                   cat("middleware configs '", taken->second, "' and '", key, "' use duplicate order ", config->order()), "",
                   "duplicate order");
      }
      one(key, *config);
    }
  }

 private:
  void invalid(const std::string& key, std::string_view field, std::string_view reason, std::string kind) {
    out_.error(cat("network_middlewares.", key, field), cat("middleware config '", key, "' is invalid: ", reason), "", std::move(kind));
  }

  void one(const std::string& key, const pb::NetworkMiddlewareConfig& config) {
    if (key.empty()) invalid(key, "", "name must not be empty", "empty name");
    if (config.middleware().empty()) invalid(key, ".middleware", "middleware must not be empty", "empty middleware");
    if (!config.on_error().empty() && config.on_error() != "fail_closed" && config.on_error() != "fail_open") {
      invalid(key, ".on_error", cat("invalid on_error '", shorten(config.on_error(), 64), "'"), "unknown on_error value");
    }
    if (!has_text(config.config())) {
      invalid(key, ".config", "config holds a number that is not finite, or a value of no kind", "value without a text");
    }
    if (!config.has_endpoints()) {
      invalid(key, ".endpoints", "endpoint selector is required", "no selector");
      return;
    }
    selector(key, config.endpoints());
    if (config.on_error() != "fail_open") uninspectable(key, config.endpoints());
  }

  void selector(const std::string& key, const pb::MiddlewareEndpointSelector& selector) {
    if (selector.include_size() == 0) {
      invalid(key, ".endpoints", "endpoint selector must include at least one host pattern", "empty selector");
    }
    const auto patterns = static_cast<std::size_t>(selector.include_size()) + static_cast<std::size_t>(selector.exclude_size());
    if (patterns > kMaxMiddlewarePatterns) {
      out_.error(cat("network_middlewares.", key, ".endpoints"),
                 cat("middleware config '", key, "' has too many selector patterns (", patterns, " > ", kMaxMiddlewarePatterns, ")"), "",
                 "too many patterns");
    }
    const auto check = [&](const auto& list, std::string_view name) {
      for (int i = 0; i < list.size(); ++i) {
        const std::string fault = selector_fault(list.Get(i));
        if (fault.empty()) continue;
        invalid(key, cat(".endpoints.", name, "[", i, "]"),
                cat("endpoint selector pattern '", shorten(list.Get(i), 256), "' is invalid: ", fault), "invalid host pattern");
      }
    };
    check(selector.include(), "include");
    check(selector.exclude(), "exclude");
  }

  // A middleware that must see every request cannot watch over a tunnel that nobody looks into.
  void uninspectable(const std::string& key, const pb::MiddlewareEndpointSelector& selector) {
    std::map<std::string_view, const pb::NetworkPolicyRule*> rules;
    for (const auto& [name, rule] : policy_.network_policies()) rules.emplace(name, &rule);
    for (const auto& [name, rule] : rules) {
      for (const auto& endpoint : rule->endpoints()) {
        if (endpoint.tls() != pb::NETWORK_TLS_MODE_SKIP || !may_select(selector, endpoint.host())) continue;
        out_.error(cat("network_middlewares.", key, ".endpoints"),
                   cat("middleware config '", key, "' selects network policy '", rule->name().empty() ? std::string{name} : rule->name(),
                       "' tls: skip endpoint '", endpoint.host(), "'"),
                   "exclude the host, or set on_error: fail_open", "middleware on a tls: skip endpoint");
      }
    }
  }

  const pb::SandboxPolicy& policy_;
  Diagnostics& out_;
};

}  // namespace

void check_middlewares(const pb::SandboxPolicy& policy, Diagnostics& out) { MiddlewareCheck{policy, out}.run(); }

}  // namespace openshell::policy
