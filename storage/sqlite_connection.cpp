#include "storage/sqlite_connection.hpp"

#include <sys/stat.h>

#include "observability/text.hpp"
#include "storage/status.hpp"

namespace openshell::storage {
namespace {

constexpr int kBusyTimeoutMs = 5000;

/// SQLite names the columns of a violated index, not the index.
std::string_view constraint_of(std::string_view message) {
  if (message.find("objects.dedup_key") != std::string_view::npos) return "objects_dedup_uq";
  if (message.find("objects.version") != std::string_view::npos) return "objects_version_uq";
  if (message.find("objects.name") != std::string_view::npos) return "objects_name_uq";
  return "objects_pkey";
}

}  // namespace

absl::Status sqlite_error(sqlite3* handle, std::string_view doing) {
  const int code = sqlite3_extended_errcode(handle);
  const std::string message = sqlite3_errmsg(handle);
  if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY) return unique_error(doing, constraint_of(message));
  const std::string text = cat("database: ", doing, ": ", message);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
    case SQLITE_CANTOPEN:
      return absl::UnavailableError(text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    default:
      return absl::InternalError(text);
  }
}

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Statement& Statement::text(std::string_view value) {
  sqlite3_bind_text64(statement_, next_++, value.data() == nullptr ? "" : value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Statement& Statement::optional_text(const std::optional<std::string>& value) {
  if (value) return text(*value);
  sqlite3_bind_null(statement_, next_++);
  return *this;
}

Statement& Statement::blob(std::string_view value) {
  sqlite3_bind_blob64(statement_, next_++, value.data() == nullptr ? "" : value.data(), value.size(), SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::integer(std::int64_t value) {
  sqlite3_bind_int64(statement_, next_++, value);
  return *this;
}

Statement& Statement::optional_integer(const std::optional<std::int64_t>& value) {
  if (value) return integer(*value);
  sqlite3_bind_null(statement_, next_++);
  return *this;
}

absl::StatusOr<bool> Statement::step() {
  switch (sqlite3_step(statement_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return sqlite_error(sqlite3_db_handle(statement_), "step");
  }
}

std::string Statement::column_text(int column) const {
  // Blob first: for a text column this gives its bytes unchanged, NUL included.
  const void* bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? std::string{} : std::string{static_cast<const char*>(bytes), static_cast<std::size_t>(size)};
}

std::optional<std::string> Statement::column_optional_text(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return column_text(column);
}

std::int64_t Statement::column_integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::optional<std::int64_t> Statement::column_optional_integer(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return column_integer(column);
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::open(const std::string& path, Access access) {
  const std::string name = path.empty() ? ":memory:" : path;
  // The file, its write-ahead log and the shared index are made 0600: SQLite gives the last two the mode of the first.
  const mode_t before = ::umask(0077);
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (access == Access::kWrite ? SQLITE_OPEN_CREATE : 0);
  const int opened = sqlite3_open_v2(name.c_str(), &handle, flags, nullptr);
  std::unique_ptr<Connection> connection{new Connection{handle}};
  if (opened != SQLITE_OK) {
    ::umask(before);
    return absl::UnavailableError(
        cat("failed to open database ", name, ": ", handle == nullptr ? "out of memory" : sqlite3_errmsg(handle)));
  }
  sqlite3_busy_timeout(handle, kBusyTimeoutMs);
  absl::Status status = connection->run("PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF; PRAGMA synchronous=FULL;");
  if (status.ok() && access == Access::kWrite) status = connection->run("PRAGMA journal_mode=WAL;");
  if (status.ok() && access == Access::kRead) status = connection->run("PRAGMA query_only=ON;");
  ::umask(before);
  if (!status.ok()) return status;
  if (!path.empty()) {
    for (const char* suffix : {"", "-wal", "-shm"}) ::chmod((path + suffix).c_str(), 0600);
  }
  return connection;
}

Connection::~Connection() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

absl::StatusOr<Statement> Connection::prepare(const std::string& sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
        SQLITE_OK) {
      return sqlite_error(handle_, sql);
    }
    found = statements_.emplace(sql, statement).first;
  }
  return Statement{found->second};
}

absl::Status Connection::run(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return sqlite_error(handle_, sql);
  return absl::OkStatus();
}

}  // namespace openshell::storage
