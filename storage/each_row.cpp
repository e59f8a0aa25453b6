#include "storage/each_row.hpp"

namespace openshell::storage {

absl::Status each_row(Transaction& tx, ListQuery query, const std::function<absl::Status(const Object&)>& use) {
  query.limit = kMaxPageSize;
  query.after.reset();
  do {
    auto page = tx.list(query);
    if (!page.ok()) return page.status();
    for (const auto& row : page->objects) {
      if (auto status = use(row); !status.ok()) return status;
    }
    query.after = page->next;
  } while (query.after);
  return absl::OkStatus();
}

}  // namespace openshell::storage
