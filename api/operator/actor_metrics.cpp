#include "api/operator/actor_metrics.hpp"

#include <algorithm>
#include <array>

#include "observability/text.hpp"

namespace openshell::api {
namespace {

struct Sums {
  std::uint64_t count = 0, mailbox = 0, waiting = 0, handled = 0, failed = 0, restarts = 0, oldest_ms = 0;
};
using Key = std::pair<ProcessKind, std::string>;

bool is_label(std::string_view kind) {
  return !kind.empty() && kind.size() <= 64 &&
         std::all_of(kind.begin(), kind.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

class Table {
 public:
  Sums& of(ProcessKind process, const std::string& kind) {
    const Key key{process, is_label(kind) ? kind : "other"};
    const auto it = sums_.find(key);
    if (it != sums_.end()) return it->second;
    auto& count = kinds_[process];
    if (count >= kMaxMetricKinds) return sums_[{process, "other"}];
    ++count;
    return sums_[key];
  }
  [[nodiscard]] const std::map<Key, Sums>& all() const { return sums_; }

 private:
  std::map<Key, Sums> sums_;
  std::map<ProcessKind, std::size_t> kinds_;
};

std::string seconds(std::uint64_t millis) {
  auto text = std::to_string(millis % 1'000);
  return cat(millis / 1'000, ".", std::string(3 - text.size(), '0'), text);
}

struct Metric {
  std::string_view name, type, help;
  std::string (*value)(const Sums&);
};

constexpr std::array kMetrics{
    Metric{"openshell_actors", "gauge", "Actors that are known.", [](const Sums& s) { return std::to_string(s.count); }},
    Metric{"openshell_actor_mailbox_messages", "gauge", "Messages that wait in mailboxes.",
           [](const Sums& s) { return std::to_string(s.mailbox); }},
    Metric{"openshell_actor_waiting", "gauge", "Items held for later, and requests whose answer is awaited.",
           [](const Sums& s) { return std::to_string(s.waiting); }},
    Metric{"openshell_actor_handled_total", "counter", "Messages handled.", [](const Sums& s) { return std::to_string(s.handled); }},
    Metric{"openshell_actor_failed_total", "counter", "Failures.", [](const Sums& s) { return std::to_string(s.failed); }},
    Metric{"openshell_actor_restarts_total", "counter", "Actors started again.", [](const Sums& s) { return std::to_string(s.restarts); }},
    Metric{"openshell_actor_oldest_message_age_seconds", "gauge", "Age of the oldest message or item that waits.",
           [](const Sums& s) { return seconds(s.oldest_ms); }},
};

}  // namespace

std::string actor_metrics(const ActorMap& map, ActorMap::Time now) {
  Table table;
  std::map<std::pair<ProcessKind, bool>, std::uint64_t> processes;
  for (const auto& [id, process] : map.processes()) {
    ++processes[{process.kind, process.stale}];
    if (process.kind == ProcessKind::sandbox) continue;
    for (const auto& [name, actor] : process.actors) {
      const auto& one = actor.snapshot;
      auto& sums = table.of(process.kind, one.kind);
      ++sums.count;
      sums.mailbox += one.mailbox;
      sums.waiting += one.waiting;
      sums.handled += one.handled;
      sums.failed += one.failed;
      sums.restarts += one.restarts;
      const auto since =
          !goes_on_waiting(one) || process.stale ? 0 : std::chrono::duration_cast<std::chrono::milliseconds>(now - actor.reported).count();
      sums.oldest_ms = std::max(sums.oldest_ms, one.oldest_ms + static_cast<std::uint64_t>(std::max<std::int64_t>(since, 0)));
    }
  }
  for (const auto& [key, gone] : map.retired()) {
    if (key.first == ProcessKind::sandbox) continue;
    auto& sums = table.of(key.first, key.second);
    sums.handled += gone.handled;
    sums.failed += gone.failed;
    sums.restarts += gone.restarts;
  }
  std::string out;
  for (const auto& metric : kMetrics) {
    out += cat("# HELP ", metric.name, " ", metric.help, "\n# TYPE ", metric.name, " ", metric.type, "\n");
    for (const auto& [key, sums] : table.all())
      out += cat(metric.name, "{process=\"", kind_name(key.first), "\",kind=\"", key.second, "\"} ", metric.value(sums), "\n");
  }
  out += "# HELP openshell_actor_processes Processes whose actors were reported, those of supervisors while somebody watches.\n";
  out += "# TYPE openshell_actor_processes gauge\n";
  for (const auto& [key, count] : processes)
    out += cat("openshell_actor_processes{process=\"", kind_name(key.first), "\",state=\"", key.second ? "stale" : "reporting", "\"} ",
               count, "\n");
  return out;
}

}  // namespace openshell::api
