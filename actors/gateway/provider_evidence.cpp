#include "actors/gateway/provider_evidence.hpp"

#include <absl/strings/ascii.h>

#include <algorithm>

#include "actors/gateway/admission.hpp"

namespace openshell::gateway {
namespace {

using State = pb::ProviderReadinessState;
using Reason = pb::ProviderReadinessReason;

absl::Status check_shape(const pb::ProviderReadinessObservation& seen) {
  if (seen.sequence() == 0) return absl::InvalidArgumentError("report sequence is required");
  if (!pb::ProviderReadinessReason_IsValid(seen.reason())) return absl::InvalidArgumentError("provider readiness reason is unknown");
  if (!seen.attachment_epoch().empty() && !is_uuid(seen.attachment_epoch()))
    return absl::InvalidArgumentError("invalid readiness instance identity");
  const bool hex = seen.policy_hash().size() <= 128 && std::all_of(seen.policy_hash().begin(), seen.policy_hash().end(),
                                                                   [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (!hex) return absl::InvalidArgumentError("invalid policy fingerprint");
  if (seen.launch_environment_installed() && seen.process_instance_id().empty())
    return absl::InvalidArgumentError("process instance identity is required");
  return absl::OkStatus();
}

State state_for(Reason reason) {
  switch (reason) {
    case pb::PROVIDER_READINESS_REASON_CREDENTIALS_WITHHELD:
    case pb::PROVIDER_READINESS_REASON_CREDENTIAL_EXPIRED:
      return pb::PROVIDER_READINESS_STATE_WITHHELD;
    case pb::PROVIDER_READINESS_REASON_CREDENTIAL_INSTALL_FAILED:
    case pb::PROVIDER_READINESS_REASON_POLICY_ACTIVATION_FAILED:
    case pb::PROVIDER_READINESS_REASON_PROCESS_INSTALL_FAILED:
    case pb::PROVIDER_READINESS_REASON_UNSUPPORTED_SUPERVISOR:
    case pb::PROVIDER_READINESS_REASON_LOCAL_POLICY:
      return pb::PROVIDER_READINESS_STATE_FAILED;
    default:
      return pb::PROVIDER_READINESS_STATE_PENDING;
  }
}

}  // namespace

absl::Status ProviderEvidence::report(const pb::ReportProviderReadinessRequest& request, const SessionInfo* session, bool ready,
                                      Millis now) {
  if (!request.has_observation()) return absl::InvalidArgumentError("provider readiness observation is required");
  const auto& seen = request.observation();
  if (auto status = check_shape(seen); !status.ok()) return status;
  if (!ready) return absl::FailedPreconditionError("sandbox supervisor is not ready");
  if (session == nullptr || session->session_id != seen.session_id())
    return absl::FailedPreconditionError("the session of this report is not the current one");
  if (!session->provider_readiness) return absl::FailedPreconditionError("supervisor did not advertise provider readiness support");
  if (observed_) {
    if (seen.sequence() < observed_->sequence()) return absl::FailedPreconditionError("provider readiness observation is out of order");
    if (seen.sequence() == observed_->sequence()) {
      return seen.SerializeAsString() == observed_->SerializeAsString()
                 ? absl::OkStatus()
                 : absl::InvalidArgumentError("a provider report sequence must reuse the identical observation");
    }
    if (!observed_->process_instance_id().empty() && seen.process_instance_id() != observed_->process_instance_id()) {
      return absl::FailedPreconditionError("process instance changed");
    }
  }
  observed_ = seen;
  observed_at_ = now;
  return absl::OkStatus();
}

pb::ProviderReadinessStatus ProviderEvidence::evaluate(const records::ReceiptRecord& receipt, const Wanted& wanted,
                                                       const SessionInfo* session, Millis now) const {
  pb::ProviderReadinessStatus out;
  *out.mutable_receipt() = receipt.receipt();
  if (receipt.has_operation()) *out.mutable_operation() = receipt.operation();
  set_millis(out.mutable_evaluated_time(), now);
  if (observed_) {
    *out.mutable_observed() = *observed_;
    set_millis(out.mutable_observed_time(), observed_at_);
  }
  if (session != nullptr) out.set_network_instance_id(session->instance_id);
  const auto say = [&](State state, Reason reason) {
    out.set_state(state);
    out.set_reason(reason);
    return out;
  };
  const auto& desired = receipt.receipt().desired();
  const bool detach = desired.provider_id().empty();
  const bool snapshot = !desired.policy_hash().empty() || desired.provider_env_revision() != 0;
  if (desired.attachment_epoch() != wanted.attachment_epoch || detach == wanted.attached ||
      (!detach && (desired.provider_id() != wanted.provider_id || desired.provider_resource_version() != wanted.provider_version)) ||
      (snapshot && (desired.policy_hash() != wanted.policy_hash || desired.provider_env_revision() != wanted.provider_env_revision ||
                    desired.config_revision() != wanted.config_revision))) {
    return say(pb::PROVIDER_READINESS_STATE_SUPERSEDED, pb::PROVIDER_READINESS_REASON_DESIRED_STATE_CHANGED);
  }
  if (session == nullptr) return say(pb::PROVIDER_READINESS_STATE_PERSISTED, pb::PROVIDER_READINESS_REASON_WAITING_FOR_SUPERVISOR);
  if (!session->provider_readiness) return say(pb::PROVIDER_READINESS_STATE_FAILED, pb::PROVIDER_READINESS_REASON_UNSUPPORTED_SUPERVISOR);
  if (!observed_) return say(pb::PROVIDER_READINESS_STATE_PERSISTED, pb::PROVIDER_READINESS_REASON_WAITING_FOR_SUPERVISOR);
  if (now - observed_at_ > kObservationLifetime)
    return say(pb::PROVIDER_READINESS_STATE_PENDING, pb::PROVIDER_READINESS_REASON_SUPERVISOR_LEASE_EXPIRED);
  if (observed_->attachment_epoch() != wanted.attachment_epoch || observed_->provider_env_revision() != wanted.provider_env_revision ||
      observed_->config_revision() != wanted.config_revision || observed_->policy_hash() != wanted.policy_hash) {
    return say(pb::PROVIDER_READINESS_STATE_PENDING, pb::PROVIDER_READINESS_REASON_SNAPSHOT_MISMATCH);
  }
  if (observed_->reason() != pb::PROVIDER_READINESS_REASON_UNSPECIFIED) return say(state_for(observed_->reason()), observed_->reason());
  if (!observed_->credentials_installed())
    return say(pb::PROVIDER_READINESS_STATE_PENDING, pb::PROVIDER_READINESS_REASON_WAITING_FOR_CREDENTIALS);
  if (!observed_->policy_active()) return say(pb::PROVIDER_READINESS_STATE_PENDING, pb::PROVIDER_READINESS_REASON_WAITING_FOR_POLICY);
  if (!observed_->launch_environment_installed())
    return say(pb::PROVIDER_READINESS_STATE_PENDING, pb::PROVIDER_READINESS_REASON_WAITING_FOR_PROCESS);
  return say(detach ? pb::PROVIDER_READINESS_STATE_REVOKED : pb::PROVIDER_READINESS_STATE_READY, pb::PROVIDER_READINESS_REASON_UNSPECIFIED);
}

}  // namespace openshell::gateway
