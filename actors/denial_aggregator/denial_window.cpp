#include "actors/denial_aggregator/denial_window.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace openshell::supervisor {
namespace {

constexpr std::array<std::uint16_t, 18> kWellKnownPorts = {80,   443,  8080,  8443, 5432, 3306, 6379, 27017, 9200,
                                                           9092, 2181, 11211, 5672, 6443, 53,   587,  993,   995};

/// Nothing that a rule could open: no proposal is made of it.
bool always_blocked(const std::string& host) {
  static const std::array<std::string, 5> kHosts = {"localhost", "metadata.google.internal", "metadata", "::", "0.0.0.0"};
  if (std::find(kHosts.begin(), kHosts.end(), host) != kHosts.end()) return true;
  return host.starts_with("127.") || host == "::1" || host.starts_with("169.254.") || host.starts_with("fe80:");
}

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

std::string proposal_name(const std::string& host, std::uint16_t port) {
  std::string name = "allow_";
  for (const unsigned char c : host) {
    if (c == '.' || c == '-') {
      name += '_';
    } else if (std::isalnum(c) || c == '_') {
      name += static_cast<char>(c);
    }
  }
  return name + "_" + std::to_string(port);
}

double proposal_confidence(std::uint32_t count, std::uint16_t port, const std::string& stage) {
  double confidence = 0.5;
  if (count >= 10) {
    confidence += 0.2;
  } else if (count >= 3) {
    confidence += 0.1;
  }
  if (std::find(kWellKnownPorts.begin(), kWellKnownPorts.end(), port) != kWellKnownPorts.end()) confidence += 0.15;
  if (stage == "ssrf") confidence -= 0.2;
  return std::clamp(confidence, 0.1, 0.95);
}

std::vector<Proposal> propose(const std::vector<DenialSummary>& summaries) {
  std::vector<Proposal> out;
  for (const auto& summary : summaries) {
    const auto& first = summary.first;
    const bool l7 = !summary.samples.empty() || first.stage.find("l7") != std::string::npos;
    if (l7 || always_blocked(first.host)) continue;
    out.push_back({proposal_name(first.host, first.port), first.host, first.port, first.binary,
                   proposal_confidence(summary.count, first.port, first.stage), summary.denial_ids, summary.count, first.at,
                   summary.last_seen, first.stage});
  }
  std::stable_sort(out.begin(), out.end(), [](const Proposal& a, const Proposal& b) { return a.confidence > b.confidence; });
  return out;
}

}  // namespace openshell::supervisor
