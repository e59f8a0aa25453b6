// Puts secrets where placeholders stand in a request head, and takes them out of response heads again.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "egress/credentials/table.hpp"
#include "egress/http/head.hpp"

namespace openshell::egress {

/// What one request was given.
struct UsedCredentials {
  std::vector<std::string> keys;
  std::vector<Secret> texts;  ///< every form in which a secret was written, for masking
  [[nodiscard]] bool any() const noexcept { return !keys.empty(); }
};

/// Resolves placeholders in the Authorization header, and where else the credential's profile puts it: another header, a query value, a
/// path segment. In a header: the whole value, `<word> <placeholder>`, or inside `Basic <base64>`; query and path are percent-encoded anew.
/// `head.target` is in canonical form. A marker anywhere else in the head, or one that remains, is refused. `table` null: every marker is.
/// Nothing of `head` is changed on an error. PERMISSION_DENIED: answer 403 credential_endpoint_mismatch; FAILED_PRECONDITION: 500
/// credential_unavailable, with kNotDeclared as its message where only the place is wrong. No message holds a secret, a placeholder or a
/// key.
inline constexpr std::string_view kNotDeclared = "credential_placement_not_declared";
absl::StatusOr<UsedCredentials> resolve_head(http::RequestHead& head, const CredentialTable* table, const CredentialScope& scope,
                                             CredentialTable::Now now);

/// True where the target or a header field holds a reserved marker, inside Basic too.
bool head_has_marker(const http::RequestHead& head);

/// Replaces every text of `used` in reason and header values. True: something was masked.
bool mask_head(http::ResponseHead& head, const UsedCredentials& used);

}  // namespace openshell::egress
