// The one way to durable state: objects under compare-and-swap, changed in transactions that run on a worker thread.
//
//   store.write([sandbox](Transaction& tx) -> absl::Status {
//                 auto row = tx.get("sandbox", sandbox);                    // StatusOr<optional<Object>>
//                 ...
//                 return tx.update(*row).status();                          // row->resource_version is what was read: a lost race is
//                 ABORTED
//               },
//               [self](absl::Status committed) { caf::anon_send(self, stored_atom::value, ...); });
//
// Nothing here blocks the caller: `work` and `done` both run on a thread of the store. `done` is called exactly once, after the commit is
// on the disk, and must be short (send a message, complete a reply). It is also called when the store closes (CANCELLED).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/labels.hpp"

namespace openshell::storage {

constexpr std::size_t kMaxPageSize = 1000;       ///< rows one list() gives at most
constexpr std::size_t kDefaultPageSize = 100;    ///< what a page size of 0 means
constexpr std::size_t kMaxPageTokenBytes = 256;  ///< the published client stops at 1 MiB of tokens in 10,000 pages

/// One row. `payload` is a private message of whoever owns the type; the columns beside it are what can be searched and compared.
struct Object {
  std::string type;                     ///< "sandbox", "provider", "sandbox_policy": one of the types below, or a new one
  std::string id;                       ///< unique over all types; a lower-case UUID unless the type says otherwise
  std::string workspace;                ///< empty: platform scope
  std::optional<std::string> name;      ///< unique within (type, workspace); absent for revisions
  std::optional<std::string> scope;     ///< what the row belongs to: a sandbox id, a provider id, "__global__"
  std::optional<std::int64_t> version;  ///< unique within (type, scope): number of a policy revision
  std::optional<std::string> status;
  std::optional<std::string> dedup_key;  ///< unique within (type, scope)
  std::int64_t hit_count = 0;
  Labels labels;
  std::string payload;
  std::int64_t created_at_ms = 0;      ///< set by create(); Unix milliseconds
  std::int64_t updated_at_ms = 0;      ///< set by every write
  std::uint64_t resource_version = 0;  ///< 1 after create(), one more with every update; the token of compare-and-swap
};

/// Names of the types with more than one user. A type with one owner is named by its owner.
namespace types {
inline constexpr std::string_view kWorkspace = "workspace";
inline constexpr std::string_view kWorkspaceMember = "workspace_member";
inline constexpr std::string_view kSandbox = "sandbox";
inline constexpr std::string_view kProvider = "provider";
inline constexpr std::string_view kProviderProfile = "provider_profile";
inline constexpr std::string_view kEncryptedCredential = "credential.gateway-encrypted";
inline constexpr std::string_view kSandboxPolicy = "sandbox_policy";
inline constexpr std::string_view kDraftPolicyChunk = "draft_policy_chunk";
inline constexpr std::string_view kGatewaySettings = "gateway_settings";
inline constexpr std::string_view kSandboxSettings = "sandbox_settings";
inline constexpr std::string_view kMutationAdmission = "mutation_admission_v1";
}  // namespace types

/// Where a page ended. Opaque to everybody but a Store.
struct Cursor {
  std::int64_t position = 0;  ///< creation time of the last row, or its version where the order is by version
  std::string name;           ///< may be left out where it is long: the row is then found by id
  std::string workspace;
  std::string id;
};

struct ListQuery {
  enum class Order { kCreated, kVersionDescending, kCreatedDescending };
  std::string type;
  std::optional<std::string> workspace;  ///< absent: all workspaces
  std::optional<std::string> scope;
  std::optional<std::string> status;
  Labels selector;                ///< all must match, before the page is cut
  Order order = Order::kCreated;  ///< kCreated: (created_at_ms, name, workspace, id) ascending
  std::optional<Cursor> after;
  std::size_t limit = kDefaultPageSize;  ///< 1..kMaxPageSize
};

struct Page {
  std::vector<Object> objects;
  std::optional<Cursor> next;  ///< absent on the last page
};

/// All calls of one transaction see one state of the database, and its changes become visible together or not at all. Used on the store's
/// thread only, never kept.
///
/// Errors: NOT_FOUND is never one (reads give nullopt, erase gives false). A lost race is ABORTED and carries the current version
/// (`conflict_version`), a taken name, version or key is ALREADY_EXISTS and carries the constraint (`violated_constraint`). Everything else
/// is INTERNAL or UNAVAILABLE.
class Transaction {
 public:
  virtual ~Transaction() = default;

