
#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>

#include "observability/text.hpp"
#include "storage/sqlite_connection.hpp"
#include "storage/status.hpp"

namespace openshell::storage {
namespace {

const std::string kColumns =
    "id, object_type, workspace, name, scope, version, status, dedup_key, hit_count, labels, payload, created_at_ms, updated_at_ms, "
    "resource_version";
const std::string kSelect = "SELECT " + kColumns + " FROM objects WHERE ";
const std::string kInsert =
    "INSERT INTO objects (id, object_type, workspace, name, scope, version, status, dedup_key, hit_count, labels, payload, created_at_ms, "
    "updated_at_ms, resource_version) ";
const std::string kOneRow = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)";

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string labels_to_json(const Labels& labels) {
  boost::json::object object;
  for (const auto& [key, value] : labels) object.emplace(key, value);
  return boost::json::serialize(object);
}

absl::StatusOr<Labels> labels_from_json(const std::string& text) {
  boost::json::error_code error;
  const auto value = boost::json::parse(text, error);
  if (error || !value.is_object()) return absl::DataLossError("labels are no JSON object");
  Labels labels;
  for (const auto& [key, entry] : value.as_object()) {
    if (!entry.is_string()) return absl::DataLossError("a label's value is no text");
    labels.emplace(key, entry.as_string());
  }
  return labels;
}

absl::StatusOr<Object> read_row(const Statement& row) {
  Object object;
  object.id = row.column_text(0);
  object.type = row.column_text(1);
  object.workspace = row.column_text(2);
  object.name = row.column_optional_text(3);
  object.scope = row.column_optional_text(4);
  object.version = row.column_optional_integer(5);
  object.status = row.column_optional_text(6);
  object.dedup_key = row.column_optional_text(7);
  object.hit_count = row.column_integer(8);
  auto labels = labels_from_json(row.column_text(9));
  if (!labels.ok()) return absl::DataLossError(cat(object.type, " ", object.id, ": ", labels.status().message()));
  object.labels = *std::move(labels);
  object.payload = row.column_text(10);
  object.created_at_ms = row.column_integer(11);
  object.updated_at_ms = row.column_integer(12);
  object.resource_version = static_cast<std::uint64_t>(row.column_integer(13));
  return object;
}

void bind_row(Statement& statement, const Object& object, std::int64_t now) {
  statement.text(object.id)
      .text(object.type)
      .text(object.workspace)
      .optional_text(object.name)
      .optional_text(object.scope)
      .optional_integer(object.version)
      .optional_text(object.status)
      .optional_text(object.dedup_key);
  statement.integer(object.hit_count).text(labels_to_json(object.labels)).blob(object.payload).integer(now).integer(now);
}

/// A database error of a write, said with what was written.
absl::Status about(const Object& object, const absl::Status& status) {
  if (const std::string constraint = violated_constraint(status); !constraint.empty()) return unique_error(object.type, constraint);
  return status;
}

absl::StatusOr<Object> written(const Object& object, Statement& statement) {
  auto row = statement.step();
  if (!row.ok()) return about(object, row.status());
  if (!*row) return absl::InternalError(cat("writing ", object.type, " ", object.id, " returned no row"));
  auto stored = read_row(statement);
  if (auto end = statement.step(); !end.ok()) return about(object, end.status());
  return stored;
}

}  // namespace

absl::StatusOr<std::optional<Object>> SqliteTransaction::first(absl::StatusOr<Statement> statement) {
  if (!statement.ok()) return statement.status();
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return std::nullopt;
  auto object = read_row(*statement);
  if (!object.ok()) return object.status();
  return *std::move(object);
}

absl::StatusOr<std::optional<Object>> SqliteTransaction::get(std::string_view type, std::string_view id) {
  auto statement = db_.prepare(kSelect + "object_type = ? AND id = ?");
  if (statement.ok()) statement->text(type).text(id);
  return first(std::move(statement));
}

absl::StatusOr<std::optional<Object>> SqliteTransaction::get_by_name(std::string_view type, std::string_view workspace,
                                                                     std::string_view name) {
  auto statement = db_.prepare(kSelect + "object_type = ? AND workspace = ? AND name = ?");
  if (statement.ok()) statement->text(type).text(workspace).text(name);
  return first(std::move(statement));
}

absl::StatusOr<std::optional<Object>> SqliteTransaction::get_version(std::string_view type, std::string_view scope, std::int64_t version) {
  auto statement = db_.prepare(kSelect + "object_type = ? AND scope = ? AND version = ?");
  if (statement.ok()) statement->text(type).text(scope).integer(version);
  return first(std::move(statement));
}

