// What the two ends of the channel are started with: three JSON files and the certificates of the session. One identity, one set of claims
// and one fence go into both halves. Tokens reach the supervisor's half only.
#pragma once

#include <absl/status/status.h>

#include <map>
#include <string>
#include <vector>

#include "drivers/driver.hpp"
#include "drivers/process/launch_plan.hpp"
#include "drivers/process/sandbox_files.hpp"
#include "isolation/boundary/launch_material.hpp"
#include "pki/session.hpp"

namespace openshell::drivers::process {

/// What both halves agree on.
struct LaunchFacts {
  boundary::WorkloadIdentity identity;
  boundary::Claims claims;
  boundary::OuterFence fence;
};

/// What needs no facts and some computing: the session's certificates, made where the operator's additional bundle is usable.
absl::StatusOr<pki::SessionCertificates> prepare_certificates(const LaunchAuthentication& launch);

/// Writes descriptor, auth bundle, gateway CA and additional CA bundle to R/supervisor (0400, the
/// supervisor's) and bootstrap, key and certificates to R/sandbox (0400, the workload's).
absl::Status write_launch_material(const ProcessDriverOptions& options, const SandboxFiles& files, const Parties& parties,
                                   const SandboxSpec& spec, const LaunchAuthentication& launch, const LaunchFacts& facts,
                                   const pki::SessionCertificates& certificates, bool require_pid_limit);

/// Program, arguments and the whole environment of the supervisor.
SupervisorPlan supervisor_plan(const ProcessDriverOptions& options, const SandboxFiles& files, const Parties& parties,
                               const SandboxSpec& spec, const LaunchAuthentication& launch, bool change_identity);

/// PEM of an additional CA bundle, as the operator gave it: at most 1 MiB, at least one certificate, no private key.
absl::Status check_additional_bundle(const std::string& pem);

}  // namespace openshell::drivers::process
