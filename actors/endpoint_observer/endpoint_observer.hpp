#pragma once

#include <caf/stateful_actor.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "actors/endpoint_observer/endpoint_box.hpp"
#include "actors/introspection/reporter.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// The inventory with its last results, and the report that is under way. Pure.
class EndpointWindow {
 public:
  static constexpr std::size_t kMaxEndpoints = 1'024;  ///< of an inventory; further ones are left out
  static constexpr int kNoObservedExchange = 1;        ///< ENDPOINT_RESULT_NO_OBSERVED_EXCHANGE

  /// Another session begins with sequence 1, its inventory unseen by the gateway; or a successor goes on behind `last_sequence`.
  void begin_session(std::string session_id, std::uint64_t last_sequence = 0);
  /// What was seen under the configuration before says nothing any more.
  void install(const Installed& installed);
  void observe(const EndpointObservation& observation);

  /// The report that has to be sent: the one under way again, or the next if there is news. Nothing without a session.
  [[nodiscard]] std::optional<EndpointReport> take();
  /// True while `report` is the one under way: nothing moved on since it was taken.
  [[nodiscard]] bool current(const EndpointReport& report) const;
  void delivered() { pending_.reset(); }
  /// The gateway will never take this one; what it said is said anew under the next sequence.
  void renew();

  [[nodiscard]] std::size_t size() const { return results_.size(); }
  [[nodiscard]] std::uint64_t inventory() const { return installed_.inventory; }
  [[nodiscard]] const std::string& session_id() const { return session_id_; }

 private:
  std::string session_id_;
  Installed installed_;
  std::map<std::string, int> results_;  // of the whole inventory
  std::set<std::string> news_;          // with a result since the last report
  bool unseen_ = false;                 // the gateway does not know this inventory
  bool told_ = false;                   // an inventory with endpoints was reported: an empty one is news too
  std::optional<EndpointReport> pending_;
  std::uint64_t sequence_ = 0;
};

struct EndpointObserverState {
  EndpointWindow window;
  Reporter reporter;
  std::shared_ptr<EndpointBox> box;
  unsigned failures = 0;
  bool in_flight = false;
  bool waiting = false;  // a pause or a back-off
  std::uint64_t timer = 0;
  inline static const char* name = "endpoint_observer";
};

EndpointObserver::behavior_type endpoint_observer(EndpointObserver::stateful_pointer<EndpointObserverState> self,
                                                  std::shared_ptr<EndpointBox> box, GatewayClient gateway, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<openshell::supervisor::EndpointBox>)
