#include "actors/gateway/paging.hpp"

#include <algorithm>

#include "api/errors.hpp"
#include "observability/text.hpp"

namespace openshell::gateway {

absl::StatusOr<std::size_t> page_limit(std::int32_t page_size) {
  if (page_size < 0) return api::invalid_field("page_size", "page_size must not be negative");
  if (page_size == 0) return storage::kDefaultPageSize;
  return std::min<std::size_t>(static_cast<std::size_t>(page_size), storage::kMaxPageSize);
}

absl::StatusOr<pb::ListSandboxPoliciesResponse> page_of(const PolicyHistory& policies, const pb::ListSandboxPoliciesRequest& request,
                                                        const storage::Store& store, const std::string& scope) {
  auto limit = page_limit(request.page_size());
  if (!limit.ok()) return limit.status();
  const auto binding = cat("ListSandboxPolicies|", scope);
  auto after = store.parse_page_token(binding, request.page_token());
  if (!after.ok()) return api::invalid_field("page_token", to_std(after.status().message()));
  pb::ListSandboxPoliciesResponse response;
  const auto& rows = policies.rows();
  for (auto it = rows.rbegin(); it != rows.rend(); ++it) {
    if (*after && static_cast<std::int64_t>(it->first) >= (*after)->position) continue;
    if (static_cast<std::size_t>(response.revisions_size()) == *limit) {
      storage::Cursor cursor;
      cursor.position = response.revisions(response.revisions_size() - 1).version();
      response.set_next_page_token(store.page_token(binding, cursor));
      break;
    }
    *response.add_revisions() = PolicyHistory::to_public(it->second.value, false);
  }
  return response;
}

}  // namespace openshell::gateway
