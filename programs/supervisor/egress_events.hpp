// Between the data plane and who is told of what it does.
#pragma once

#include <memory>
#include <utility>

#include "actors/denial_aggregator/denial_queue.hpp"
#include "actors/endpoint_observer/endpoint_box.hpp"
#include "egress/events.hpp"
#include "programs/supervisor/denial_lines.hpp"
#include "programs/supervisor/event_log.hpp"

namespace openshell::supervisor {

/// Log lines go into the event log, denials and results of endpoints into the queues of their actors. Any thread; it waits only where the
/// event log is full.
class EgressEvents final : public egress::EventSink {
 public:
  EgressEvents(std::shared_ptr<EventLog> log, std::shared_ptr<DenialQueue> denials, std::shared_ptr<EndpointBox> endpoints,
               std::shared_ptr<DenialLines> lines)
      : log_{std::move(log)}, denials_{std::move(denials)}, endpoints_{std::move(endpoints)}, lines_{std::move(lines)} {}

  void emit(egress::Event event) noexcept override;

 private:
  const std::shared_ptr<EventLog> log_;
  const std::shared_ptr<DenialQueue> denials_;
  const std::shared_ptr<EndpointBox> endpoints_;
  const std::shared_ptr<DenialLines> lines_;
};

}  // namespace openshell::supervisor
