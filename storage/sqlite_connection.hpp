// One SQLite connection with its prepared statements. Used by one thread at a time.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "storage/store.hpp"

namespace openshell::storage {

/// A prepared statement between reset and done. Positions count from 1 (bind) and from 0 (columns), as SQLite's.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_{statement} {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement(Statement&& other) noexcept : statement_{other.statement_} { other.statement_ = nullptr; }
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  Statement& text(std::string_view value);
  Statement& optional_text(const std::optional<std::string>& value);
  Statement& blob(std::string_view value);
  Statement& integer(std::int64_t value);
  Statement& optional_integer(const std::optional<std::int64_t>& value);

  /// True: a row is there. False: done.
  absl::StatusOr<bool> step();
  [[nodiscard]] std::string column_text(int column) const;
  [[nodiscard]] std::optional<std::string> column_optional_text(int column) const;
  [[nodiscard]] std::int64_t column_integer(int column) const;
  [[nodiscard]] std::optional<std::int64_t> column_optional_integer(int column) const;

 private:
  sqlite3_stmt* statement_;
  int next_ = 1;
};

class Connection {
 public:
  enum class Access { kWrite, kRead };
  /// `path` empty: in memory.
  static absl::StatusOr<std::unique_ptr<Connection>> open(const std::string& path, Access access);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Prepared once per text, reset when the Statement dies; the same text must not be in use twice at once.
  absl::StatusOr<Statement> prepare(const std::string& sql);
  /// One or several statements without parameters or rows.
  absl::Status run(const char* sql);
  [[nodiscard]] std::int64_t changes() const { return sqlite3_changes64(handle_); }
  [[nodiscard]] sqlite3* handle() const { return handle_; }

 private:
  explicit Connection(sqlite3* handle) : handle_{handle} {}
  sqlite3* handle_;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

/// The last error of a connection as a status: ALREADY_EXISTS with its constraint, UNAVAILABLE where it may pass (busy, full, I/O),
/// DATA_LOSS where the file is damaged, else INTERNAL.
absl::Status sqlite_error(sqlite3* handle, std::string_view doing);

/// Brings the schema to this program's version in one transaction a step. `secret` is the database's own key for page tokens.
absl::StatusOr<std::string> migrate(Connection& connection);

class SqliteTransaction final : public Transaction {
 public:
  explicit SqliteTransaction(Connection& connection) : db_{connection} {}
  absl::StatusOr<std::optional<Object>> get(std::string_view type, std::string_view id) override;
  absl::StatusOr<std::optional<Object>> get_by_name(std::string_view type, std::string_view workspace, std::string_view name) override;
  absl::StatusOr<std::optional<Object>> get_version(std::string_view type, std::string_view scope, std::int64_t version) override;
  absl::StatusOr<std::optional<Object>> latest_version(std::string_view type, std::string_view scope) override;
  absl::StatusOr<Page> list(const ListQuery& query) override;
  absl::StatusOr<std::uint64_t> count(std::string_view type, std::optional<std::string_view> workspace) override;
  absl::StatusOr<Object> create(Object object) override;
  absl::StatusOr<Object> create_if_count_below(Object object, std::uint64_t limit) override;
  absl::StatusOr<Object> update(Object object) override;
  absl::StatusOr<Object> put(Object object) override;
  absl::StatusOr<bool> erase(std::string_view type, std::string_view id, std::optional<std::uint64_t> expected) override;
  absl::StatusOr<std::uint64_t> erase_scope(std::string_view type, std::string_view scope) override;

 private:
  absl::StatusOr<std::optional<Object>> first(absl::StatusOr<Statement> statement);
  absl::StatusOr<std::uint64_t> current_version(std::string_view type, std::string_view id);
  absl::Status complete(ListQuery& query);
  Connection& db_;
};

}  // namespace openshell::storage
