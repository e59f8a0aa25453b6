// How the gateway's records lie in the store: one row each, the payload a message of proto/records.proto. Only entities and
// GlobalConfiguration write them.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "records.pb.h"
#include "storage/store.hpp"

namespace openshell::gateway {

namespace pb = openshell::v1;
namespace records = openshell::internal::records::v1;

/// Rows of one sandbox that are deleted with it have its id as scope.
namespace row_types {
inline constexpr std::string_view kReceipt = "provider_receipt";
inline constexpr std::string_view kGlobalScope = "__global__";
}  // namespace row_types

/// A value with what the store knows it by.
template <class T>
struct Stored {
  std::string row_id;
  T value;
};

using PolicyRows = std::map<std::uint32_t, Stored<records::PolicyRevisionRecord>>;  ///< by version
using DraftRows = std::map<std::string, records::DraftChunkRecord>;                 ///< by chunk id, which is the row's
using ReceiptRows = std::map<std::string, records::ReceiptRecord>;                  ///< by receipt id

/// Everything stored about one sandbox.
struct StoredSandbox {
  records::SandboxRecord record;  ///< with its resource_version filled in
  PolicyRows policies;
  std::optional<Stored<records::SettingsRecord>> settings;
  DraftRows drafts;
  ReceiptRows receipts;
  std::vector<openshell::v1::ServiceEndpoint> services;  ///< of a new one: stored together with it
};
struct StoredSandboxes {
  std::vector<StoredSandbox> sandboxes;
  std::vector<std::string> unreadable;  ///< one sentence per row that did not decode; that sandbox is skipped, never guessed
};

/// One change of the store.
struct RowWrite {
  enum class Kind : std::uint8_t { create, update, erase, erase_scope };
  Kind kind = Kind::update;
  storage::Object row;                    ///< erase: type and id; erase_scope: type and scope
  std::optional<std::uint64_t> expected;  ///< update: the version that must be stored; absent: any
};

/// Applies all in order and answers the versions that the rows have afterwards (0 for what was erased). The caller's transaction undoes all
/// when one fails.
absl::StatusOr<std::vector<std::uint64_t>> write_rows(storage::Transaction& tx, const std::vector<RowWrite>& writes);

storage::Object to_row(const records::SandboxRecord& record);
storage::Object to_row(const Stored<records::PolicyRevisionRecord>& revision, std::string_view scope, std::string_view workspace);
storage::Object to_row(const Stored<records::SettingsRecord>& settings, std::string_view type, std::string_view workspace,
                       std::string_view name, std::string_view scope);
storage::Object to_row(const records::DraftChunkRecord& draft, std::string_view sandbox_id, std::string_view workspace);
storage::Object to_row(const records::ReceiptRecord& receipt, std::string_view sandbox_id, std::string_view workspace);

/// DATA_LOSS naming the row.
absl::StatusOr<records::SandboxRecord> sandbox_from_row(const storage::Object& row);
absl::StatusOr<Stored<records::PolicyRevisionRecord>> revision_from_row(const storage::Object& row);
absl::StatusOr<Stored<records::SettingsRecord>> settings_from_row(const storage::Object& row);

/// All sandboxes with what belongs to them, at start.
absl::StatusOr<StoredSandboxes> load_all(storage::Transaction& tx);
/// The global revisions, by version.
absl::StatusOr<PolicyRows> load_policies(storage::Transaction& tx, std::string_view scope);

/// Every row that is deleted with the sandbox, and its own.
std::vector<RowWrite> removal_of(const records::SandboxRecord& record);

}  // namespace openshell::gateway
