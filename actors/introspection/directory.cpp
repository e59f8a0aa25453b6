#include "actors/introspection/directory.hpp"

#include <caf/all.hpp>

namespace openshell {

Directory::behavior_type directory(Directory::stateful_pointer<DirectoryState> self) {
  return {
      [=](report_atom, ActorSnapshot& snapshot) -> caf::result<bool> {
        auto& s = self->state;
        ++s.handled;
        if (s.entries.size() < kMaxDirectoryEntries || s.entries.contains(snapshot.id)) {
          auto id = snapshot.id;
          s.entries.insert_or_assign(std::move(id), std::move(snapshot));
        } else {
          ++s.refused;
        }
        s.windows.push_back(self->make_response_promise<bool>());
        self->delayed_send(self, kReportWindow, window_atom::value);
        return s.windows.back();
      },
      [=](forget_atom, const std::string& id) { self->state.entries.erase(id); },
      [=](list_atom) {
        std::vector<ActorSnapshot> all;
        all.reserve(self->state.entries.size());
        for (const auto& [id, snapshot] : self->state.entries) all.push_back(snapshot);
        return all;
      },
      [=](window_atom) {
        auto& windows = self->state.windows;  // every window is equally long, so the oldest is the one that is over
        windows.front().deliver(true);
        windows.pop_front();
      },
  };
}

}  // namespace openshell
