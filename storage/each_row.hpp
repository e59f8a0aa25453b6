// Walks over all rows of a query, page by page, inside one transaction.
#pragma once

#include <absl/status/status.h>

#include <functional>

#include "storage/store.hpp"

namespace openshell::storage {

/// Calls `use` for every row that `query` matches, in the order of list(); `limit` and `after` of the query are ignored. The rows may be
/// erased meanwhile. Ends at the first status of `use` or of the store that is not OK, and returns it.
absl::Status each_row(Transaction& tx, ListQuery query, const std::function<absl::Status(const Object&)>& use);

}  // namespace openshell::storage
