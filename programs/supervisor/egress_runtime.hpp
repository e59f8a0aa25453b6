#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/endpoint_observer/endpoint_box.hpp"
#include "actors/supervisor/ports.hpp"
#include "egress/credentials.hpp"
#include "egress/engine.hpp"
#include "isolation/boundary/control.hpp"
#include "policy/endpoint_inventory.hpp"

namespace openshell::supervisor {

/// Turns candidates into generations of the egress engine: policy admitted and compiled, credentials prepared, settings applied. One a
/// process. `prepare`, `publish` and `quarantine` are called by one thread at a time.
class EgressRuntime final : public RuntimeHost {
 public:
  /// `box`: told which endpoints of which generation have a status.
  EgressRuntime(egress::Engine& engine, std::optional<egress::IpAddress> host_gateway_ip, std::shared_ptr<EndpointBox> box)
      : engine_{engine}, host_gateway_ip_{host_gateway_ip}, box_{std::move(box)} {}

  enum class Asking { once, until_lost };  ///< until_lost: over and over, until there is an answer or the sandbox is lost
  /// Asks the sandbox where symbolic links among the programs of the policy lead; any thread may answer, once.
  using LinkResolver = std::function<void(Asking how, std::vector<std::string> paths,
                                          absl::AnyInvocable<void(absl::StatusOr<boundary::LinksResolved>)> answered)>;
  /// Before the first publication. Without it links are not followed.
  void resolve_links_with(LinkResolver resolver) { resolver_ = std::move(resolver); }

  absl::StatusOr<std::unique_ptr<PreparedRuntime>> prepare(const Candidate& candidate) override;
  /// `done` runs when the generation is in force and its links are known (at most 5 s later): where they changed, a further generation with
  /// the same policy was published for them. A question that was lost on its way is asked again, and `done` does not wait for that.
  void publish(std::unique_ptr<PreparedRuntime> prepared, std::function<void()> done) override;
  void quarantine(const std::string& reason) override;
  /// Denies everything for the rest of the process: nothing is prepared or published any more. Any thread.
  void close(const std::string& reason);
  std::vector<std::string> observed_endpoints() const override;
  std::uint64_t inventory() const override;
  std::map<std::string, std::string> child_environment() const override;

  /// The environment of processes that a prepared candidate would lead to.
  static std::map<std::string, std::string> child_environment_of(const PreparedRuntime& prepared);

 private:
  struct Prepared;
  using Links = std::map<std::string, std::string>;
  void ask_for_links(std::function<void()> done);
  void ask_again();
  std::vector<std::string> paths_to_ask() const;  // with mutex_ held
  void links_known(std::uint64_t asked, absl::StatusOr<boundary::LinksResolved> answer);
  void install_endpoints();  // with mutex_ held

  egress::Engine& engine_;
  const std::optional<egress::IpAddress> host_gateway_ip_;
  const std::shared_ptr<EndpointBox> box_;
  std::vector<policy::InventoryEndpoint> endpoints_;  // of the policy that was published last
  egress::CredentialLedger ledger_;
  mutable std::mutex mutex_;
  std::shared_ptr<const policy::Matcher> matcher_;        // in force, or before a quarantine
  egress::CredentialLedger::Candidate credentials_;       // in force
  std::shared_ptr<const egress::Generation> generation_;  // in force
  Links links_;                                           // as the sandbox said last
  Links matcher_links_;                                   // that matcher_ was compiled with
  std::uint64_t asked_ = 0, answered_ = 0;                // questions for links, and the newest that was answered
  bool asking_again_ = false;
  std::set<std::string> warned_;  // links whose refusal was said
  LinkResolver resolver_;
  std::uint64_t number_ = 0;
  std::uint64_t inventory_ = 0;  // counts publications; links that become known later are none
  bool quarantined_ = false;
  bool closed_ = false;
};

}  // namespace openshell::supervisor
