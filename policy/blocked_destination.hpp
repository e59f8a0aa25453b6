// Destinations that no policy opens, and those that deserve a second look before a person opens them. Pure, any thread.
#pragma once

#include <string>
#include <string_view>

#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// Loopback, link-local, unspecified (their IPv4-mapped forms too), `localhost`, the cloud metadata names. A name with a trailing dot and
/// in any case is the same name.
[[nodiscard]] bool is_always_blocked(std::string_view host);
/// A block that overlaps one of them.
[[nodiscard]] bool is_always_blocked_block(std::string_view block);
/// Why a rule that names this destination is refused before it is stored; empty: it may be.
[[nodiscard]] std::string blocked_destination(const pb::NetworkPolicyRule& rule);

/// What a person should know before he approves the rule, sentences joined by a blank; empty: nothing stands out.
[[nodiscard]] std::string security_notes(const pb::NetworkPolicyRule& rule);

}  // namespace openshell::policy
