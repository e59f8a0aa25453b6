#include "policy/host_index.hpp"

namespace openshell::policy {
namespace {

bool has_star(std::string_view label) { return label.find('*') != std::string_view::npos; }

// Labels from the right.
std::vector<std::string_view> labels_of(std::string_view pattern) {
  std::vector<std::string_view> out;
  while (true) {
    const auto dot = pattern.rfind('.');
    out.push_back(dot == std::string_view::npos ? pattern : pattern.substr(dot + 1));
    if (dot == std::string_view::npos) return out;
    pattern = pattern.substr(0, dot);
  }
}

// `*`, `**` and patterns within a label stand where the checks of a policy allow them.
bool is_regular(const std::vector<std::string_view>& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const bool first = i + 1 == labels.size();
    if (labels[i].empty() || labels[i].find_first_of("?[]{}\\") != std::string_view::npos) return false;
    if (has_star(labels[i]) && labels[i] != "*" && !first) return false;
    if (labels[i].find("**") != std::string_view::npos && labels[i] != "**") return false;
  }
  return true;
}

}  // namespace

void HostEntry::add(std::span<const std::uint16_t> ports, std::uint32_t endpoint) {
  all.push_back(endpoint);
  for (const auto port : ports) by_port.emplace_back(port, endpoint);
}

void HostEntry::finish() {
  std::sort(by_port.begin(), by_port.end());
  by_port.erase(std::unique(by_port.begin(), by_port.end()), by_port.end());
}

void HostIndex::add_exact(std::string_view host, std::span<const std::uint16_t> ports, std::uint32_t endpoint) {
  exact_[view(host)].add(ports, endpoint);
}

std::uint32_t HostIndex::child(std::uint32_t node, std::string_view label) {
  const auto make = [this] {
    nodes_.emplace_back();
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  };
  if (label == "*") {
    if (nodes_[node].star == kNone) nodes_[node].star = make();
    return nodes_[node].star;
  }
  if (const auto found = nodes_[node].labels.find(view(label)); found != nodes_[node].labels.end()) return found->second;
  const auto made = make();
  nodes_[node].labels.emplace(std::string{label}, made);
  return made;
}

std::uint32_t HostIndex::entry_of(const std::string& pattern) {
  const auto [at, fresh] = known_.try_emplace(pattern, static_cast<std::uint32_t>(entries_.size()));
  if (fresh) entries_.emplace_back();
  return at->second;
}

absl::Status HostIndex::add_pattern(std::string_view pattern, std::span<const std::uint16_t> ports, std::uint32_t endpoint) {
  const std::string key{pattern};
  const bool known = known_.contains(key);
  if (!known) {
    // The whole pattern has to parse, whichever way it is found later.
    auto glob = Glob::compile(pattern, GlobKind::host);
    if (!glob.ok()) return glob.status();
    const auto labels = labels_of(key);
    const auto entry = entry_of(key);
    if (!is_regular(labels)) {
      odd_.emplace_back(*std::move(glob), entry);
    } else {
      std::uint32_t node = 0;
      for (std::size_t i = 0; i + 1 < labels.size(); ++i) node = child(node, labels[i]);
      const auto first = labels.back();
      if (first == "**") {
        nodes_[node].recursive = entry;
      } else if (has_star(first) && first != "*") {
        auto label = Glob::compile(first, GlobKind::host);
        if (!label.ok()) return label.status();
        nodes_[node].partial.push_back({*std::move(label), entry});
      } else {
        nodes_[child(node, first)].entry = entry;
      }
    }
  }
  entries_[known_.at(key)].add(ports, endpoint);
  return absl::OkStatus();
}

void HostIndex::finish() {
  for (auto& [host, entry] : exact_) entry.finish();
  for (auto& entry : entries_) entry.finish();
}

}  // namespace openshell::policy
