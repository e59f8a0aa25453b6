#include "policy/rules_file.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "policy/evaluator_data.hpp"
#include "policy/evaluator_input.hpp"
#include "policy/matcher.hpp"
#include "policy/rego/workspace.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using rego::Value;
using text::cat;

constexpr std::string_view kPackage = "data.openshell.sandbox.";
constexpr std::array<std::string_view, 2> kNeeded{"egress_authorization", "allow_request"};
constexpr std::array<std::string_view, 6> kAnswerKeys{"action",           "deny_reason",       "matched_policy",
                                                      "endpoint_configs", "matched_endpoints", "exact_declared_endpoint_host"};
constexpr std::string_view kFailed = "policy evaluation error: ";
constexpr std::string_view kNoConnection = "network connections not allowed by policy";
constexpr std::string_view kNoRequest = "request denied by policy";

absl::Status refused(std::string_view file, std::string_view why) {
  return absl::InvalidArgumentError(cat("policy rules ", file, ": ", why));
}

std::string all_of(const rego::Errors& errors) {
  std::string out;
  for (const auto& error : errors) out += (out.empty() ? "" : "\n") + rego::describe(error);
  return out;
}

/// A text member of an answer; null: it is of another type, or missing.
const Value* text_member(const Value& object, std::string_view key) {
  const Value* found = object.find(key);
  return found != nullptr && found->is_string() ? found : nullptr;
}

using Place = std::pair<std::string, std::uint32_t>;  ///< of an endpoint: key of its rule, index in it

/// What became of one query: a value, nothing, or an error.
struct Outcome {
  Value value;
  std::string error;
};

/// Modules, data and the prepared queries. Its values belong to one thread at a time: `ask` locks.
class Rules {
 public:
  absl::Status load(std::string_view source, std::string_view file, const Matcher& matcher) {
    if (source.size() > kMaxRulesFileBytes) return refused(file, "the source is larger than 1 MiB");
    if (auto error = workspace_.add_module("path.rego", path_shim())) return refused(file, rego::describe(*error));
    if (auto error = workspace_.add_module(file, source)) return absl::InvalidArgumentError(rego::describe(*error));
    const auto& module = workspace_.modules().back();
    if (module.package != std::vector<std::string>{"openshell", "sandbox"}) return refused(file, "package must be openshell.sandbox");
    for (const auto wanted : kNeeded) {
      if (!has_rule(module, wanted)) return refused(file, cat("missing rule ", wanted));
    }
    auto data = rego::parse_json(evaluator_data(matcher));
    if (!data.ok()) return data.status();
    if (auto status = workspace_.add_data(*data); !status.ok()) return status;
    if (const auto errors = workspace_.compile(); !errors.empty()) return absl::InvalidArgumentError(all_of(errors));
    index(*data);
    for (const auto name : {"egress_authorization", "allow_request", "request_deny_reason"}) {
      if (!has_rule(module, name)) continue;
      auto prepared = workspace_.prepare(cat(kPackage, name));
      if (const auto* errors = std::get_if<rego::Errors>(&prepared)) return refused(file, all_of(*errors));
      queries_.emplace(name, std::get<rego::Query>(std::move(prepared)));
    }
    return absl::OkStatus();
  }

  /// With the lock held.
  Outcome ask(std::string_view rule, const Value& input) const {
    const auto query = queries_.find(rule);
    if (query == queries_.end()) return {};
    rego::QueryOptions options;
    options.limits = {kMaxRuleSteps, kMaxRuleElements};
    options.strict_errors = true;
    auto answers = workspace_.ask(query->second, input, options);
    if (const auto* error = std::get_if<rego::Error>(&answers)) return {{}, error->message};
    auto& all = std::get<std::vector<rego::Answer>>(answers);
    if (all.empty()) return {};
    return {std::move(all.front().expressions.front()), {}};
  }

  /// The place of an endpoint of the data that says just this; the first one of several.
  [[nodiscard]] std::optional<Place> place_of(const Value& endpoint) const {
    const auto found = places_.find(endpoint);
    return found == places_.end() ? std::nullopt : std::optional{found->second};
  }
  /// Whether the data says `endpoint` at that place.
  [[nodiscard]] bool says(const Place& place, const Value& endpoint) const {
    const auto found = endpoints_.find(place);
    return found != endpoints_.end() && found->second == endpoint;
  }

  std::mutex& mutex() const { return mutex_; }

 private:
  static bool has_rule(const rego::Module& module, std::string_view name) {
    for (const auto& rule : module.rules) {
      if (!rule.is_function && rule.name.is_variable(name)) return true;
    }
    return false;
  }

  void index(const Value& data) {
    const Value* policies = data.find("network_policies");
    if (policies == nullptr) return;
    for (const auto& [key, rule] : policies->members()) {
      const Value* endpoints = rule.find("endpoints");
      if (endpoints == nullptr) continue;
      std::uint32_t position = 0;
      for (const auto& endpoint : endpoints->items()) {
        const Place place{std::string{key.text()}, position++};
        places_.try_emplace(endpoint, place);
        endpoints_.emplace(place, endpoint);
      }
    }
  }

  rego::Workspace workspace_{rego::Syntax::v1, true};  // nothing that is not a function of its arguments
  std::map<std::string, rego::Query, std::less<>> queries_;
  std::map<Value, Place> places_;
  std::map<Place, Value> endpoints_;
  mutable std::mutex mutex_;
};

/// One connection under the rules.
class RulesConnection final : public Arbitrated {
 public:
  RulesConnection(std::shared_ptr<const Rules> rules, const Matcher& matcher, const Destination& destination)
      : rules_{std::move(rules)},
        host_{destination.host},
        port_{destination.port},
        path_{destination.binary.path},
        ancestors_{destination.binary.ancestors.begin(), destination.binary.ancestors.end()},
        cmdline_{destination.binary.cmdline_paths.begin(), destination.binary.cmdline_paths.end()} {
    const std::lock_guard lock{rules_->mutex()};
    if (auto why = decide(matcher); !why.empty()) fail(why);
  }

