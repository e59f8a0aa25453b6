#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include <chrono>
#include <deque>
#include <map>
#include <string>

#include "messages/introspection.hpp"

namespace openshell {

/// Between two reports of one actor.
inline constexpr std::chrono::milliseconds kReportWindow{1'000};
/// Actors a directory knows; the report of one more is counted and not kept.
inline constexpr std::size_t kMaxDirectoryEntries = 65'536;

struct DirectoryState {
  std::map<std::string, ActorSnapshot> entries;
  std::deque<caf::typed_response_promise<bool>> windows;  // oldest first; one timer each
  std::uint64_t handled = 0;
  std::uint64_t refused = 0;  // reports beyond kMaxDirectoryEntries
  inline static const char* name = "directory";
};

Directory::behavior_type directory(Directory::stateful_pointer<DirectoryState> self);

}  // namespace openshell
