#pragma once

#include <caf/stateful_actor.hpp>

#include <memory>

#include "actors/introspection/reporter.hpp"
#include "actors/outbox/status_journal.hpp"
#include "actors/supervisor/acknowledgements.hpp"
#include "actors/supervisor/ports.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

struct RuntimePublisherOptions {
  std::shared_ptr<RuntimeHost> host;
  std::string instance_id;
  ConfigSnapshot running;           ///< what the start-up published
  ProviderEnvironment environment;  ///< and the environment with it
  bool acknowledge_running = true;  ///< the initial acknowledgement is enqueued first of all [ACK-18]
};

struct RuntimePublisherState {
  std::shared_ptr<RuntimeHost> host;
  Acknowledgements acknowledgements;
  Reporter reporter;
  ConfigSnapshot running;  // in force, or rejected last: what the admission and readiness reports are about
  ProviderEnvironment environment;
  std::string session_id;
  std::uint64_t sequence = 0;  // of readiness reports in this session
  std::uint64_t publications = 0;
  std::uint64_t readiness_timer = 0;  // only the newest counts
  unsigned installing = 0;            // environments on their way into the sandbox
  bool quarantined = false;
  bool environment_installed = true;
  inline static const char* name = "runtime_publisher";
};

RuntimePublisher::behavior_type runtime_publisher(RuntimePublisher::stateful_pointer<RuntimePublisherState> self, GatewayClient gateway,
                                                  std::shared_ptr<StatusJournal> journal, Boundary boundary, InstalledSink endpoints,
                                                  RuntimePublisherOptions options, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::supervisor::RuntimePublisherOptions)
