#include "actors/supervisor/acknowledgements.hpp"

#include <utility>

namespace openshell::supervisor {

void Acknowledgements::seed(const ConfigSnapshot& running) {
  if (acknowledges(running)) last_loaded_ = running.version;
}

std::optional<PolicyStatus> Acknowledgements::loaded(const ConfigSnapshot& snapshot, bool reloaded) {
  const bool recovered = std::exchange(failed_since_, false);
  last_failure_.clear();
  if (!acknowledges(snapshot)) return std::nullopt;
  if (snapshot.version == last_loaded_ && !recovered) return std::nullopt;
  if (!reloaded && snapshot.version <= last_loaded_) return std::nullopt;
  last_loaded_ = snapshot.version;
  return PolicyStatus{snapshot.version, PolicyOutcome::loaded, {}, reloaded ? Acknowledgement::reloaded : Acknowledgement::unchanged};
}

std::optional<PolicyStatus> Acknowledgements::failed(const ConfigSnapshot& snapshot, const std::string& error) {
  failed_since_ = true;
  auto identity = std::to_string(snapshot.config_revision) + '/' + snapshot.policy_hash + '/' + error;
  if (identity == last_failure_) return std::nullopt;
  last_failure_ = std::move(identity);
  if (!acknowledges(snapshot)) return std::nullopt;
  return PolicyStatus{snapshot.version, PolicyOutcome::failed, error.substr(0, kMaxErrorBytes), Acknowledgement::reloaded};
}

}  // namespace openshell::supervisor
