#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/outbox/journal_disk.hpp"
#include "actors/outbox/journal_record.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// The write-ahead journal of the status outbox over the files of one directory: `<16 hex digits>.journal`, named by the sequence of the
/// first status. What was appended is there after a crash and is replayed, in order, until it is marked done. Damage costs what is damaged
/// and never a start. Waits for the disk; one thread at a time. [ACK-47, ACK-48]
class JournalFiles {
 public:
  struct Limits {
    std::size_t file_bytes = 1U << 20;    ///< a file that would grow beyond is followed by the next
    std::size_t files = 64;               ///< one more: the journal is full, which counts as unwritable
    std::size_t read_back = 256;          ///< statuses of one `read`
    std::size_t bad_files = 4;            ///< set aside and kept for a person; older ones go
    std::size_t silent_cut = 64U * 1024;  ///< a longer torn tail leaves a copy of the file
  };

  JournalFiles(std::unique_ptr<JournalDisk> disk, std::string sandbox_id, std::string generation)
      : JournalFiles{std::move(disk), std::move(sandbox_id), std::move(generation), Limits{}} {}
  JournalFiles(std::unique_ptr<JournalDisk> disk, std::string sandbox_id, std::string generation, Limits limits)
      : disk_{std::move(disk)}, sandbox_id_{std::move(sandbox_id)}, generation_{std::move(generation)}, limits_{limits} {}

  /// The statuses that are appended and not done, in order: the first and last sequence, and how many.
  struct Waiting {
    std::uint64_t first = 0, last = 0;
    std::uint64_t count = 0;
  };

  /// Opens and replays; once it succeeded, without effect.
  absl::Status open();
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] Waiting waiting() const;
  /// What waited when it was opened. Every answer of the writer repeats it: the outbox that was to hear it may have died meanwhile.
  [[nodiscard]] Waiting replayed() const { return replayed_; }

  /// Appends in this order and syncs. The sequence of the first; those of the others follow. After an error none of them counts.
  absl::StatusOr<std::uint64_t> append(const std::vector<PolicyStatus>& statuses);
  /// Best effort: where it is lost, the next process repeats the report.
  absl::Status done(std::uint64_t seq, bool delivered);
  /// The next waiting statuses from `from` on; fewer than asked for where damage took some. Empty: none is left.
  absl::StatusOr<std::vector<std::pair<std::uint64_t, PolicyStatus>>> read(std::uint64_t from);

  [[nodiscard]] std::uint64_t lost() const { return lost_; }  ///< statuses that damage took, as far as they were known
  [[nodiscard]] std::size_t files() const { return files_.size(); }

 private:
  struct File {
    std::string name;
    std::size_t bytes = 0;
    std::uint64_t last = 0;  // newest sequence in it; below its first: none yet
  };

  absl::Status replay(const std::string& name, std::uint64_t first, bool newest);
  absl::Status set_aside(const std::string& name, std::size_t bad_bytes);
  void keep_bad_copy(const std::string& name, std::size_t bad_bytes);
  void forget_old_bad();
  absl::Status rotate();
  void remove_finished();
  bool has_waiting(std::uint64_t first, std::uint64_t last) const;

  const std::unique_ptr<JournalDisk> disk_;
  const std::string sandbox_id_;
  const std::string generation_;
  const Limits limits_;
  bool open_ = false;
  std::map<std::uint64_t, File> files_;  // by the sequence in the name
  std::string current_;                  // the file that may be appended to; empty: the next append makes one
  std::set<std::uint64_t> waiting_;
  Waiting replayed_;
  std::uint64_t next_seq_ = 1;
  std::uint64_t lost_ = 0;
};

}  // namespace openshell::supervisor
