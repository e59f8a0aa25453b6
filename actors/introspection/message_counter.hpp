#pragma once

#include <caf/atom.hpp>
#include <caf/type_erased_tuple.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace openshell {

/// Kinds of messages that one actor tells apart; further ones are counted together as "other".
inline constexpr std::size_t kMaxMessageKinds = 64;

/// What `type` is called on a page: "StopSandboxRequest" for Ask<openshell::v1::StopSandboxRequest>.
[[nodiscard]] std::string message_kind(std::string_view demangled);

/// Counts the messages of one actor by kind and makes rates of the counts. A message that begins with an atom is of the kind of that atom,
/// any other of that of its type. Pure but for CAF's type information; used on its actor only.
class MessageCounter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `message` was handled. False for those that say nothing of the actor's work: ticks of its own clock, and questions about itself.
  bool count(caf::type_erased_tuple& message);
  /// The last one is not counted after all.
  void undo();
  [[nodiscard]] std::uint64_t total() const { return total_; }

  /// Messages per second since the call before, of the kMaxShownRates busiest kinds; begins a new span. A span of more than two seconds was
  /// one of silence that the first message of the next ended, and counts as one second.
  std::map<std::string, double> take_rates(TimePoint now);

 private:
  struct Kind {
    std::uint64_t key = 0;  // an atom, or the address of a type
    std::string name;
    std::uint64_t total = 0;
    std::uint64_t taken = 0;  // of `total`, by the last take_rates
    bool quiet = false;
  };
  Kind& kind_of(caf::type_erased_tuple& message);

  std::vector<Kind> kinds_;  // few, the frequent ones come first by themselves
  std::size_t last_ = 0;     // index of the kind that was counted last
  std::uint64_t total_ = 0;
  TimePoint since_{};
};

}  // namespace openshell
