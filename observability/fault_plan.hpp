// What shall go wrong in this process, and where: the text of the environment variable OPENSHELL_FAULT.
//
//   NAME=ACTION[,NAME=ACTION...]
//   kill[@N]             the process dies at its Nth passage (1 if not said), as by kill -9: nothing is flushed, no destructor runs
//   hang[@N]             the thread that passes stays there for ever
//   fail:PERCENT[:SEED]  the step fails in so many of a hundred passages, in an order that SEED (0 if not said) decides
//
// Apart from the points themselves so that it can be tested without dying. Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>

namespace openshell::fault {

enum class Effect { kNone, kKill, kHang, kFail };

class Plan {
 public:
  /// INVALID_ARGUMENT names the part that is not understood. An empty text is a plan in which nothing happens.
  static absl::StatusOr<std::unique_ptr<Plan>> parse(std::string_view text);

  /// One passage of `name`.
  Effect pass(std::string_view name);
  [[nodiscard]] bool empty() const { return rules_.empty(); }

 private:
  struct Rule {
    Effect effect = Effect::kNone;
    std::uint64_t at = 1;      ///< of kill and hang: which passage
    std::uint64_t passed = 0;  ///< so far
    std::uint32_t percent = 0;
    std::minstd_rand random;
  };
  Plan() = default;

  std::mutex mutex_;
  std::map<std::string, Rule, std::less<>> rules_;
};

}  // namespace openshell::fault
