#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// Folds denials of one flush interval by (host, port, binary). Pure.
class DenialWindow {
 public:
  struct Limits {
    std::size_t keys = 4'096;          ///< further new keys are only counted
    std::size_t ids_per_key = 20;      ///< the first event's and 19 more
    std::size_t samples_per_key = 20;  ///< distinct (method, path)
  };

  DenialWindow() : DenialWindow{Limits{}} {}
  explicit DenialWindow(Limits limits) : limits_{limits} {}

  void add(DenialEvent event);
  /// Everything folded so far, keys in order; the window is empty afterwards.
  [[nodiscard]] std::vector<DenialSummary> take();
  /// A batch that could not be delivered comes back: counts add up, what is older comes first.
  void merge(std::vector<DenialSummary> undelivered);

  [[nodiscard]] bool empty() const { return keys_.empty(); }
  [[nodiscard]] std::size_t size() const { return keys_.size(); }
  [[nodiscard]] std::uint64_t overflow() const { return overflow_; }  ///< events of keys beyond the limit, ever

 private:
  using Key = std::tuple<std::string, std::uint16_t, std::string>;
  Limits limits_;
  std::map<Key, DenialSummary> keys_;
  std::uint64_t overflow_ = 0;
};

/// Proposals for what a rule could allow, highest confidence first: L4 denials only, never for destinations that no rule may open.
[[nodiscard]] std::vector<Proposal> propose(const std::vector<DenialSummary>& summaries);

}  // namespace openshell::supervisor