  virtual absl::StatusOr<std::optional<Object>> get(std::string_view type, std::string_view id) = 0;
  virtual absl::StatusOr<std::optional<Object>> get_by_name(std::string_view type, std::string_view workspace, std::string_view name) = 0;
  /// The row of a revision: (type, scope, version).
  virtual absl::StatusOr<std::optional<Object>> get_version(std::string_view type, std::string_view scope, std::int64_t version) = 0;
  /// The row with the highest version of a scope.
  virtual absl::StatusOr<std::optional<Object>> latest_version(std::string_view type, std::string_view scope) = 0;
  virtual absl::StatusOr<Page> list(const ListQuery& query) = 0;
  virtual absl::StatusOr<std::uint64_t> count(std::string_view type, std::optional<std::string_view> workspace) = 0;

  /// Inserts; id, type and payload are taken as given, times and resource_version are set. Returns the row as stored.
  virtual absl::StatusOr<Object> create(Object object) = 0;
  /// As create(), but RESOURCE_EXHAUSTED where the workspace already holds `limit` rows of the type. One statement: two callers can not
  /// both take the last place.
  virtual absl::StatusOr<Object> create_if_count_below(Object object, std::uint64_t limit) = 0;
  /// Writes payload, labels, status, hit_count and dedup_key where the stored resource_version equals `object.resource_version`; name,
  /// workspace, scope, version and creation time never change. Returns the row as stored. ABORTED where another version, or none, is
  /// stored.
  virtual absl::StatusOr<Object> update(Object object) = 0;
  /// Inserts, or updates whatever version is there, by (type, workspace, name).
  virtual absl::StatusOr<Object> put(Object object) = 0;
  /// True: deleted. False: was not there. ABORTED: there with another version than `expected` (absent: any).
  virtual absl::StatusOr<bool> erase(std::string_view type, std::string_view id, std::optional<std::uint64_t> expected = std::nullopt) = 0;
  /// Deletes all rows of a type that belong to `scope`; returns how many.
  virtual absl::StatusOr<std::uint64_t> erase_scope(std::string_view type, std::string_view scope) = 0;
};

/// ABORTED of a lost race: the version that is stored now, 0 where no row is; nullopt for any other status.
std::optional<std::uint64_t> conflict_version(const absl::Status& status);
/// ALREADY_EXISTS: `objects_pkey`, `objects_name_uq`, `objects_version_uq` or `objects_dedup_uq`; empty for any other status.
std::string violated_constraint(const absl::Status& status);

/// Thread-safe. Closing (the destructor) lets the running transaction end, answers all others CANCELLED and joins the threads.
class Store {
 public:
  using Work = std::function<absl::Status(Transaction&)>;
  using Done = std::function<void(absl::Status)>;

  virtual ~Store() = default;

  /// Runs `work` in a transaction that may write. Not OK from `work`: everything it wrote is undone and the status goes to `done`. Writes
  /// that wait at the same time share one commit (one fsync); each is still undone alone. Order: writes run in the order of the calls.
  virtual void write(Work work, Done done) = 0;
  /// Runs `work` on a snapshot, beside writers. A read that starts after `done` of a write sees that write.
  virtual void read(Work work, Done done) = 0;
  /// As write and read, but waits. For start-up, tests and threads that may block; never from an actor or a gRPC thread.
  virtual absl::Status write_and_wait(Work work) = 0;
  virtual absl::Status read_and_wait(Work work) = 0;
  /// Opaque page tokens, bound to `binding` (RPC name, scope and every request field but the page size), authenticated with a key of this
  /// database.
  [[nodiscard]] virtual std::string page_token(std::string_view binding, const Cursor& cursor) const = 0;
  /// INVALID_ARGUMENT `page_token ...` for a damaged or foreign token, and for one of other parameters. Empty token: no cursor.
  [[nodiscard]] virtual absl::StatusOr<std::optional<Cursor>> parse_page_token(std::string_view binding, std::string_view token) const = 0;
  /// Trivial query through the reading side; for readiness.
  virtual void ping(Done done) = 0;
};

/// Opens by URL: `sqlite:PATH` (made when missing, 0600) or `sqlite::memory:`. Migrates first. INVALID_ARGUMENT for another scheme (the
/// message shows no password), FAILED_PRECONDITION for a database that is newer than this program or of another program.
absl::StatusOr<std::unique_ptr<Store>> open_store(std::string_view url);

/// A fresh lower-case UUID v4 from the kernel's random source.
std::string new_uuid();

}  // namespace openshell::storage
