#pragma once

#include <caf/error.hpp>
#include <caf/scheduled_actor.hpp>

#include <functional>
#include <string>

#include "messages/introspection.hpp"

namespace openshell {

/// The part of an actor's state that speaks to the directory. An actor holds one and calls `touch` at the end of every handler that changed
/// something worth seeing; the reporter sends at most one snapshot a second and never loses the last change. Runs on its actor only.
///
///   struct StatusOutboxState { Reporter reporter; ... };
///   [=](enqueue_atom, PolicyStatus& status) { ...; self->state.reporter.touch(self, [self] { return snapshot(self->state); }); }
///
/// `Snapshot` fills summary, waiting and what else only the actor knows; id, parent, kind, handled, failed and last_error are filled here.
class Reporter {
 public:
  Reporter() = default;  ///< reports to nobody
  Reporter(Directory directory, std::string id, std::string kind, std::string parent)
      : directory_{std::move(directory)}, id_{std::move(id)}, kind_{std::move(kind)}, parent_{std::move(parent)} {}

  void note_handled() { ++handled_; }
  void note_failed(std::string error) {
    ++failed_;
    last_error_ = std::move(error);
  }

  /// Completes what the actor says of itself; also the answer to `introspect`.
  ActorSnapshot complete(ActorSnapshot own) const;

  /// Reports now, or as soon as the second after the last report is over. `make` runs on the actor, possibly later.
  template <class Self, class Make>
  void touch(Self* self, Make make) {
    if (!directory_) return;
    if (window_open_) {
      changed_ = true;
      return;
    }
    window_open_ = true;
    changed_ = false;
    auto snapshot = complete(make());
    snapshot.mailbox = self->mailbox().size();
    self->request(directory_, caf::infinite, report_atom::value, std::move(snapshot))
        .then(
            [this, self, make](bool) {
              window_open_ = false;
              if (changed_) touch(self, make);
            },
            [this](const caf::error&) { window_open_ = false; });  // the directory is being restarted: the next change reports again
  }

 private:
  Directory directory_;
  std::string id_;
  std::string kind_;
  std::string parent_;
  std::string last_error_;
  std::uint64_t handled_ = 0;
  std::uint64_t failed_ = 0;
  bool window_open_ = false;  // a report was sent and its second is not over
  bool changed_ = false;      // something changed since that report
};

}  // namespace openshell
