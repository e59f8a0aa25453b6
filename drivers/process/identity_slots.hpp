// Kernel ids of sandboxes: each gets a slot of sixteen from a range, held by a lock file in one fixed place of the host, so that two
// gateways never give the same id away.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "drivers/process/process_driver.hpp"

namespace openshell::drivers::process {

inline constexpr std::uint32_t kIdsPerSlot = 16;
inline constexpr std::uint32_t kSupervisorInSlot = 15;      ///< The supervisor's number in its sandbox's slot.
inline constexpr std::size_t kMaxSupplementaryGroups = 14;  ///< Numbers 1..14 of the slot.

/// A whole number of slots, at least one, ids 65536..2147483647; no account, group or subordinate range of the host (the texts of
/// /etc/passwd, group, subuid, subgid) overlaps it. FAILED_PRECONDITION names both.
absl::Status check_range(IdRange range, const std::string& passwd, const std::string& group, const std::string& subuid,
                         const std::string& subgid);

/// The slots of one host. Safe between processes; an object is used by one thread at a time.
class IdentitySlots {
 public:
  /// `owner` names who holds a slot in its lock file: `<state dir>` and the sandbox id.
  IdentitySlots(std::string directory, IdRange range, std::string state_dir);

  /// The lowest free slot for a sandbox. RESOURCE_EXHAUSTED: `sandbox_uid_range is exhausted`.
  absl::StatusOr<std::uint32_t> take(const std::string& sandbox_id);
  /// Holds a slot that a sandbox of an earlier gateway process had: lock files do not survive a restart of the host. ALREADY_EXISTS:
  /// another one holds it now.
  absl::Status retake(std::uint32_t slot, const std::string& sandbox_id);
  /// Free again; unknown ones and those of others are left alone.
  void release(std::uint32_t slot, const std::string& sandbox_id);
  /// Frees the slots of this state directory whose sandbox is not known any more.
  void release_unknown(const std::function<bool(const std::string& sandbox_id)>& known);

  [[nodiscard]] std::uint32_t base(std::uint32_t slot) const { return range_.first + slot * kIdsPerSlot; }

 private:
  [[nodiscard]] std::string path(std::uint32_t slot) const;
  [[nodiscard]] std::string holder(const std::string& sandbox_id) const { return state_dir_ + "\n" + sandbox_id + "\n"; }
  std::string directory_;
  IdRange range_;
  std::string state_dir_;
};

}  // namespace openshell::drivers::process
