// What the operator interface asks of the gateway's actors. Each of these interfaces is one of gateway.hpp with a question added that
// changes nothing; whoever only works with the actor knows it without.
#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "messages/directory.hpp"
#include "messages/gateway.hpp"

namespace openshell::gateway {

/// A denied request or open, as its supervisor's log line told it.
struct DenialLine {
  std::string denial_id, sandbox_id;
  std::string text;     ///< the line's, untrusted in what it quotes
  std::int64_t at = 0;  ///< ms since the epoch
};
struct DenialLines {
  std::vector<DenialLine> lines;  ///< newest first
};

/// The registry of sessions, as those know it who look.
using SessionRegistryView = SessionRegistry::extend<
    // From the operator interface: the sessions of this node, session by sandbox.
    caf::replies_to<list_atom>::with<std::map<std::string, std::string>>>;

/// The bus of logs and events, as those know it who look.
using SandboxBusView = SandboxBus::extend<
    // From the operator interface: the line of this denial, or the newest 100 for an empty text. Of the newest 4,096 of all sandboxes.
    caf::replies_to<find_atom, std::string>::with<DenialLines>>;

}  // namespace openshell::gateway

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::DenialLines)
