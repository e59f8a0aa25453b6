// What the operator interface asks of the gateway's actors. Implemented by api/sandboxes; nothing of it changes anything.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "messages/operator.hpp"

namespace openshell::gateway {
class RelayEnd;
}  // namespace openshell::gateway
namespace openshell::v1 {
class GetDraftPolicyResponse;
class ListSandboxPoliciesResponse;
}  // namespace openshell::v1

namespace openshell::api {

/// Answers come once, on any thread; UNAVAILABLE while the gateway ends. Thread-safe.
class ActorSource {
 public:
  template <class T>
  using Then = std::function<void(absl::StatusOr<T>)>;

  virtual ~ActorSource() = default;
  /// What changed among the gateway's own actors; see Directory.
  virtual void changes(std::uint64_t since, Then<ActorChanges> then) = 0;
  /// One of them, asked itself; at most 2 s.
  virtual void inquire(const std::string& actor, Then<ActorSnapshot> then) = 0;
  /// Sessions of supervisors on this node: session by sandbox id.
  virtual void sessions(Then<std::map<std::string, std::string>> then) = 0;
  /// "<workspace>/<name>" of a sandbox.
  virtual void name_of(const std::string& sandbox_id, Then<std::string> then) = 0;
  /// A relay to the actors of its supervisor.
  virtual void open(const std::string& sandbox_id, Then<std::shared_ptr<gateway::RelayEnd>> then) = 0;

  /// Lines of denied requests; all recent ones for an empty id.
  virtual void denials(const std::string& denial_id, Then<gateway::DenialLines> then) = 0;
  virtual void proposals(const std::string& sandbox_id, Then<std::shared_ptr<const v1::GetDraftPolicyResponse>> then) = 0;
  virtual void revisions(const std::string& sandbox_id, Then<std::shared_ptr<const v1::ListSandboxPoliciesResponse>> then) = 0;
};

}  // namespace openshell::api