  [[nodiscard]] Answer request(const Request& request) const override {
    const std::lock_guard lock{rules_->mutex()};
    const auto input = rego::parse_json(evaluator_input(destination(), &request));
    if (!input.ok()) return failed(std::string{input.status().message()});
    const auto allow = rules_->ask("allow_request", *input);
    if (!allow.error.empty()) return failed(allow.error);
    if (allow.value.is_true()) return {true, false, {}};
    if (allow.value.is_defined() && !allow.value.is_boolean()) return failed("allow_request is no boolean");
    const auto why = rules_->ask("request_deny_reason", *input);
    if (!why.error.empty()) return failed(why.error);
    if (why.value.is_defined() && !why.value.is_string()) return failed("request_deny_reason is no string");
    return {false, false, std::string{why.value.is_string() ? why.value.text() : kNoRequest}};
  }

 private:
  [[nodiscard]] Destination destination() const { return {host_, port_, {path_, ancestors_, cmdline_}}; }

  static Answer failed(std::string_view why) { return {false, true, cat(kFailed, why)}; }

  void fail(std::string_view why) {
    allowed = false;
    policy.clear();
    endpoints.clear();
    reason = cat(kFailed, why);
  }

  /// Empty: it is decided. Else what is wrong with the answer.
  std::string decide(const Matcher& matcher) {
    const auto input = rego::parse_json(evaluator_input(destination(), nullptr));
    if (!input.ok()) return std::string{input.status().message()};
    const auto answer = rules_->ask("egress_authorization", *input);
    if (!answer.error.empty()) return answer.error;
    if (!answer.value.is_defined()) {
      reason = kNoConnection;
      return {};
    }
    const Value& object = answer.value;
    if (!object.is_object() || object.size() != kAnswerKeys.size()) return "egress_authorization has not exactly its six members";
    for (const auto key : kAnswerKeys) {
      if (object.find(key) == nullptr) return cat("egress_authorization lacks ", key);
    }
    const Value* action = text_member(object, "action");
    const Value* why = text_member(object, "deny_reason");
    const Value* matched = text_member(object, "matched_policy");
    const Value* exact = object.find("exact_declared_endpoint_host");
    const Value* configs = object.find("endpoint_configs");
    if (action == nullptr || (action->text() != "allow" && action->text() != "deny")) return "action is neither allow nor deny";
    if (why == nullptr || matched == nullptr) return "deny_reason or matched_policy is no string";
    if (!exact->is_boolean() || !configs->is_array() || !object.find("matched_endpoints")->is_array())
      return "a member of egress_authorization is of another type";
    if (action->text() == "deny") {
      reason = why->text().empty() ? std::string{kNoConnection} : std::string{why->text()};
      return {};
    }
    allowed = true;
    policy = matched->text();
    exact_declared_host = exact->is_true();
    return take_endpoints(matcher, *configs, *object.find("matched_endpoints"));
  }

  /// Of endpoints that say the same, the one that the rules matched.
  std::optional<Place> place_of(const Value& config, const Value& matched, std::vector<bool>& used) const {
    std::size_t at = 0;
    for (const auto& record : matched.items()) {
      const std::size_t position = at++;
      const Value* endpoint = record.find("endpoint");
      const Value* name = record.find("policy_name");
      const Value* index = record.find("endpoint_index");
      if (used[position] || endpoint == nullptr || name == nullptr || index == nullptr || *endpoint != config) continue;
      const auto number = index->as_integer();
      if (!name->is_string() || !number || *number < 0 || *number > UINT32_MAX) continue;
      Place place{std::string{name->text()}, static_cast<std::uint32_t>(*number)};
      if (!rules_->says(place, config)) continue;
      used[position] = true;
      return place;
    }
    return rules_->place_of(config);
  }

  std::string take_endpoints(const Matcher& matcher, const Value& configs, const Value& matched) {
    std::vector<bool> used(matched.size(), false);
    for (const auto& config : configs.items()) {
      const auto place = place_of(config, matched, used);
      if (!place) return "endpoint_configs holds what is no endpoint of the data";
      const auto all = matcher.all_endpoints();
      const auto found = std::find_if(all.begin(), all.end(), [&](const Endpoint& endpoint) {
        return endpoint.index == place->second && endpoint.policy == place->first;
      });
      if (found == all.end()) return "endpoint_configs holds what is no endpoint of the policy";
      if (std::find(endpoints.begin(), endpoints.end(), &*found) == endpoints.end()) endpoints.push_back(&*found);
    }
    return {};
  }

  const std::shared_ptr<const Rules> rules_;
  const std::string host_;
  const std::uint16_t port_;
  const std::string path_;
  const std::vector<std::string> ancestors_, cmdline_;
};

class RulesFile final : public Arbiter {
 public:
  explicit RulesFile(std::shared_ptr<const Rules> rules) : rules_{std::move(rules)} {}
  [[nodiscard]] std::shared_ptr<const Arbitrated> connect(const Matcher& matcher, const Destination& destination) const override {
    return std::make_shared<RulesConnection>(rules_, matcher, destination);
  }

 private:
  std::shared_ptr<const Rules> rules_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Arbiter>> load_rules_file(std::string_view source, std::string_view file, const Matcher& matcher) {
  auto rules = std::make_shared<Rules>();
  if (auto status = rules->load(source, file, matcher); !status.ok()) return status;
  return std::make_shared<RulesFile>(std::move(rules));
}

}  // namespace openshell::policy
