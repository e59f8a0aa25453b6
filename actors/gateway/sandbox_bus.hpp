#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "actors/gateway/denial_index.hpp"
#include "actors/gateway/event_log.hpp"
#include "actors/gateway/watch_sink.hpp"
#include "actors/introspection/reporter.hpp"
#include "messages/operator.hpp"

namespace openshell::gateway {

struct SandboxBusState {
  struct Watcher {
    std::shared_ptr<WatchSink> sink;
    std::shared_ptr<const openshell::v1::WatchSandboxRequest> request;
    LineFilter filter;
    std::uint64_t lost = 0;  ///< events since the last warning
  };
  struct Channel {
    EventLog log;
    std::list<Watcher> watchers;
    std::shared_ptr<const openshell::v1::Sandbox> shown;
  };

  std::map<std::string, Channel> channels;
  Millis epoch = 0;
  DenialIndex denials;
  Reporter reporter;

  ActorSnapshot snapshot() const;
  inline static const char* name = "sandbox_bus";
};

/// `epoch` tells the cursors of this start from those of earlier ones.
SandboxBusView::behavior_type sandbox_bus(SandboxBusView::stateful_pointer<SandboxBusState> self, Directory directory, Millis epoch);

/// Phases that end a watch which asked for it.
bool is_terminal(const openshell::v1::Sandbox& sandbox);

}  // namespace openshell::gateway
