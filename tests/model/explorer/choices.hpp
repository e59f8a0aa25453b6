#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace openshell::model {

/// Where every decision of a schedule comes from: a seed, or the record of an earlier run. A schedule is nothing but the numbers drawn
/// here, so that it can be repeated and made smaller. 0 is always the harmless choice.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : state_{seed * 0x9E3779B97F4A7C15ULL + 0xD1B54A32D192ED03ULL} {}
  /// Plays `script`; 0 when it is over.
  explicit Choices(std::vector<std::uint32_t> script) : script_{std::move(script)}, scripted_{true} {}

  /// 0 .. limit - 1.
  std::uint32_t below(std::uint32_t limit) {
    if (limit <= 1) return 0;
    std::uint32_t value = 0;
    if (!scripted_) {
      value = static_cast<std::uint32_t>(random() % limit);
    } else if (taken_.size() < script_.size()) {
      value = std::min(script_[taken_.size()], limit - 1);
    }
    taken_.push_back(value);
    return value;
  }
  /// True once in `n` times.
  bool one_in(std::uint32_t n) { return below(n) == n - 1; }

  [[nodiscard]] bool exhausted() const { return scripted_ && taken_.size() >= script_.size(); }
  [[nodiscard]] const std::vector<std::uint32_t>& taken() const { return taken_; }

 private:
  std::uint64_t random() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  std::uint64_t state_ = 0;
  std::vector<std::uint32_t> script_;
  std::vector<std::uint32_t> taken_;
  bool scripted_ = false;
};

}  // namespace openshell::model
