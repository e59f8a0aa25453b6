// The background forwards of this user: one small file each, and the proof that a process is still the one that was started.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace openshell::cli {

/// `[bind:]port`; the same port on both sides.
struct ForwardSpec {
  std::string bind = "127.0.0.1";
  std::uint16_t port = 0;
};
/// INVALID_ARGUMENT `invalid forward spec '<s>': expected [bind_address:]port`, `port must be between 1 and 65535`. `least` is 0 where the
/// system may choose the port.
absl::StatusOr<ForwardSpec> parse_forward_spec(const std::string& text, std::uint16_t least = 1);

struct ForwardRecord {
  std::string gateway, workspace, sandbox;
  std::string sandbox_id;  ///< empty: written by an older version; such a record is only deleted
  std::string bind;
  std::uint16_t port = 0;
  pid_t pid = 0;
};

/// Whether a command line (words as in /proc/PID/cmdline) is that of the ssh which this record stands for. Nothing is signalled without it:
/// process ids are used again.
bool is_forward(const std::vector<std::string>& words, const ForwardRecord& record);

class ForwardRecords {
 public:
  explicit ForwardRecords(std::filesystem::path folder) : folder_{std::move(folder)} {}
  /// Below the user's state directory. FAILED_PRECONDITION without HOME and XDG_STATE_HOME.
  static absl::StatusOr<ForwardRecords> from_environment();

  [[nodiscard]] absl::Status save(const ForwardRecord& record) const;
  void erase(const ForwardRecord& record) const;
  /// By workspace, sandbox and port. Files that are no record are passed over.
  [[nodiscard]] std::vector<ForwardRecord> list(const std::string& gateway) const;
  /// Its process runs, and is ours.
  [[nodiscard]] static bool alive(const ForwardRecord& record);
  /// SIGTERM where it is alive, and waits for its end, so that the port is free; deletes the record in any case. True: signalled.
  bool stop(const ForwardRecord& record) const;
  /// Stops those of one sandbox; the ports that were stopped.
  std::vector<std::uint16_t> stop_all(const std::string& gateway, const std::string& workspace, const std::string& sandbox) const;

 private:
  [[nodiscard]] std::filesystem::path file_of(const ForwardRecord& record) const;
  std::filesystem::path folder_;
};

}  // namespace openshell::cli
