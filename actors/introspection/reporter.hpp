#pragma once

#include <caf/behavior.hpp>
#include <caf/error.hpp>
#include <caf/scheduled_actor.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "actors/introspection/mailbox_age.hpp"
#include "actors/introspection/message_counter.hpp"
#include "messages/introspection.hpp"

namespace openshell {

/// The part of an actor's state that speaks to the directory. An actor holds one and wraps its handlers with `watch`: every message is then
/// counted by its kind and followed by a report. What an answer of somebody else changed is told with `touch`. The reporter sends at most
/// one snapshot a second, from within the actor's own handlers, and never loses the last change. Runs on its actor only.
///
///   struct StatusOutboxState { Reporter reporter; ... };
///   self->state.reporter = Reporter{directory, "status_outbox", "status_outbox", "supervisor"};
///   StatusOutbox::behavior_type handlers{[=](introspect_atom) { ... }, ...};
///   return self->state.reporter.watch(self, [self] { return snapshot(self->state); }, std::move(handlers));
///
/// `Snapshot` fills summary, waiting and what else only the actor knows; the rest is filled here.
class Reporter {
 public:
  Reporter() = default;  ///< reports to nobody
  Reporter(Directory directory, std::string id, std::string kind, std::string parent)
      : directory_{std::move(directory)}, id_{std::move(id)}, kind_{std::move(kind)}, parent_{std::move(parent)} {}

  /// Counts a piece of work, for actors whose handlers nobody watches.
  void note_handled() { ++handled_; }
  void note_failed(std::string error) {
    ++failed_;
    last_error_ = std::move(error);
  }

  /// Within a handler: this message asked about actors and is no work of this one. It is not counted and reports nothing. [ACT-38]
  void disregard() { disregarded_ = true; }

  /// Completes what the actor says of itself; also the answer to `introspect`.
  ActorSnapshot complete(ActorSnapshot own) const;

  /// Reports now, or as soon as the second after the last report is over. `make` runs on the actor, possibly later.
  template <class Self, class Make>
  void touch(Self* self, Make make) {
    if (!directory_) return;
    touched_ = true;
    if (window_open_) {
      changed_ = true;
      return;
    }
    window_open_ = true;
    changed_ = false;
    auto snapshot = complete(make());
    measure(*self, snapshot);
    self->request(directory_, caf::infinite, report_atom::value, std::move(snapshot))
        .then(
            [this, self, make](bool) {
              window_open_ = false;
              if (changed_) touch(self, make);
            },
            [this](const caf::error&) { window_open_ = false; });  // the directory is being restarted: the next change reports again
  }

  /// `handlers`, with every message counted and followed by `touch`. Ticks and questions about the actor itself are counted and report
  /// nothing. Without a directory nothing is wrapped.
  template <class Self, class Make>
  typename Self::behavior_type watch(Self* self, Make make, typename Self::behavior_type handlers) {
    if (!directory_) return handlers;
    counter_ = std::make_shared<MessageCounter>();
    caf::behavior watched;
    watched.assign(caf::intrusive_ptr<caf::detail::behavior_impl>{
        new Watched{std::move(handlers.unbox()), *this, *self, [this, self, make] { touch(self, make); }}, false});
    return {typename Self::behavior_type::unsafe_init{}, std::move(watched)};
  }

 private:
  /// Handlers within handlers.
  class Watched final : public caf::detail::behavior_impl {
   public:
    Watched(caf::behavior inner, Reporter& reporter, caf::scheduled_actor& self, std::function<void()> report)
        : behavior_impl{inner.timeout()}, inner_{std::move(inner)}, reporter_{reporter}, self_{self}, report_{std::move(report)} {}
    caf::match_case::result invoke(caf::detail::invoke_result_visitor& visitor, caf::type_erased_tuple& message) override;
    void handle_timeout() override { inner_.handle_timeout(); }

   private:
    caf::behavior inner_;
    Reporter& reporter_;  // in the state of the actor whose handlers these are, as is `self_`
    caf::scheduled_actor& self_;
    std::function<void()> report_;
  };

  /// What is known from outside of the actor: its mailbox and its rates.
  void measure(caf::scheduled_actor& self, ActorSnapshot& snapshot);
  void probe_if_wanted(caf::scheduled_actor& self, bool certainly);

  Directory directory_;
  std::string id_;
  std::string kind_;
  std::string parent_;
  std::string last_error_;
  std::shared_ptr<MessageCounter> counter_;  // null: nobody watches, note_handled counts
  MailboxAge age_;
  std::uint64_t handled_ = 0;
  std::uint64_t failed_ = 0;
  bool window_open_ = false;   // a report was sent and its second is not over
  bool changed_ = false;       // something changed since that report
  bool touched_ = false;       // by the handler that runs
  bool disregarded_ = false;   // by it, too
  bool said_waiting_ = false;  // the last report had messages in the mailbox: that they are gone is news
};

}  // namespace openshell
