#pragma once

#include <caf/stateful_actor.hpp>

#include <functional>
#include <memory>

#include "actors/introspection/reporter.hpp"
#include "actors/supervisor/ports.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

struct BoundaryOptions {
  std::shared_ptr<BoundaryPort> port;
  std::shared_ptr<RuntimeHost> host;       ///< knows the placeholders that processes see
  std::function<void(LinkState)> changed;  ///< told of every change of the link, once
};

struct BoundaryState {
  LinkState link = LinkState::connected;
  Reporter reporter;
  std::uint64_t installed_revision = 0;
  std::uint64_t installs = 0;
  inline static const char* name = "boundary";
};

Boundary::behavior_type boundary_actor(Boundary::stateful_pointer<BoundaryState> self, BoundaryOptions options, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::supervisor::BoundaryOptions)
