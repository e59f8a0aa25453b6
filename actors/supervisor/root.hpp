#pragma once

#include <caf/stateful_actor.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "actors/denial_aggregator/denial_queue.hpp"
#include "actors/endpoint_observer/endpoint_box.hpp"
#include "actors/introspection/reporter.hpp"
#include "actors/outbox/journal_writer.hpp"
#include "actors/outbox/status_journal.hpp"
#include "actors/supervision/child_set.hpp"
#include "actors/supervisor/boundary_actor.hpp"
#include "actors/supervisor/log_push.hpp"
#include "actors/supervisor/policy_poller.hpp"
#include "actors/supervisor/runtime_publisher.hpp"
#include "actors/supervisor/session.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// What the root makes its children of. Queues and transports stand here because they outlive the actors that use them.
struct RootOptions {
  Directory directory;    ///< may be null: nobody is reported to
  GatewayClient gateway;  ///< lives already; its death is judged here
  LogPush log_push;       ///< the first one lives already, since the start-up logs too
  LogPushOptions logs;
  std::shared_ptr<DenialQueue> denials;
  std::shared_ptr<EndpointBox> endpoints = std::make_shared<EndpointBox>();
  std::chrono::seconds denial_interval{10};
  std::shared_ptr<StatusJournal> journal = std::make_shared<StatusJournal>();
  std::shared_ptr<JournalFiles> journal_files;  ///< null: statuses stay in memory
  BoundaryOptions boundary;
  RuntimePublisherOptions publisher;
  bool publisher_has_own_thread = true;  ///< building a policy takes milliseconds; the journal's writer waits for the disk
  PolicyPollerOptions poller;
  SessionOptions session;  ///< without gateway and observers: the root sets them

  /// Told on the root when a session began (its id) or ended (empty).
  std::function<void(const std::string& session_id)> session_changed = [](const std::string&) {};
  /// A child died that may not be missing. Runs on the root; traffic has to be denied when it returns and the action is `fail_closed`.
  std::function<void(const std::string& name, OnDeath action)> escalate;
  /// A child was started or started again.
  std::function<void(const std::string& name, const caf::actor& child)> started = [](const std::string&, const caf::actor&) {};
};

struct RootState {
  ChildSet children;
  Reporter reporter;
  LogPush log_push;
  JournalWriter writer;
  StatusOutbox outbox;
  EndpointObserver endpoints;
  Boundary boundary;
  RuntimePublisher publisher;
  PolicyPoller poller;
  Session session;
  DenialAggregator aggregator;
  // What a restarted child has to be told.
  std::string session_id;
  Installed installed;
  bool closing = false;
  inline static const char* name = "root";
};

/// The restart rules that stand in messages/supervisor.hpp, executed. `restart`: log_push, journal_writer, status_outbox,
/// endpoint_observer, denial_aggregator, session. `fail_closed`: gateway_client, policy_poller, runtime_publisher, boundary, since a
/// supervisor without them would go on allowing what may be forbidden by now. `escalate`: directory, and what dies more than five times
/// within a minute.
Root::behavior_type root(Root::stateful_pointer<RootState> self, std::shared_ptr<const RootOptions> options);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<const openshell::supervisor::RootOptions>)
