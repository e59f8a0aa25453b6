#include "egress/credentials/text.hpp"

#include <algorithm>

namespace openshell::egress {

absl::Status resolve_text(std::string& text, const CredentialTable* table, const CredentialScope& scope, CredentialTable::Now now,
                          UsedCredentials& used) {
  if (table == nullptr) return absl::OkStatus();
  const auto tokens = well_formed_placeholders(text);
  if (tokens.empty()) return absl::OkStatus();
  std::string out;
  std::size_t from = 0;
  UsedCredentials found;
  for (const auto& token : tokens) {
    if (!table->was_issued(token)) continue;
    if (!table->is_bound(token.key)) return absl::FailedPreconditionError("a credential that is bound to nothing goes into no message");
    auto secret = table->resolve(token, scope, now);
    if (!secret.ok()) return secret.status();
    out.append(text, from, token.begin - from).append(secret->reveal());
    from = token.begin + token.length;
    if (std::find(found.keys.begin(), found.keys.end(), token.key) == found.keys.end()) found.keys.push_back(token.key);
    found.texts.push_back(std::move(*secret));
  }
  out.append(text, from);
  text = std::move(out);
  used.keys.insert(used.keys.end(), found.keys.begin(), found.keys.end());
  std::move(found.texts.begin(), found.texts.end(), std::back_inserter(used.texts));
  return absl::OkStatus();
}

}  // namespace openshell::egress
