#pragma once

#include <caf/stateful_actor.hpp>

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "actors/introspection/reporter.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// The newest observation of each endpoint since the last report, and the report that is under way. Pure.
class EndpointWindow {
 public:
  static constexpr std::size_t kMaxEndpoints = 1'024;  ///< further ones are dropped and counted

  void observe(EndpointObservation observation);
  /// Another session, policy or environment: what was seen under the one before says nothing any more.
  void rebase(std::string session_id, std::string policy_hash, std::uint64_t provider_env_revision);
  /// The next report, with a rising sequence; nothing without a session or without news.
  [[nodiscard]] std::optional<EndpointReport> take();
  /// The report may be sent again if nothing moved on; what is newer stays.
  void restore(const EndpointReport& report);

  [[nodiscard]] const std::string& session_id() const { return session_id_; }
  [[nodiscard]] const std::string& policy_hash() const { return policy_hash_; }
  [[nodiscard]] std::uint64_t provider_env_revision() const { return provider_env_revision_; }
  [[nodiscard]] std::size_t size() const { return endpoints_.size(); }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  std::map<std::string, EndpointObservation> endpoints_;
  std::string session_id_, policy_hash_;
  std::uint64_t provider_env_revision_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t dropped_ = 0;
};

struct EndpointObserverState {
  EndpointWindow window;
  Reporter reporter;
  unsigned failures = 0;
  bool busy = false;  // a report is in flight, or the pause after one runs
  inline static const char* name = "endpoint_observer";
};

EndpointObserver::behavior_type endpoint_observer(EndpointObserver::stateful_pointer<EndpointObserverState> self, GatewayClient gateway,
                                                  Reporter reporter);

}  // namespace openshell::supervisor
