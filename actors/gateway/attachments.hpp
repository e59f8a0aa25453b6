// Which sandboxes a provider is attached to, as the store has it. Asked inside the transaction that deletes the provider, so that no
// attachment can come between question and deletion; the one that attaches looks for the provider in its own transaction.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

#include "providers/provider.hpp"
#include "storage/store.hpp"

namespace openshell::gateway {

/// Names, sorted. DATA_LOSS where a row can not be read: it might hold an attachment.
absl::StatusOr<std::vector<std::string>> sandboxes_with_provider(storage::Transaction& tx, const std::string& workspace,
                                                                 std::string_view provider);

/// Are all of `attached` still stored as they were read? FAILED_PRECONDITION `provider 'P' not found`, ABORTED with the version there is.
absl::Status check_unchanged(storage::Transaction& tx, const std::vector<providers::Provider>& attached);

}  // namespace openshell::gateway
