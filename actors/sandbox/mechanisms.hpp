// The kernel side of the runtime, started in its one order: reaper, launcher (filter and baseline), broker, qualification.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "actors/sandbox/broker_control.hpp"
#include "isolation/boundary/control.hpp"
#include "isolation/boundary/launch_material.hpp"
#include "isolation/broker.hpp"
#include "isolation/launcher.hpp"
#include "isolation/process_tree.hpp"
#include "isolation/qualification.hpp"

namespace openshell::sandbox {

struct Mechanisms {
  isolation::Posture posture;
  std::unique_ptr<isolation::ChildReaper> reaper;
  std::unique_ptr<isolation::Launcher> launcher;
  std::unique_ptr<ActorDecider> decider;
  std::unique_ptr<isolation::Broker> broker;
  std::shared_ptr<isolation::ProcessTree> tree;
  isolation::AuditEvidence audit;
};

/// `posture` was checked and the process hardened. FailedPrecondition names what does not hold.
absl::StatusOr<Mechanisms> start_mechanisms(isolation::Posture posture, std::vector<std::uint16_t> reserved_ports);

/// The evidence in the form of the channel.
[[nodiscard]] boundary::BackendAudit audit_of(const isolation::AuditEvidence& evidence);

/// OK when this process is whom the driver resolved: uid, gid, groups. `extra_groups`: more groups than expected are accepted.
[[nodiscard]] absl::Status check_identity(const isolation::Posture& posture, const boundary::WorkloadIdentity& identity, bool extra_groups);

}  // namespace openshell::sandbox
