#include "storage/sqlite_room.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "observability/text.hpp"

namespace openshell::storage {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;

std::size_t number_of(Connection& db, const char* sql) {
  auto statement = db.prepare(sql);
  if (!statement.ok()) return 0;
  const auto row = statement->step();
  return row.ok() && *row ? static_cast<std::size_t>(statement->column_integer(0)) : 0;
}

/// Zeros behind what stands there: no frame, since a frame's checksum counts its log's salt in. SQLite writes over them.
void lengthen_log(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;
  struct stat status {};
  const std::vector<char> zeros(kPieceBytes);
  bool written = ::fstat(fd, &status) == 0;
  for (auto at = static_cast<std::size_t>(status.st_size); written && at < kReservedBytes;) {
    const auto count = ::pwrite(fd, zeros.data(), std::min(zeros.size(), kReservedBytes - at), static_cast<off_t>(at));
    written = count > 0;
    at += written ? static_cast<std::size_t>(count) : 0;
  }
  ::fdatasync(fd);  // until then nothing is allotted
  ::close(fd);
}

/// Pages that a dropped table leaves behind. They hold zeros, so the drop needs not to write them again.
void fill_database(Connection& writer) {
  const std::string fill = cat("BEGIN IMMEDIATE; DROP TABLE IF EXISTS room; CREATE TABLE room(b BLOB); INSERT INTO room VALUES (zeroblob(",
                               kReservedBytes, ")); COMMIT");
  if (auto filled = writer.run(fill.c_str()); !filled.ok()) {
    (void)writer.run("ROLLBACK");
    return;
  }
  (void)writer.run("PRAGMA secure_delete=OFF");
  (void)writer.run("DROP TABLE room");
  (void)writer.run("PRAGMA secure_delete=ON");
}

}  // namespace

void reserve_room(Connection& writer, const std::string& path) {
  const auto free = number_of(writer, "PRAGMA freelist_count") * number_of(writer, "PRAGMA page_size");
  if (free < kReservedBytes) fill_database(writer);
  lengthen_log(path + "-wal");
}

}  // namespace openshell::storage
