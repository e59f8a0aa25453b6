#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// Between the egress threads and EndpointObserver: the newest result of each endpoint that has a status. Bounded by the number of those
/// endpoints; results of all others, and of another generation than the installed one, are let go. Any thread.
class EndpointBox {
 public:
  using Place = std::pair<std::string, std::uint64_t>;  ///< rule key and index inside the rule

  void on_fill(std::function<void()> wake) {
    const std::lock_guard lock{mutex_};
    wake_ = std::move(wake);
  }

  /// A generation of the engine, the publication that it belongs to, and the ids of its endpoints. What was seen before says nothing any
  /// more.
  void install(std::uint64_t generation, std::uint64_t inventory, std::map<Place, std::string> ids) {
    const std::lock_guard lock{mutex_};
    generation_ = generation;
    inventory_ = inventory;
    ids_ = std::move(ids);
    newest_.clear();
  }

  void observe(std::uint64_t generation, const Place& place, int result) {
    std::function<void()> wake;
    {
      const std::lock_guard lock{mutex_};
      if (generation != generation_) return;
      const auto found = ids_.find(place);
      if (found == ids_.end()) return;
      if (newest_.empty()) wake = wake_;
      newest_[found->second] = result;
    }
    if (wake) wake();
  }

  /// The results of one publication. Those of a later one stay: whoever asks has not heard of it yet, and must not report them under what
  /// was in force before. [TS-24]
  [[nodiscard]] std::vector<EndpointObservation> drain(std::uint64_t inventory) {
    const std::lock_guard lock{mutex_};
    if (inventory != inventory_) return {};
    std::vector<EndpointObservation> out;
    for (auto& [id, result] : newest_) out.push_back({id, result});
    newest_.clear();
    return out;
  }

  /// The sequence of the newest report in a session: a successor of the observer goes on from it, or the gateway would take its reports for
  /// old ones.
  void reported(const std::string& session_id, std::uint64_t sequence) {
    const std::lock_guard lock{mutex_};
    session_id_ = session_id;
    sequence_ = sequence;
  }
  [[nodiscard]] std::uint64_t last_sequence(const std::string& session_id) const {
    const std::lock_guard lock{mutex_};
    return session_id == session_id_ ? sequence_ : 0;
  }

 private:
  mutable std::mutex mutex_;
  std::uint64_t generation_ = 0;
  std::uint64_t inventory_ = 0;
  std::string session_id_;  // of the newest report
  std::uint64_t sequence_ = 0;
  std::map<Place, std::string> ids_;
  std::map<std::string, int> newest_;
  std::function<void()> wake_;
};

}  // namespace openshell::supervisor
