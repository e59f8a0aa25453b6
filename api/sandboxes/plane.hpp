// What the handlers of this folder share. Not for others.
#pragma once

#include <caf/actor_system.hpp>

#include <functional>
#include <memory>
#include <string>

#include "actors/gateway/gateway_tree.hpp"
#include "api/call_context.hpp"
#include "api/control_plane.hpp"
#include "api/errors.hpp"
#include "api/sandboxes/ask.hpp"
#include "api/service.hpp"
#include "api/workspace_scope.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "storage/store.hpp"

namespace openshell::api {

namespace pb = openshell::v1;
using gateway::Ask;
using gateway::Caller;
using gateway::SandboxHandle;

class ForwardSlots;  // api/sandboxes/ssh_sessions.hpp

/// Lives until the server has ended.
struct Plane {
  caf::actor_system& system;
  storage::Store* store;
  gateway::TreeActors actors;
  bool config_push = true;
  SshSettings ssh;
  std::shared_ptr<ForwardSlots> forwards;  ///< connections of ForwardTcp
};
using PlanePtr = std::shared_ptr<const Plane>;

Caller caller_of(const CallContext& ctx);

/// Authorises and finds the workspace, then runs `then` with its name on a thread of the store. Errors go to `failed`.
void with_workspace(const PlanePtr& plane, const Context& ctx, const openshell::datamodel::v1::WorkspaceSelector& scope, WorkspaceRole role,
                    WorkspaceState state, std::function<void(std::string)> then, std::function<void(absl::Status)> failed);
/// The sandbox of a user's call, by name.
void with_sandbox(const PlanePtr& plane, const Context& ctx, const openshell::datamodel::v1::WorkspaceSelector& scope,
                  const std::string& name, const std::string& field, WorkspaceRole role,
                  std::function<void(std::shared_ptr<SandboxHandle>)> then, std::function<void(absl::Status)> failed);
/// The sandbox of a supervisor's call, by the id that it names, which must be its own.
void with_own_sandbox(const PlanePtr& plane, const Context& ctx, const std::string& sandbox_id,
                      std::function<void(std::shared_ptr<SandboxHandle>)> then, std::function<void(absl::Status)> failed);

/// Passes a request to an actor and its answer to the caller.
template <class Request, class Response, class Target>
void pass_on(const PlanePtr& plane, const Context& ctx, const Target& target, std::shared_ptr<const Request> request,
             Reply<Response> reply) {
  ask<gateway::Reply<Response>>(
      plane->system, target,
      [reply](gateway::Reply<Response> answer) { answer.value.ok() ? reply.ok(**answer.value) : reply.fail(answer.value.status()); },
      Ask<Request>{std::move(request), caller_of(*ctx)});
}

/// Format of `request_id`: empty, or a non-nil hyphenated UUID in any letter case.
absl::Status check_request_id(const std::string& request_id);

void add_unary_handlers(Router& router, const PlanePtr& plane);
void add_config_handlers(Router& router, const PlanePtr& plane);
void add_draft_handlers(Router& router, const PlanePtr& plane);
void add_watch_handlers(Router& router, const PlanePtr& plane);
void add_session_handlers(Router& router, const PlanePtr& plane);
void add_exec_handlers(Router& router, const PlanePtr& plane);
void add_ssh_handlers(Router& router, const PlanePtr& plane);
void add_forward_handlers(Router& router, const PlanePtr& plane);

/// Deletes expired and revoked SSH sessions now and every hour, until the timer ends.
void sweep_ssh_sessions(const PlanePtr& plane);

}  // namespace openshell::api
