#include "policy/crowd.hpp"

#include <algorithm>

#include "policy/rank.hpp"
#include "policy/rules.hpp"

namespace openshell::policy {
namespace {

void add_rules(PathIndex& index, const std::vector<HttpRule>& rules, bool others, std::uint32_t position) {
  static const Glob kAnyPath;
  if (others) {
    index.add(kAnyPath, position);
    return;
  }
  for (const HttpRule& rule : rules) index.add_once(rule.path, position);
}

}  // namespace

RequestIndex::RequestIndex(std::span<const Endpoint* const> endpoints) : endpoints_{endpoints} {
  for (std::uint32_t i = 0; i < endpoints.size(); ++i) {
    const Endpoint& endpoint = *endpoints[i];
    if (endpoint.carries_metadata) by_request_rank_.push_back(&endpoint);
    if (!is_inspected(endpoint.protocol)) continue;
    // What is said of operations and calls, or of the protocol as a whole, hangs on no path.
    const bool only_paths = endpoint.protocol == Protocol::rest;
    add_rules(allowing_, endpoint.rules->allow.all(), !only_paths, i);
    add_rules(denying_, endpoint.rules->deny.all(), !only_paths, i);
  }
  std::sort(by_request_rank_.begin(), by_request_rank_.end(), decides_over);
  for (std::uint32_t i = 0; i < by_request_rank_.size(); ++i) covering_.add(by_request_rank_[i]->rules->path, i);
}

const Endpoint* RequestIndex::deciding(std::string_view path) const {
  std::size_t best = npos;
  covering_.candidates(path, [&](const std::vector<std::uint32_t>& items) {
    for (const auto item : items) {
      if (item >= best) return;
      if (!by_request_rank_[item]->covers_path(path)) continue;
      best = item;
      return;
    }
  });
  return best == npos ? nullptr : by_request_rank_[best];
}

void EndpointList::add(const Endpoint& endpoint, std::uint32_t rule) {
  if (!endpoints.empty() && endpoints.back() == &endpoint) return;  // one rule, several ways to be admitted
  endpoints.push_back(&endpoint);
  first_rule = std::min(first_rule, rule);
  exact_declared_host = exact_declared_host || (endpoint.exact_host && !endpoint.advisor_proposed);
  if (inspecting == nullptr && endpoint.inspects()) inspecting = &endpoint;
}

void EndpointList::finish() {
  if (endpoints.size() >= kCrowdedFrom) requests = std::make_unique<RequestIndex>(endpoints);
}

void Crowd::add(const Endpoint& endpoint, std::uint32_t rule, std::span<const std::uint32_t> plain, std::span<const Glob> patterns) {
  everyone_.add(endpoint, rule);
  for (const auto number : plain) by_number_[number].add(endpoint, rule);
  for (const Glob& glob : patterns) {
    const auto [at, fresh] = pattern_of_.try_emplace(&glob, static_cast<std::uint32_t>(patterns_.size()));
    if (fresh) patterns_.push_back({&glob, {}});
    patterns_[at->second].list.add(endpoint, rule);
  }
}

void Crowd::finish() {
  for (auto& [number, list] : by_number_) list.finish();
  for (std::uint32_t i = 0; i < patterns_.size(); ++i) {
    patterns_[i].list.finish();
    index_.add(*patterns_[i].glob, i);
  }
  everyone_.finish();
  pattern_of_.clear();
}

}  // namespace openshell::policy
