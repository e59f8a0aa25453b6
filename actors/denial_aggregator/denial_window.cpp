#include "actors/denial_aggregator/denial_window.hpp"

#include <algorithm>
#include <tuple>

#include "policy/mapper.hpp"

namespace openshell::supervisor {
namespace {

void add_sample(DenialSummary& summary, const L7Sample& sample, std::size_t limit) {
  for (auto& known : summary.samples) {
    if (known.method == sample.method && known.path == sample.path) {
      known.count += sample.count;
      return;
    }
  }
  if (summary.samples.size() < limit) summary.samples.push_back(sample);
}

}  // namespace

void DenialWindow::add(DenialEvent event) {
  const Key key{event.host, event.port, event.binary};
  auto found = keys_.find(key);
  if (found == keys_.end()) {
    if (keys_.size() >= limits_.keys) {
      ++overflow_;
      return;
    }
    found = keys_.emplace(key, DenialSummary{}).first;
    found->second.first = event;
  }
  auto& summary = found->second;
  ++summary.count;
  summary.last_seen = std::max(summary.last_seen, event.at);
  if (summary.denial_ids.size() < limits_.ids_per_key) summary.denial_ids.push_back(event.denial_id);
  if (!event.l7_method.empty()) add_sample(summary, {event.l7_method, event.l7_path, 1}, limits_.samples_per_key);
}

std::vector<DenialSummary> DenialWindow::take() {
  std::vector<DenialSummary> out;
  out.reserve(keys_.size());
  for (auto& [key, summary] : keys_) out.push_back(std::move(summary));
  keys_.clear();
  return out;
}

void DenialWindow::merge(std::vector<DenialSummary> undelivered) {
  for (auto& older : undelivered) {
    const Key key{older.first.host, older.first.port, older.first.binary};
    auto found = keys_.find(key);
    if (found == keys_.end()) {
      if (keys_.size() >= limits_.keys) {
        overflow_ += older.count;
      } else {
        keys_.emplace(key, std::move(older));
      }
      continue;
    }
    auto newer = std::move(found->second);
    auto& summary = found->second = std::move(older);
    summary.count += newer.count;
    summary.last_seen = std::max(summary.last_seen, newer.last_seen);
    for (auto& id : newer.denial_ids) {
      if (summary.denial_ids.size() < limits_.ids_per_key) summary.denial_ids.push_back(std::move(id));
    }
    for (const auto& sample : newer.samples) add_sample(summary, sample, limits_.samples_per_key);
  }
}

std::vector<Proposal> propose(const std::vector<DenialSummary>& summaries) {
  std::vector<Proposal> out;
  for (const auto& summary : summaries) {
    const auto& first = summary.first;
    if (!first.l7_method.empty()) continue;  // a request was refused, not the connection
    if (!policy::is_proposable({first.host, first.port, first.binary, first.stage, summary.count})) continue;
    out.push_back({policy::proposal_name(first.host, first.port), first.host, first.port, first.binary,
                   policy::proposal_confidence(summary.count, first.port, first.stage), summary.denial_ids, summary.count, first.at,
                   summary.last_seen, first.stage});
  }
  std::stable_sort(out.begin(), out.end(), [](const Proposal& a, const Proposal& b) {
    if (a.confidence != b.confidence) return a.confidence > b.confidence;
    return std::tie(a.host, a.port, a.binary) < std::tie(b.host, b.port, b.binary);
  });
  return out;
}

}  // namespace openshell::supervisor