absl::StatusOr<std::optional<Object>> SqliteTransaction::latest_version(std::string_view type, std::string_view scope) {
  auto statement = db_.prepare(kSelect + "object_type = ? AND scope = ? AND version IS NOT NULL ORDER BY version DESC LIMIT 1");
  if (statement.ok()) statement->text(type).text(scope);
  return first(std::move(statement));
}

absl::Status SqliteTransaction::complete(ListQuery& query) {
  // A page token that had no room for the name: the row says it. Where the row is gone meanwhile the page goes on behind its creation time.
  if (!query.after || !query.after->name.empty() || query.after->id.empty()) return absl::OkStatus();
  auto row = get(query.type, query.after->id);
  if (!row.ok()) return row.status();
  if (!*row) return absl::OkStatus();
  query.after->name = (*row)->name.value_or("");
  query.after->workspace = (*row)->workspace;
  return absl::OkStatus();
}

absl::StatusOr<Page> SqliteTransaction::list(const ListQuery& wanted) {
  ListQuery query = wanted;
  if (auto status = complete(query); !status.ok()) return status;
  const std::size_t limit = std::clamp<std::size_t>(query.limit, 1, kMaxPageSize);
  const bool by_version = query.order == ListQuery::Order::kVersionDescending;
  std::string sql = kSelect + "object_type = ?";
  if (query.workspace) sql += " AND workspace = ?";
  if (query.scope) sql += " AND scope = ?";
  if (query.status) sql += " AND status = ?";
  // Keys hold dots and slashes and may hold quotes: they are compared as values, never spliced into a JSON path.
  for (std::size_t i = 0; i < query.selector.size(); ++i)
    sql += " AND EXISTS (SELECT 1 FROM json_each(objects.labels) WHERE key = ? AND value = ?)";
  if (query.after) {
    switch (query.order) {
      case ListQuery::Order::kCreated:
        sql += " AND (created_at_ms, ifnull(name, ''), workspace, id) > (?, ?, ?, ?)";
        break;
      case ListQuery::Order::kCreatedDescending:
        sql += " AND (created_at_ms, ifnull(name, ''), workspace, id) < (?, ?, ?, ?)";
        break;
      case ListQuery::Order::kVersionDescending:
        sql += " AND version < ?";
        break;
    }
  }
  switch (query.order) {
    case ListQuery::Order::kCreated:
      sql += " ORDER BY created_at_ms, ifnull(name, ''), workspace, id LIMIT ?";
      break;
    case ListQuery::Order::kCreatedDescending:
      sql += " ORDER BY created_at_ms DESC, ifnull(name, '') DESC, workspace DESC, id DESC LIMIT ?";
      break;
    case ListQuery::Order::kVersionDescending:
      sql += " ORDER BY version DESC LIMIT ?";
      break;
  }
  auto statement = db_.prepare(sql);
  if (!statement.ok()) return statement.status();
  statement->text(query.type);
  if (query.workspace) statement->text(*query.workspace);
  if (query.scope) statement->text(*query.scope);
  if (query.status) statement->text(*query.status);
  for (const auto& [key, value] : query.selector) statement->text(key).text(value);
  if (query.after) {
    statement->integer(query.after->position);
    if (!by_version) statement->text(query.after->name).text(query.after->workspace).text(query.after->id);
  }
  statement->integer(static_cast<std::int64_t>(limit) + 1);

  Page page;
  while (true) {
    auto row = statement->step();
    if (!row.ok()) return row.status();
    if (!*row) return page;
    if (page.objects.size() == limit) {
      const Object& last = page.objects.back();
      page.next = Cursor{by_version ? last.version.value_or(0) : last.created_at_ms, last.name.value_or(""), last.workspace, last.id};
      return page;
    }
    auto object = read_row(*statement);
    if (!object.ok()) return object.status();
    page.objects.push_back(*std::move(object));
  }
}

absl::StatusOr<std::uint64_t> SqliteTransaction::count(std::string_view type, std::optional<std::string_view> workspace) {
  auto statement = db_.prepare(workspace ? "SELECT count(*) FROM objects WHERE object_type = ? AND workspace = ?"
                                         : "SELECT count(*) FROM objects WHERE object_type = ?");
  if (!statement.ok()) return statement.status();
  statement->text(type);
  if (workspace) statement->text(*workspace);
  if (auto row = statement->step(); !row.ok()) return row.status();
  return static_cast<std::uint64_t>(statement->column_integer(0));
}

