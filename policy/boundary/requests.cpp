#include "policy/boundary/requests.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "policy/boundary/atoms.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"

namespace openshell::policy::boundary {
namespace {

// A method that no rule names is one of these, a common one where it can be.
constexpr std::array<std::string_view, 8> kOtherMethods{"PUT", "DELETE", "POST", "PATCH", "GET", "OPTIONS", "TRACE", "PURGE"};
// Values that no rule names: one that `*` matches, one with a dot, which it does not.
constexpr std::string_view kOtherValue = "other";
constexpr std::string_view kDottedValue = "other.value";

// What the rules of both connections look at.
struct Vocabulary {
  std::vector<const Glob*> paths;
  std::set<std::string> methods;
  std::map<std::string, std::set<std::string>> values;  // of each query parameter

  void add(const Connection& connection) {
    for (const Endpoint* endpoint : connection.endpoints()) {
      if (!endpoint->inspects()) continue;
      paths.push_back(&endpoint->rules->path);
      for (const auto* rules : {&endpoint->rules->allow, &endpoint->rules->deny}) {
        for (const auto& rule : rules->all()) add(rule);
      }
    }
  }
  void add(const HttpRule& rule) {
    paths.push_back(&rule.path);
    if (!rule.any_method && !rule.method.empty()) methods.insert(rule.method);
    if (rule.method == "GET") methods.insert("HEAD");
    for (const auto& condition : rule.query) {
      auto& known = values[condition.name];
      for (const auto& glob : condition.globs) {
        if (glob.is_literal()) known.insert(std::string{glob.beginning()});
      }
    }
  }
  void finish() {
    const auto named = [this](std::string_view method) { return methods.contains(std::string{method}); };
    const auto other = std::find_if_not(kOtherMethods.begin(), kOtherMethods.end(), named);
    std::string fallback{kOtherMethods.back()};
    while (other == kOtherMethods.end() && methods.contains(fallback)) fallback.push_back('X');
    methods.insert(other == kOtherMethods.end() ? fallback : std::string{*other});
    for (auto& [name, known] : values) known.insert({std::string{kOtherValue}, std::string{kDottedValue}});
  }
};

using Choice = std::map<std::string, std::set<std::string>>::const_iterator;

// Calls `use(query)` with every choice of at most one value for each parameter, until it says false.
template <class Use>
bool each_query(Choice at, Choice end, std::vector<QueryParameter>& query, Use& use) {
  if (at == end) return use(query);
  const auto next = std::next(at);
  if (!each_query(next, end, query, use)) return false;
  for (const auto& value : at->second) {
    query.emplace_back(at->first, value);
    const bool more = each_query(next, end, query, use);
    query.pop_back();
    if (!more) return false;
  }
  return true;
}

}  // namespace

// One value for a parameter is enough: more of them are refused more, and whatever one value of several makes the boundary refuse, it makes
// it refuse alone.
RequestsFound RequestComparison::compare(const Connection& mine, const Connection& theirs) {
  RequestsFound out;
  std::vector<const Endpoint*> key{mine.endpoints().begin(), mine.endpoints().end()};
  key.push_back(nullptr);
  key.insert(key.end(), theirs.endpoints().begin(), theirs.endpoints().end());
  if (equal_.contains(key)) return out;
  Vocabulary words;
  words.add(mine);
  words.add(theirs);
  words.finish();
  auto paths = atoms_of(words.paths, GlobKind::path, [this] { return spend_() != Reason::none; });
  if (!paths.ok()) {
    out.ended = spend_();
    out.status = paths.status();
    return out;
  }
  for (const Atom& path : *paths) {
    for (const auto& method : words.methods) {
      std::vector<QueryParameter> chosen;
      const auto ask = [&](const std::vector<QueryParameter>& query) {
        out.ended = spend_();
        if (out.ended != Reason::none) return false;
        const Request request{method, path.text, query};
        if (mine.request(request).verdict != Verdict::allow || theirs.request(request).verdict == Verdict::allow) return true;
        out.request = {method, path.text, query};
        return false;
      };
      if (!each_query(words.values.begin(), words.values.end(), chosen, ask)) return out;
    }
  }
  equal_.insert(std::move(key));
  return out;
}

}  // namespace openshell::policy::boundary
