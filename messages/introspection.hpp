// What every stateful actor has in common: it can be asked what it is doing, and it tells the directory when that changed.
#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace openshell {

using introspect_atom = caf::atom_constant<caf::atom("introspect")>;
using report_atom = caf::atom_constant<caf::atom("report")>;
using list_atom = caf::atom_constant<caf::atom("list")>;
using window_atom = caf::atom_constant<caf::atom("window")>;
using forget_atom = caf::atom_constant<caf::atom("forget")>;

/// What an actor says of itself; the dashboard, the metrics and `openshell-gateway actors` read nothing else.
struct ActorSnapshot {
  std::string id;             ///< unique in its process, kept over restarts: "policy_poller", "sandbox_entity:<id>"
  std::string parent;         ///< id of the actor that supervises it; empty for the root
  std::string kind;           ///< the interface in snake case: "policy_poller"
  std::string summary;        ///< one line a person can read, no secret
  std::uint64_t mailbox = 0;  ///< messages not yet handled
  std::uint64_t waiting = 0;  ///< items it holds for later, or requests whose answer is awaited
  std::uint64_t handled = 0;
  std::uint64_t failed = 0;
  std::uint64_t restarts = 0;
  std::uint64_t oldest_ms = 0;  ///< age of the oldest item that waits
  std::string last_error;
  std::map<std::string, double> rates;  ///< per second, by message kind
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ActorSnapshot& x) {
  return f(caf::meta::type_name("ActorSnapshot"), x.id, x.parent, x.kind, x.summary, x.mailbox, x.waiting, x.handled, x.failed, x.restarts,
           x.oldest_ms, x.last_error, x.rates);
}

/// Every stateful actor answers this.
using Introspectable = caf::typed_actor<
    // From the directory or a person's request. What the actor would report now.
    caf::replies_to<introspect_atom>::with<ActorSnapshot>>;

/// Knows every stateful actor of its process by its last report. One a process, child of the root.
/// Restart: rebuilt by the reports that arrive with the next changes.
using Directory = caf::typed_actor<
    // From every stateful actor, through its Reporter. Replaces that actor's entry at once; the answer comes a second later and means "you
    // may report again", so that no actor reports more often and the last change is never lost.
    caf::replies_to<report_atom, ActorSnapshot>::with<bool>,
    // From the root, when an actor ended for good.
    caf::reacts_to<forget_atom, std::string>,
    // From the operator interface, metrics and relays. All entries, sorted by id.
    caf::replies_to<list_atom>::with<std::vector<ActorSnapshot>>,
    // From itself: the second of the oldest unanswered report is over.
    caf::reacts_to<window_atom>>;

}  // namespace openshell
