// The directories of one sandbox. S, `<state dir>/sandboxes/<id>`, lives from create to delete; R, `<runtime dir>/<id>`, for one
// generation. One directory a party (driver, workload, supervisor, channel), each with the owner and mode that party needs.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "drivers/process/directories.hpp"
#include "process_driver.pb.h"

namespace openshell::drivers::process {

namespace records = internal::process_driver::v1;

/// Who owns what, kernel numbers.
struct Parties {
  Owner driver, workload, supervisor;
};

/// Paths of one sandbox; no file is touched.
struct SandboxPaths {
  std::string state;    ///< S
  std::string runtime;  ///< R
  [[nodiscard]] std::string control_socket() const { return runtime + "/channel/control.sock"; }
};

inline constexpr std::size_t kMaxSocketPath = 107;          ///< sun_path without its end.
inline constexpr std::size_t kMaxStateFileBytes = 1 << 20;  ///< Of any file that the driver reads back.

/// The two base directories, opened once and used through their descriptors.
class SandboxFiles {
 public:
  /// `others_pass`: as root, other parties go through the bases (0711); else they are private (0700).
  static absl::StatusOr<SandboxFiles> open(const std::string& state_dir, const std::string& runtime_dir, bool others_pass);

  [[nodiscard]] SandboxPaths paths(const std::string& id) const { return {state_dir_ + "/sandboxes/" + id, runtime_dir_ + "/" + id}; }
  [[nodiscard]] const std::string& state_dir() const { return state_dir_; }

  /// S with all its directories; one that is there is adopted if its owners fit.
  [[nodiscard]] absl::Status make_state(const std::string& id, const Parties& parties) const;
  /// A new R: directories and the files that the mount plan binds. Removes an old one. `bundle` is the first content of system-bundle.crt.
  [[nodiscard]] absl::Status make_runtime(const std::string& id, const Parties& parties, const std::string& bundle) const;
  /// Empties S/workload/tmp and forgets what an earlier generation left in S/driver (exit.json, stopped, generation) and S/supervisor
  /// (confirmed).
  [[nodiscard]] absl::Status reset_for_generation(const std::string& id, const Parties& parties) const;

  /// A file in S/driver.
  [[nodiscard]] absl::Status write_driver_file(const std::string& id, const std::string& name, std::string_view content) const;
  [[nodiscard]] absl::StatusOr<std::string> read_driver_file(const std::string& id, const std::string& name) const;
  [[nodiscard]] absl::Status remove_driver_file(const std::string& id, const std::string& name) const;
  /// A file in R/<party>.
  [[nodiscard]] absl::Status write_runtime_file(const std::string& id, const std::string& party, const std::string& name,
                                                std::string_view content, std::uint32_t mode, Owner owner) const;
  /// S/supervisor/state/confirmed: the generation that the supervisor confirmed; empty: none.
  [[nodiscard]] std::string confirmed_generation(const std::string& id) const;

  [[nodiscard]] absl::Status remove_runtime(const std::string& id) const;
  /// true: there was something.
  [[nodiscard]] absl::StatusOr<bool> remove_state(const std::string& id) const;

  /// Ids that have an S, an R.
  [[nodiscard]] std::vector<std::string> known() const;
  [[nodiscard]] std::vector<std::string> running_directories() const;

 private:
  std::string state_dir_, runtime_dir_;
  Descriptor sandboxes_, runtime_;
};

/// `[A-Za-z0-9][A-Za-z0-9-]*`, at most 64 bytes: fit for a directory name, a label and a cgroup.
bool is_valid_id(const std::string& id);

}  // namespace openshell::drivers::process
