#pragma once

#include <caf/actor_addr.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include <chrono>
#include <deque>
#include <map>
#include <string>

#include "messages/directory.hpp"

namespace openshell {

/// Between two reports of one actor.
inline constexpr std::chrono::milliseconds kReportWindow{1'000};
/// Windows that end within this time of each other are ended together, so that ten thousand actors do not cost ten thousand timers.
inline constexpr std::chrono::milliseconds kWindowBucket{100};
/// How long an actor that a person opened may take to answer.
inline constexpr std::chrono::seconds kInquiry{2};
/// Actors a directory knows; the report of one more is counted and not kept.
inline constexpr std::size_t kMaxDirectoryEntries = 65'536;
/// Actors that ended and are remembered for those who ask what changed; who asks about more is told everything.
inline constexpr std::size_t kMaxDirectoryGone = 4'096;

struct DirectoryState {
  struct Entry {
    ActorSnapshot snapshot;
    std::uint64_t seq = 0;           // of its last change
    caf::actor_addr address;         // of whoever reported last
    std::uint64_t predecessors = 0;  // others that reported under this id before: it was started again
  };
  struct Window {
    std::chrono::steady_clock::time_point over;
    caf::typed_response_promise<bool> promise;
  };
  struct Gone {
    std::uint64_t seq;
    std::string id;
  };

  std::map<std::string, Entry> entries;
  std::map<std::uint64_t, Entry*> by_seq;  // the same entries, the last changed one last
  std::deque<Gone> gone;                   // oldest first
  std::uint64_t forgotten_before = 0;      // `gone` is complete after this number only
  std::deque<Window> windows;              // oldest first
  std::chrono::steady_clock::time_point last_tick{};
  bool ticking = false;
  std::uint64_t seq = 0;
  std::uint64_t handled = 0;
  std::uint64_t refused = 0;  // reports beyond kMaxDirectoryEntries

  /// `from` null: an announcement, which changes nothing where there was a report.
  void report(ActorSnapshot snapshot, const caf::actor_addr& from);
  void forget(const std::string& id);
  /// Itself is the last of `actors`.
  [[nodiscard]] ActorChanges changes(std::uint64_t since) const;
  [[nodiscard]] ActorSnapshot own() const;

  inline static const char* name = "directory";
};

/// Makes an actor known that was just started, under its kind; what it reports itself comes over it. From whoever starts it.
void announce(const Directory& directory, const std::string& id, const std::string& parent);

DirectoryView::behavior_type directory(DirectoryView::stateful_pointer<DirectoryState> self);

}  // namespace openshell
