#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// Which revisions are acknowledged, and how often. Pure. Only sandbox-sourced revisions above 0 are. [ACK-41, ACK-42]
class Acknowledgements {
 public:
  static constexpr std::size_t kMaxErrorBytes = 16'384;  ///< a construction error is cut to this

  /// What runs was acknowledged by the start-up already. [ACK-16]
  void seed(const ConfigSnapshot& running);

  /// The snapshot is in force. Nothing where it was acknowledged before and did not fail since. `reloaded` false: same content under a
  /// newer version. [ACK-19, ACK-24]
  [[nodiscard]] std::optional<PolicyStatus> loaded(const ConfigSnapshot& snapshot, bool reloaded);
  /// The snapshot was rejected; once for each (config revision, hash, error). [ACK-08, ACK-10]
  [[nodiscard]] std::optional<PolicyStatus> failed(const ConfigSnapshot& snapshot, const std::string& error);

 private:
  static bool acknowledges(const ConfigSnapshot& snapshot) {
    return snapshot.source == PolicySource::sandbox && snapshot.version.value > 0;
  }

  Revision last_loaded_;
  bool failed_since_ = false;
  std::string last_failure_;
};

}  // namespace openshell::supervisor
