#include "actors/gateway/records.hpp"

#include "actors/gateway/ssh_session_rows.hpp"
#include "observability/text.hpp"
#include "storage/each_row.hpp"
#include "storage/types.hpp"

namespace openshell::gateway {
namespace {

using storage::ListQuery;
using storage::Object;
using storage::Transaction;
namespace types = storage::types;

template <class T>
absl::StatusOr<T> decode(const Object& row) {
  T value;
  if (!value.ParseFromString(row.payload)) return absl::DataLossError(cat("the stored ", row.type, " ", row.id, " does not decode"));
  return value;
}

/// Calls `each` for every row of a type (and scope).
template <class Each>
absl::Status for_all(Transaction& tx, std::string_view type, std::optional<std::string> scope, Each each) {
  ListQuery query;
  query.type = std::string{type};
  query.scope = std::move(scope);
  return storage::each_row(tx, std::move(query), [&](const Object& row) {
    each(row);
    return absl::OkStatus();
  });
}

std::string status_text(pb::PolicyStatus status) {
  switch (status) {
    case pb::POLICY_STATUS_LOADED:
      return "loaded";
    case pb::POLICY_STATUS_FAILED:
      return "failed";
    case pb::POLICY_STATUS_SUPERSEDED:
      return "superseded";
    default:
      return "pending";
  }
}

absl::Status load_one(Transaction& tx, StoredSandbox& into) {
  const auto& id = into.record.sandbox().metadata().id();
  auto policies = load_policies(tx, id);
  if (!policies.ok()) return policies.status();
  into.policies = std::move(*policies);
  absl::Status fault;
  auto note = [&](const absl::Status& status) {
    if (fault.ok()) fault = status;
  };
  auto status = for_all(tx, types::kSandboxSettings, id, [&](const Object& row) {
    auto settings = settings_from_row(row);
    settings.ok() ? void(into.settings = std::move(*settings)) : note(settings.status());
  });
  status.Update(for_all(tx, types::kDraftPolicyChunk, id, [&](const Object& row) {
    auto draft = decode<records::DraftChunkRecord>(row);
    draft.ok() ? void(into.drafts[row.id] = std::move(*draft)) : note(draft.status());
  }));
  status.Update(for_all(tx, row_types::kReceipt, id, [&](const Object& row) {
    auto receipt = decode<records::ReceiptRecord>(row);
    receipt.ok() ? void(into.receipts[row.id] = std::move(*receipt)) : note(receipt.status());
  }));
  status.Update(fault);
  return status;
}

}  // namespace

absl::StatusOr<std::vector<std::uint64_t>> write_rows(Transaction& tx, const std::vector<RowWrite>& writes) {
  std::vector<std::uint64_t> versions;
  for (const auto& write : writes) {
    versions.push_back(0);
    if (write.kind == RowWrite::Kind::create) {
      auto row = tx.create(write.row);
      if (!row.ok()) return row.status();
      versions.back() = row->resource_version;
    } else if (write.kind == RowWrite::Kind::update) {
      auto stored = tx.get(write.row.type, write.row.id);
      if (!stored.ok()) return stored.status();
      if (!*stored) return absl::AbortedError(cat("the stored ", write.row.type, " ", write.row.id, " is gone"));
      auto row = write.row;
      row.resource_version = write.expected.value_or((*stored)->resource_version);
      auto written = tx.update(std::move(row));
      if (!written.ok()) return written.status();
      versions.back() = written->resource_version;
    } else if (write.kind == RowWrite::Kind::erase) {
      if (auto erased = tx.erase(write.row.type, write.row.id); !erased.ok()) return erased.status();
    } else if (auto erased = tx.erase_scope(write.row.type, *write.row.scope); !erased.ok()) {
      return erased.status();
    }
  }
  return versions;
}

Object to_row(const records::SandboxRecord& record) {
  const auto& meta = record.sandbox().metadata();
  Object row;
  row.type = std::string{types::kSandbox};
  row.id = meta.id();
  row.workspace = meta.workspace();
  row.name = meta.name();
  row.status = pb::SandboxPhase_Name(record.sandbox().status().phase());
  row.labels.insert(meta.labels().begin(), meta.labels().end());
  row.payload = record.SerializeAsString();
  return row;
}

Object to_row(const Stored<records::PolicyRevisionRecord>& revision, std::string_view scope, std::string_view workspace) {
  Object row;
  row.type = std::string{types::kSandboxPolicy};
  row.id = revision.row_id;
  row.workspace = std::string{workspace};
  row.scope = std::string{scope};
  row.version = revision.value.version();
  row.status = status_text(revision.value.status());
  row.payload = revision.value.SerializeAsString();
  return row;
}

Object to_row(const Stored<records::SettingsRecord>& settings, std::string_view type, std::string_view workspace, std::string_view name,
              std::string_view scope) {
  Object row;
  row.type = std::string{type};
  row.id = settings.row_id;
  row.workspace = std::string{workspace};
  row.name = std::string{name};
  row.scope = std::string{scope};
  row.payload = settings.value.SerializeAsString();
  return row;
}

Object to_row(const records::DraftChunkRecord& draft, std::string_view sandbox_id, std::string_view workspace) {
  Object row;
  row.type = std::string{types::kDraftPolicyChunk};
  row.id = draft.chunk().id();
  row.workspace = std::string{workspace};
  row.scope = std::string{sandbox_id};
  row.status = draft.chunk().status();
  if (!draft.dedup_key().empty()) row.dedup_key = draft.dedup_key();
  row.hit_count = draft.chunk().hit_count();
  row.payload = draft.SerializeAsString();
  return row;
}

Object to_row(const records::ReceiptRecord& receipt, std::string_view sandbox_id, std::string_view workspace) {
  Object row;
  row.type = std::string{row_types::kReceipt};
  row.id = receipt.receipt().receipt_id();
  row.workspace = std::string{workspace};
  row.scope = std::string{sandbox_id};
  row.payload = receipt.SerializeAsString();
  return row;
}

absl::StatusOr<records::SandboxRecord> sandbox_from_row(const Object& row) {
  auto record = decode<records::SandboxRecord>(row);
  if (!record.ok()) return record;
  if (record->sandbox().metadata().id() != row.id || row.id.empty()) {
    return absl::DataLossError(cat("the stored sandbox ", row.id, " names another id in its payload"));
  }
  record->mutable_sandbox()->mutable_metadata()->set_resource_version(row.resource_version);
  return record;
}

absl::StatusOr<Stored<records::PolicyRevisionRecord>> revision_from_row(const Object& row) {
  auto record = decode<records::PolicyRevisionRecord>(row);
  if (record.ok()) return Stored<records::PolicyRevisionRecord>{row.id, std::move(*record)};
  // Stays in lists, so that a person sees what happened to it.
  Stored<records::PolicyRevisionRecord> broken{row.id, {}};
  broken.value.set_version(static_cast<std::uint32_t>(row.version.value_or(0)));
  broken.value.set_status(pb::POLICY_STATUS_FAILED);
  broken.value.set_load_error(std::string{record.status().message()});
  return broken;
}

absl::StatusOr<Stored<records::SettingsRecord>> settings_from_row(const Object& row) {
  auto record = decode<records::SettingsRecord>(row);
  if (!record.ok()) return record.status();
  return Stored<records::SettingsRecord>{row.id, std::move(*record)};
}

absl::StatusOr<PolicyRows> load_policies(Transaction& tx, std::string_view scope) {
  PolicyRows rows;
  absl::Status fault;
  auto status = for_all(tx, types::kSandboxPolicy, std::string{scope}, [&](const Object& row) {
    auto revision = revision_from_row(row);
    revision.ok() ? void(rows[revision->value.version()] = std::move(*revision)) : fault.Update(revision.status());
  });
  status.Update(fault);
  if (!status.ok()) return status;
  return rows;
}

absl::StatusOr<StoredSandboxes> load_all(Transaction& tx) {
  StoredSandboxes all;
  auto status = for_all(tx, types::kSandbox, std::nullopt, [&](const Object& row) {
    StoredSandbox one;
    auto record = sandbox_from_row(row);
    absl::Status read = record.status();
    if (record.ok()) {
      one.record = std::move(*record);
      read = load_one(tx, one);
    }
    read.ok() ? void(all.sandboxes.push_back(std::move(one))) : void(all.unreadable.push_back(std::string{read.message()}));
  });
  if (!status.ok()) return status;
  return all;
}

std::vector<RowWrite> removal_of(const records::SandboxRecord& record) {
  const auto& id = record.sandbox().metadata().id();
  std::vector<RowWrite> writes;
  for (auto type : {types::kSandboxPolicy, types::kSandboxSettings, types::kDraftPolicyChunk, types::kServiceEndpoint, row_types::kReceipt,
                    row_types::kSshSession}) {
    RowWrite write{RowWrite::Kind::erase_scope, {}, {}};
    write.row.type = std::string{type};
    write.row.scope = id;
    writes.push_back(std::move(write));
  }
  RowWrite own{RowWrite::Kind::erase, {}, {}};
  own.row.type = std::string{types::kSandbox};
  own.row.id = id;
  writes.push_back(std::move(own));
  return writes;
}

}  // namespace openshell::gateway
