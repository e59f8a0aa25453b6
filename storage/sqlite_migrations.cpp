// The schema, step by step. A released step never changes: its checksum is stored, and a database whose steps differ is refused.
#include <absl/strings/escaping.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <array>

#include "observability/text.hpp"
#include "storage/sqlite_connection.hpp"

namespace openshell::storage {
namespace {

struct Migration {
  int number;
  const char* name;
  const char* sql;
};

constexpr std::array kMigrations{
    Migration{1, "objects", R"sql(
    CREATE TABLE objects (
      id TEXT PRIMARY KEY,
      object_type TEXT NOT NULL,
      name TEXT,
      scope TEXT,
      version INTEGER,
      status TEXT,
      dedup_key TEXT,
      hit_count INTEGER NOT NULL DEFAULT 0,
      payload BLOB NOT NULL,
      created_at_ms INTEGER NOT NULL,
      updated_at_ms INTEGER NOT NULL,
      labels TEXT NOT NULL DEFAULT '{}',
      resource_version INTEGER NOT NULL DEFAULT 1,
      workspace TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE UNIQUE INDEX objects_name_uq ON objects (object_type, workspace, name) WHERE name IS NOT NULL;
    CREATE UNIQUE INDEX objects_version_uq ON objects (object_type, scope, version) WHERE scope IS NOT NULL AND version IS NOT NULL;
    CREATE UNIQUE INDEX objects_dedup_uq ON objects (object_type, scope, dedup_key) WHERE dedup_key IS NOT NULL;
    CREATE INDEX objects_scope_status_idx ON objects (object_type, scope, status, version) WHERE scope IS NOT NULL;
    CREATE INDEX objects_page_idx ON objects (object_type, created_at_ms, name, workspace, id);
    CREATE TABLE store_meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
  )sql"},
};

constexpr std::size_t kSecretBytes = 32;

std::string checksum(const char* sql) {
  const std::string_view text{sql};
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

absl::StatusOr<bool> table_exists(Connection& db, std::string_view name) {
  auto statement = db.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?");
  if (!statement.ok()) return statement.status();
  return statement->text(name).step();
}

/// OK and true: already applied as it is here. OK and false: to be applied.
absl::StatusOr<bool> applied(Connection& db, const Migration& migration) {
  auto statement = db.prepare("SELECT checksum FROM schema_migrations WHERE number = ?");
  if (!statement.ok()) return statement.status();
  auto row = statement->integer(migration.number).step();
  if (!row.ok() || !*row) return row;
  if (statement->column_text(0) != checksum(migration.sql)) {
    return absl::FailedPreconditionError(cat("database schema step ", migration.number, " (", migration.name,
                                             ") differs from this program's: it was made by another build"));
  }
  return true;
}

absl::Status apply(Connection& db, const Migration& migration) {
  if (auto status = db.run(migration.sql); !status.ok()) return status;
  auto statement = db.prepare("INSERT INTO schema_migrations (number, name, checksum, applied_at_ms) VALUES (?, ?, ?, unixepoch() * 1000)");
  if (!statement.ok()) return statement.status();
  return statement->integer(migration.number).text(migration.name).text(checksum(migration.sql)).step().status();
}

absl::Status check_not_newer(Connection& db) {
  auto statement = db.prepare("SELECT max(number) FROM schema_migrations");
  if (!statement.ok()) return statement.status();
  auto row = statement->step();
  if (!row.ok()) return row.status();
  const std::int64_t newest = statement->column_integer(0);
  if (newest <= kMigrations.back().number) return absl::OkStatus();
  return absl::FailedPreconditionError(
      cat("database schema ", newest, " is newer than this program, which knows up to ", kMigrations.back().number));
}

absl::Status migrate_in_transaction(Connection& db) {
  auto foreign = table_exists(db, "_sqlx_migrations");
  if (!foreign.ok()) return foreign.status();
  if (*foreign)
    return absl::FailedPreconditionError(
        "the database was written by another implementation of OpenShell; give this gateway a database of its own");
  if (auto status = db.run("CREATE TABLE IF NOT EXISTS schema_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT "
                           "NOT NULL, applied_at_ms INTEGER NOT NULL) STRICT");
      !status.ok()) {
    return status;
  }
  if (auto status = check_not_newer(db); !status.ok()) return status;
  for (const auto& migration : kMigrations) {
    auto done = applied(db, migration);
    if (!done.ok()) return done.status();
    if (*done) continue;
    if (auto status = apply(db, migration); !status.ok()) return status;
  }
  std::string secret(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(secret.size())) != 1)
    return absl::InternalError("no random bytes");
  auto insert = db.prepare("INSERT OR IGNORE INTO store_meta (key, value) VALUES ('page_token_key', ?)");
  if (!insert.ok()) return insert.status();
  return insert->blob(secret).step().status();
}

}  // namespace

absl::StatusOr<std::string> migrate(Connection& db) {
  if (auto status = db.run("BEGIN IMMEDIATE"); !status.ok()) return status;
  if (auto status = migrate_in_transaction(db); !status.ok()) {
    (void)db.run("ROLLBACK");
    return absl::Status{status.code(), cat("migration failed: ", status.message())};
  }
  if (auto status = db.run("COMMIT"); !status.ok()) return status;
  auto statement = db.prepare("SELECT value FROM store_meta WHERE key = 'page_token_key'");
  if (!statement.ok()) return statement.status();
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::DataLossError("database has no page token key");
  return statement->column_text(0);
}

}  // namespace openshell::storage
