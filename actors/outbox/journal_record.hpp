// The bytes of the outbox's journal: what a file begins with, what a record looks like, and how far a file that a crash or a bad disk left
// behind can be trusted. Pure; any thread.
//
//   file    "OSOUTBX1", u64 big-endian sequence of its first status, records
//   record  u32 length of the body, u32 CRC-32C over length, kind and body, u8 kind, body (openshell.internal.outbox.v1)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

inline constexpr std::size_t kJournalHeadBytes = 16;
inline constexpr std::size_t kJournalFrameBytes = 9;         ///< of a record, before its body
inline constexpr std::size_t kMaxJournalBodyBytes = 65'536;  ///< a longer one is damage
inline constexpr std::size_t kMaxJournalErrorBytes = 16'384;
inline constexpr std::uint64_t kMaxJournalSequence = std::uint64_t{1} << 62;  ///< a higher one is damage

/// A status as it stands in the journal.
struct JournalStatus {
  std::uint64_t seq = 0;
  std::string sandbox_id;
  std::string generation;  ///< of the process that published it
  PolicyStatus status;
};

/// The gateway took the status of this sequence, or refused it for good.
struct JournalDone {
  std::uint64_t seq = 0;
  bool delivered = true;
};

[[nodiscard]] std::string journal_head(std::uint64_t first_seq);
[[nodiscard]] std::string journal_record(const JournalStatus& status);
[[nodiscard]] std::string journal_record(const JournalDone& done);

/// What a file says, up to the first byte that cannot be trusted.
struct JournalContent {
  bool has_head = false;
  std::uint64_t first_seq = 0;
  std::vector<JournalStatus> statuses;  ///< sequences rise
  std::vector<JournalDone> done;
  std::size_t good_bytes = 0;  ///< head and whole records; less than the file has: torn or damaged behind it
};

/// Reads untrusted bytes: never fails, stops where length, checksum, body or order of a record is wrong. Records of an unknown kind with a
/// right checksum are passed over.
[[nodiscard]] JournalContent read_journal(std::string_view bytes);

}  // namespace openshell::supervisor
