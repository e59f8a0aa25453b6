// Puts secrets where placeholders stand in free text: WebSocket messages, where the policy asks for it.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "egress/credentials/rewrite.hpp"

namespace openshell::egress {

/// Replaces every placeholder in `text` that resolves for `scope`. What is no placeholder of this sandbox passes as it is: an agent may
/// write about the syntax. PERMISSION_DENIED: one belongs to another endpoint; FAILED_PRECONDITION: one is revoked, expired, or of a key
/// that goes into the Authorization header only. Nothing of `text` is changed then. `table` null: nothing resolves, and nothing was issued.
absl::Status resolve_text(std::string& text, const CredentialTable* table, const CredentialScope& scope, CredentialTable::Now now,
                          UsedCredentials& used);

}  // namespace openshell::egress
