// The compiled request rules of one endpoint. Internal to the matcher.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/glob.hpp"
#include "policy/matcher.hpp"
#include "policy/path_index.hpp"

namespace openshell::policy {

struct QueryCondition {
  std::string name;
  std::vector<Glob> globs;  ///< One of them has to match.
};

/// A rule over method, path and query. Access presets become such rules.
struct HttpRule {
  int index = 0;  ///< In `rules`, in the preset's order, or in `deny_rules`.
  bool any_method = false;
  std::string method;  ///< Upper case.
  Glob path;
  std::vector<QueryCondition> query;
};

/// A rule over GraphQL operations.
struct OperationRule {
  int index = 0;
  bool any_type = false;
  std::string type;  ///< Lower case.
  bool any_name = false;
  Glob name;
  std::vector<Glob> fields;  ///< Empty: any.
};

/// A rule over JSON-RPC and MCP calls.
struct CallRule {
  int index = 0;
  bool any_method = false;
  std::string method;  ///< As written.
  Glob method_glob;    ///< mcp.
  bool selects_tool = false;
  std::vector<Glob> tools;  ///< One of them has to match.
};

/// Rules in their order, found by path where they are many.
class HttpRules {
 public:
  static constexpr std::size_t kIndexedFrom = 12;  ///< Fewer are looked at one after the other.

  void add(HttpRule rule) { rules_.push_back(std::move(rule)); }
  void finish();
  [[nodiscard]] const std::vector<HttpRule>& all() const noexcept { return rules_; }
  /// The first rule for which `holds(rule)` and whose path matches; null: none.
  template <class Holds>
  [[nodiscard]] const HttpRule* first(std::string_view path, Holds&& holds) const {
    if (!indexed_) {
      for (const HttpRule& rule : rules_) {
        if (holds(rule) && rule.path.matches(path)) return &rule;
      }
      return nullptr;
    }
    std::size_t best = rules_.size();
    index_.candidates(path, [&](const std::vector<std::uint32_t>& items) {
      for (const auto item : items) {
        if (item >= best) return;
        if (!holds(rules_[item]) || !rules_[item].path.matches(path)) continue;
        best = item;
        return;
      }
    });
    return best == rules_.size() ? nullptr : &rules_[best];
  }

 private:
  std::vector<HttpRule> rules_;
  PathIndex index_;
  bool indexed_ = false;
};

/// What a RuleSet says to a request.
struct RuleHit {
  bool hit = false;
  int rule = -1;  ///< -1: by what the endpoint says as a whole.
};

struct RuleSet {
  Protocol protocol = Protocol::none;
  Glob path;  ///< The endpoint's own path selector.
  HttpRules allow;
  HttpRules deny;
  std::vector<OperationRule> allow_operations;
  std::vector<OperationRule> deny_operations;
  std::vector<CallRule> allow_calls;
  std::vector<CallRule> deny_calls;
  bool core_methods = false;      ///< mcp: every core method of the request's revision is allowed...
  bool names_tools = false;       ///< ...but tools/call only by a rule where some allow rule names tools.
  bool allow_registered = false;  ///< GraphQL: persisted queries of the registry may be asked for by hash or id.
  absl::flat_hash_map<std::string, GraphqlOperation> registry;

  [[nodiscard]] RuleHit allowing(const Request& request) const;
  /// A deny rule, or what the protocol refuses whatever the rules say.
  [[nodiscard]] RuleHit denying(const Request& request) const;
  /// The allow rule that came furthest and what of it did not fit. For refused requests: allocates nothing, but looks at every rule.
  [[nodiscard]] Miss nearest(const Request& request) const;
  /// The operation as it is judged: the registry's, where the request names one. Null: it is not registered.
  [[nodiscard]] const GraphqlOperation* effective(const GraphqlOperation& operation) const;
  /// Every operation is registered where it has to be.
  [[nodiscard]] bool all_registered(const GraphqlContent& content) const;
};

/// Compiles the rules of an endpoint in canonical form. INVALID_ARGUMENT names the pattern.
absl::StatusOr<RuleSet> compile_rules(const pb::NetworkEndpoint& endpoint, Protocol protocol);
/// Its parts: rules over operations and calls. `where` names the rule in errors.
absl::StatusOr<Glob> compile_glob(const std::string& pattern, GlobKind kind, std::string_view where);
absl::Status compile_operations(const pb::NetworkEndpoint& endpoint, RuleSet& out);
absl::Status compile_calls(const pb::NetworkEndpoint& endpoint, RuleSet& out);

/// The first field of a rule that a call or operation does not fit; Field::none: it fits. A deny rule covers more: extension methods by
/// glob, an operation with one of the fields. `call` has a method.
[[nodiscard]] Field misfit(const CallRule& rule, Protocol protocol, const JsonRpcContent& call, bool deny);
[[nodiscard]] Field misfit(const OperationRule& rule, const GraphqlOperation& operation, bool deny);

/// What the endpoint's access preset stands for, in the order in which it becomes rules: methods, or operation types of graphql. `*`: every
/// one. Empty: it has no preset.
[[nodiscard]] std::span<const std::string_view> preset_words(const pb::NetworkEndpoint& endpoint, Protocol protocol);

/// The patterns of a matcher of a query parameter or a param, one of which has to match.
[[nodiscard]] std::vector<std::string> patterns_of(const pb::L7QueryMatcher& matcher);

/// True where the endpoint judges WebSocket text as GraphQL.
[[nodiscard]] bool has_graphql_policy(const pb::NetworkEndpoint& endpoint);

/// The endpoint without its rules and without where it applies: same bytes for the same handling of requests.
[[nodiscard]] std::string handling_of(const pb::NetworkEndpoint& endpoint);

/// The protocol of an endpoint, any case; nullopt: not a known one.
std::optional<Protocol> parse_protocol(std::string_view text);

}  // namespace openshell::policy
