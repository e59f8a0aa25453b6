#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::supervisor {

/// The directory of the outbox's journal, as the journal needs it; tests have one in memory that loses what was not synced. Every function
/// may wait for the disk. One thread at a time. Names are file names without a slash.
class JournalDisk {
 public:
  virtual ~JournalDisk() = default;

  /// The directory exists, belongs to this user alone and is locked against any other process. Again and again until it is.
  virtual absl::Status open() = 0;
  virtual absl::StatusOr<std::vector<std::string>> list() = 0;
  /// The whole file; RESOURCE_EXHAUSTED where it is longer than `limit` bytes.
  virtual absl::StatusOr<std::string> read(const std::string& name, std::size_t limit) = 0;
  /// A new file with these bytes. It is there after a crash.
  virtual absl::Status create(const std::string& name, std::string_view bytes) = 0;
  /// At the end of a file. `durable`: after a crash the bytes are there.
  virtual absl::Status append(const std::string& name, std::string_view bytes, bool durable) = 0;
  /// Only the first `size` bytes stay, also after a crash.
  virtual absl::Status cut(const std::string& name, std::size_t size) = 0;
  virtual absl::Status copy(const std::string& from, const std::string& to) = 0;
  virtual absl::Status rename(const std::string& from, const std::string& to) = 0;  ///< durable
  virtual absl::Status remove(const std::string& name) = 0;                         ///< durable
};

}  // namespace openshell::supervisor
