#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "actors/endpoint_observer/endpoint_box.hpp"
#include "actors/supervisor/ports.hpp"
#include "egress/credentials.hpp"
#include "egress/engine.hpp"
#include "policy/endpoint_inventory.hpp"

namespace openshell::supervisor {

/// Turns candidates into generations of the egress engine: policy admitted and compiled, credentials prepared, settings applied. One a
/// process. `prepare`, `publish` and `quarantine` are called by one thread at a time.
class EgressRuntime final : public RuntimeHost {
 public:
  /// `box`: told which endpoints of which generation have a status.
  EgressRuntime(egress::Engine& engine, std::optional<egress::IpAddress> host_gateway_ip, std::shared_ptr<EndpointBox> box)
      : engine_{engine}, host_gateway_ip_{host_gateway_ip}, box_{std::move(box)} {}

  absl::StatusOr<std::unique_ptr<PreparedRuntime>> prepare(const Candidate& candidate) override;
  void publish(std::unique_ptr<PreparedRuntime> prepared, std::function<void()> done) override;
  void quarantine(const std::string& reason) override;
  /// Denies everything for the rest of the process: nothing is prepared or published any more. Any thread.
  void close(const std::string& reason);
  std::vector<std::string> observed_endpoints() const override;
  std::map<std::string, std::string> child_environment() const override;

  /// The environment of processes that a prepared candidate would lead to.
  static std::map<std::string, std::string> child_environment_of(const PreparedRuntime& prepared);

 private:
  struct Prepared;

  egress::Engine& engine_;
  const std::optional<egress::IpAddress> host_gateway_ip_;
  const std::shared_ptr<EndpointBox> box_;
  std::vector<policy::InventoryEndpoint> endpoints_;  // of the policy that was published last
  egress::CredentialLedger ledger_;
  mutable std::mutex mutex_;
  std::shared_ptr<const policy::Matcher> matcher_;   // in force, or before a quarantine
  egress::CredentialLedger::Candidate credentials_;  // in force
  std::uint64_t number_ = 0;
  bool closed_ = false;
};

}  // namespace openshell::supervisor
