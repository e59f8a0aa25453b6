// The directory of a process, as those know it who look: the operator interface, metrics, and the relays of actor snapshots. Whoever only
// reports to it knows the smaller interface of introspection.hpp.
#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "messages/introspection.hpp"

namespace openshell {

using changes_atom = caf::atom_constant<caf::atom("changes")>;
using inquire_atom = caf::atom_constant<caf::atom("inquire")>;

/// What became different in one process since a number that the same process gave before.
struct ActorChanges {
  std::uint64_t seq = 0;  ///< ask with it the next time
  bool whole = false;     ///< `actors` are all there are: what was known before is not valid any more
  std::vector<ActorSnapshot> actors;
  std::vector<std::string> gone;  ///< ids
};

/// The directory, as those know it who look.
using DirectoryView = Directory::extend<
    // From the operator interface, metrics and relays. What changed since that number; 0, or one that is too old: everything.
    caf::replies_to<changes_atom, std::uint64_t>::with<ActorChanges>,
    // From a person who opened one actor (its id). Asks that actor itself, for 2 s at most: one that is stuck does not answer.
    caf::replies_to<inquire_atom, std::string>::with<ActorSnapshot>>;

inline bool operator==(const ActorSnapshot& a, const ActorSnapshot& b) {
  return a.id == b.id && a.parent == b.parent && a.kind == b.kind && a.summary == b.summary && a.mailbox == b.mailbox &&
         a.waiting == b.waiting && a.handled == b.handled && a.failed == b.failed && a.restarts == b.restarts &&
         a.oldest_ms == b.oldest_ms && a.last_error == b.last_error && a.rates == b.rates;
}

}  // namespace openshell

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::ActorChanges)
