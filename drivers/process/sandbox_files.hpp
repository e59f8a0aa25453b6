// The directories of one sandbox. S, `<state dir>/sandboxes/<id>`, lives from create to delete; R, `<runtime dir>/<id>`, for one
// generation. One directory a party (driver, workload, supervisor, channel), each with the owner and mode that party needs.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drivers/process/directories.hpp"
#include "drivers/process/launch_plan.hpp"

namespace openshell::drivers::process {

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

  /// From now on calls that touch the workload's files of this sandbox are carried out by `run` in a namespace with these maps: without
  /// root the driver itself has no right to files of subordinate ids. Thread-safe.
  using Delegate = std::function<absl::Status(const FileCall&, const IdMapping&)>;
  void delegate(const std::string& id, IdMapping mapping, Delegate run) const;

  /// Ids that have an S, an R.
  [[nodiscard]] std::vector<std::string> known() const;
  [[nodiscard]] std::vector<std::string> running_directories() const;

 private:
  struct Delegated {
    IdMapping mapping;
    Delegate run;
  };
  struct Delegates {
    std::mutex mutex;
    std::map<std::string, Delegated> by_id;
  };
  /// nullptr: done here. Otherwise the status of the delegated call.
  [[nodiscard]] std::unique_ptr<absl::Status> delegated(FileCall call) const;

  std::shared_ptr<Delegates> delegates_ = std::make_shared<Delegates>();
  std::string state_dir_, runtime_dir_;
  Descriptor sandboxes_, runtime_;
};

/// `[A-Za-z0-9][A-Za-z0-9-]*`, at most 64 bytes: fit for a directory name, a label and a cgroup.
bool is_valid_id(const std::string& id);

}  // namespace openshell::drivers::process
