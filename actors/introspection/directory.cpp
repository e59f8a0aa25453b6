#include "actors/introspection/directory.hpp"

#include <caf/all.hpp>

#include <algorithm>

namespace openshell {
namespace {

using Self = DirectoryView::stateful_pointer<DirectoryState>;

/// At the end of the oldest window, and not before a bucket after the last time.
void arm(Self self) {
  auto& s = self->state;
  if (s.ticking || s.windows.empty()) return;
  s.ticking = true;
  const auto now = self->clock().now();
  const auto at = std::max(s.windows.front().over, s.last_tick + kWindowBucket);
  self->delayed_send(self, std::max(at - now, std::chrono::steady_clock::duration{0}), window_atom::value);
}

void end_windows(Self self) {
  auto& s = self->state;
  s.ticking = false;
  s.last_tick = self->clock().now();
  while (!s.windows.empty() && s.windows.front().over <= s.last_tick) {  // every window is equally long, so the oldest is the first to end
    s.windows.front().promise.deliver(true);
    s.windows.pop_front();
  }
  arm(self);
}

caf::typed_response_promise<ActorSnapshot> inquire(Self self, const std::string& id) {
  auto promise = self->make_response_promise<ActorSnapshot>();
  const auto found = self->state.entries.find(id);
  const auto actor = found == self->state.entries.end() ? nullptr : caf::actor_cast<caf::strong_actor_ptr>(found->second.address);
  if (!actor) {
    promise.deliver(caf::make_error(caf::sec::runtime_error, "no actor of this name"));
    return promise;
  }
  self->request(caf::actor_cast<Introspectable>(actor), kInquiry, introspect_atom::value)
      .then([promise](ActorSnapshot& answer) mutable { promise.deliver(std::move(answer)); },
            [promise](caf::error& error) mutable { promise.deliver(std::move(error)); });
  return promise;
}

}  // namespace

void DirectoryState::report(ActorSnapshot snapshot, const caf::actor_addr& from) {
  const auto it = entries.find(snapshot.id);
  if (it == entries.end() && entries.size() >= kMaxDirectoryEntries) {
    ++refused;
    return;
  }
  if (!from && it != entries.end()) return;
  auto& entry = it == entries.end() ? entries[snapshot.id] : it->second;
  if (entry.address && entry.address != from) ++entry.predecessors;
  entry.address = from;
  snapshot.restarts = std::max(snapshot.restarts, entry.predecessors);
  entry.snapshot = std::move(snapshot);
  by_seq.erase(entry.seq);
  entry.seq = ++seq;
  by_seq.emplace_hint(by_seq.end(), seq, &entry);
}

void DirectoryState::forget(const std::string& id) {
  const auto it = entries.find(id);
  if (it == entries.end()) return;
  by_seq.erase(it->second.seq);
  entries.erase(it);
  gone.push_back({++seq, id});
  if (gone.size() <= kMaxDirectoryGone) return;
  forgotten_before = gone.front().seq;
  gone.pop_front();
}

ActorChanges DirectoryState::changes(std::uint64_t since) const {
  ActorChanges out;
  out.seq = seq;
  out.whole = since == 0 || since < forgotten_before || since > seq;
  if (!out.whole && since == seq) return out;
  for (auto it = out.whole ? by_seq.begin() : by_seq.upper_bound(since); it != by_seq.end(); ++it)
    out.actors.push_back(it->second->snapshot);
  if (out.whole) {
    out.actors.push_back(own());
  } else {
    for (auto it = gone.rbegin(); it != gone.rend() && it->seq > since; ++it) {
      if (!entries.contains(it->id)) out.gone.push_back(it->id);  // it may have come back
    }
  }
  return out;
}

ActorSnapshot DirectoryState::own() const {
  ActorSnapshot out;
  out.id = out.kind = "directory";
  out.summary =
      std::to_string(entries.size()) + " actors" + (refused > 0 ? ", " + std::to_string(refused) + " reports beyond the bound" : "");
  out.handled = handled;
  out.failed = refused;
  return out;
}

void announce(const Directory& directory, const std::string& id, const std::string& parent) {
  ActorSnapshot snapshot;
  snapshot.id = snapshot.kind = id;
  snapshot.parent = parent;
  caf::anon_send(directory, report_atom::value, std::move(snapshot));
}

DirectoryView::behavior_type directory(DirectoryView::stateful_pointer<DirectoryState> self) {
  return {
      [=](report_atom, ActorSnapshot& snapshot) -> caf::result<bool> {
        auto& s = self->state;
        ++s.handled;
        s.report(std::move(snapshot), caf::actor_cast<caf::actor_addr>(self->current_sender()));
        s.windows.push_back({self->clock().now() + kReportWindow, self->make_response_promise<bool>()});
        arm(self);
        return s.windows.back().promise;
      },
      [=](forget_atom, const std::string& id) { self->state.forget(id); },
      [=](list_atom) {
        std::vector<ActorSnapshot> all;
        all.reserve(self->state.entries.size());
        for (const auto& [id, entry] : self->state.entries) all.push_back(entry.snapshot);
        return all;
      },
      [=](changes_atom, std::uint64_t since) { return self->state.changes(since); },
      [=](inquire_atom, const std::string& id) { return inquire(self, id); },
      [=](window_atom) { end_windows(self); },
  };
}

}  // namespace openshell
