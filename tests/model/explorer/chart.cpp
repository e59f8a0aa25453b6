#include "tests/model/explorer/chart.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

namespace openshell::model {
namespace {

constexpr std::size_t kColumn = 14;
constexpr std::size_t kLeft = 11;
constexpr std::size_t kHead = 60, kTail = 60;  // rows that are drawn of a long chart

// From the data plane to the gateway; whoever is not listed comes behind.
const char* const kOrder[] = {"world", "workload",   "session", "root",   "poller", "publisher", "boundary", "observer",
                              "box",   "aggregator", "outbox",  "writer", "disk",   "client",    "gateway",  "registry"};

std::size_t rank(const std::string& name) {
  return static_cast<std::size_t>(std::find(std::begin(kOrder), std::end(kOrder), name) - std::begin(kOrder));
}

}  // namespace

std::string Chart::draw() const {
  std::vector<std::string> names;
  for (const auto& row : rows_) {
    for (const auto& name : {row.from, row.to}) {
      if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return rank(a) < rank(b); });
  std::map<std::string, std::size_t> middle;
  std::string head(kLeft, ' ');
  for (std::size_t i = 0; i < names.size(); ++i) {
    middle[names[i]] = kLeft + i * kColumn + kColumn / 2;
    auto cell = names[i].substr(0, kColumn - 1);
    cell.insert(0, (kColumn - cell.size()) / 2, ' ');
    head += cell + std::string(kColumn - cell.size(), ' ');
  }
  const auto trimmed = [](const std::string& line) { return line.substr(0, line.find_last_not_of(' ') + 1) + "\n"; };
  std::string out = trimmed(head);
  std::string lifelines(kLeft + names.size() * kColumn, ' ');
  for (const auto& [name, at] : middle) lifelines[at] = '|';
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (i == kHead && rows_.size() > kHead + kTail) {
      out += "      ... " + std::to_string(rows_.size() - kHead - kTail) + " rows ...\n";
      i = rows_.size() - kTail;
    }
    const auto& row = rows_[i];
    auto line = lifelines;
    char time[32];
    std::snprintf(time, sizeof time, "%9.3f", static_cast<double>(row.at.count()) / 1'000.0);
    line.replace(0, std::min<std::size_t>(9, kLeft), std::string{time}.substr(0, 9));
    if (row.to.empty()) {
      const auto at = row.from.empty() ? kLeft : middle[row.from];
      const auto text = (row.from.empty() ? "== " : "* ") + row.label;
      if (line.size() < at + text.size()) line.resize(at + text.size(), ' ');
      line.replace(at, text.size(), text);
    } else if (row.from == row.to) {
      const auto at = middle[row.from];
      const auto text = "o " + row.label;
      if (line.size() < at + text.size()) line.resize(at + text.size(), ' ');
      line.replace(at, text.size(), text);
    } else {
      const auto a = middle[row.from], b = middle[row.to];
      const auto low = std::min(a, b), high = std::max(a, b);
      for (auto at = low + 1; at < high; ++at) line[at] = '-';
      line[a] = '+';
      line[b] = b > a ? '>' : '<';
      const auto label = row.label.substr(0, high - low > 3 ? high - low - 3 : 0);
      line.replace(low + 1 + (high - low - 1 - label.size()) / 2, label.size(), label);
    }
    out += trimmed(line);
  }
  return out;
}

}  // namespace openshell::model