absl::StatusOr<Object> SqliteTransaction::create(Object object) {
  auto statement = db_.prepare(kInsert + "VALUES " + kOneRow + " RETURNING " + kColumns);
  if (!statement.ok()) return statement.status();
  bind_row(*statement, object, now_ms());
  return written(object, *statement);
}

absl::StatusOr<Object> SqliteTransaction::create_if_count_below(Object object, std::uint64_t limit) {
  auto statement = db_.prepare(kInsert +
                               "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1 WHERE (SELECT count(*) FROM objects WHERE object_type = ? "
                               "AND workspace = ?) < ? RETURNING " +
                               kColumns);
  if (!statement.ok()) return statement.status();
  bind_row(*statement, object, now_ms());
  statement->text(object.type).text(object.workspace).integer(static_cast<std::int64_t>(limit));
  auto row = statement->step();
  if (!row.ok()) return about(object, row.status());
  if (!*row) return absl::ResourceExhaustedError(cat("workspace '", object.workspace, "' already holds ", limit, " of ", object.type));
  return read_row(*statement);
}

absl::StatusOr<std::uint64_t> SqliteTransaction::current_version(std::string_view type, std::string_view id) {
  auto statement = db_.prepare("SELECT resource_version FROM objects WHERE object_type = ? AND id = ?");
  if (!statement.ok()) return statement.status();
  auto row = statement->text(type).text(id).step();
  if (!row.ok()) return row.status();
  return *row ? static_cast<std::uint64_t>(statement->column_integer(0)) : 0;
}

absl::StatusOr<Object> SqliteTransaction::update(Object object) {
  auto statement = db_.prepare(
      "UPDATE objects SET payload = ?, labels = ?, status = ?, hit_count = ?, dedup_key = ?, updated_at_ms = ?, resource_version = "
      "resource_version + 1 "
      "WHERE object_type = ? AND id = ? AND resource_version = ? RETURNING " +
      kColumns);
  if (!statement.ok()) return statement.status();
  statement->blob(object.payload)
      .text(labels_to_json(object.labels))
      .optional_text(object.status)
      .integer(object.hit_count)
      .optional_text(object.dedup_key)
      .integer(now_ms());
  statement->text(object.type).text(object.id).integer(static_cast<std::int64_t>(object.resource_version));
  auto row = statement->step();
  if (!row.ok()) return about(object, row.status());
  if (*row) return read_row(*statement);
  auto current = current_version(object.type, object.id);
  if (!current.ok()) return current.status();
  return conflict_error(object.type, object.id, *current);
}

absl::StatusOr<Object> SqliteTransaction::put(Object object) {
  if (!object.name) return absl::InvalidArgumentError(cat("put of a ", object.type, " without a name"));
  auto statement = db_.prepare(kInsert + "VALUES " + kOneRow +
                               " ON CONFLICT (object_type, workspace, name) WHERE name IS NOT NULL DO UPDATE SET payload = "
                               "excluded.payload, labels = excluded.labels, "
                               "status = excluded.status, hit_count = excluded.hit_count, updated_at_ms = excluded.updated_at_ms, "
                               "resource_version = resource_version + 1 RETURNING " +
                               kColumns);
  if (!statement.ok()) return statement.status();
  bind_row(*statement, object, now_ms());
  return written(object, *statement);
}

absl::StatusOr<bool> SqliteTransaction::erase(std::string_view type, std::string_view id, std::optional<std::uint64_t> expected) {
  auto current = current_version(type, id);
  if (!current.ok()) return current.status();
  if (*current == 0) return false;
  if (expected && *expected != *current) return conflict_error(type, id, *current);
  auto statement = db_.prepare("DELETE FROM objects WHERE object_type = ? AND id = ?");
  if (!statement.ok()) return statement.status();
  if (auto row = statement->text(type).text(id).step(); !row.ok()) return row.status();
  return true;
}

absl::StatusOr<std::uint64_t> SqliteTransaction::erase_scope(std::string_view type, std::string_view scope) {
  auto statement = db_.prepare("DELETE FROM objects WHERE object_type = ? AND scope = ?");
  if (!statement.ok()) return statement.status();
  if (auto row = statement->text(type).text(scope).step(); !row.ok()) return row.status();
  return static_cast<std::uint64_t>(db_.changes());
}

}  // namespace openshell::storage
