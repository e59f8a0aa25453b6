#pragma once

#include <caf/stateful_actor.hpp>

#include <functional>
#include <memory>
#include <string>

#include "actors/introspection/reporter.hpp"
#include "actors/supervisor/ports.hpp"
#include "actors/supervisor/session_pace.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// Who is told when a session begins (its id) and ends (empty text). Set by the root before `start`.
struct SessionObservers {
  std::function<void(const std::string& session_id)> changed;
  std::function<void(const std::string& update_id)> nudged;
};

struct SessionOptions {
  std::shared_ptr<SessionTransport> transport;
  std::shared_ptr<RelayHost> relays;
  GatewayClient gateway;  // renews the tokens after UNAUTHENTICATED
  SessionObservers observers;
  SessionPace::Limits limits;
  std::shared_ptr<std::uint64_t> connections = std::make_shared<std::uint64_t>(0);  ///< last number used; a successor goes on from it
  std::function<double()> random = [] { return 0.5; };
};

struct SessionState {
  std::shared_ptr<SessionTransport> transport;
  SessionPace pace;
  Reporter reporter;
  std::string session_id;        // empty: none
  std::uint64_t connection = 0;  // number of the stream; events of older ones are ignored
  std::shared_ptr<std::uint64_t> connections;
  std::uint64_t timer = 0;
  bool running = false;
  std::uint64_t relays = 0;
  inline static const char* name = "session";
};

Session::behavior_type session(Session::stateful_pointer<SessionState> self, SessionOptions options, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::supervisor::SessionOptions)
