#include "actors/gateway/lifecycle.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/time/time.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <array>
#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

constexpr std::array kTransient = {"reconcilererror",   "dependenciesnotready", "supervisornotconnected", "starting",
                                   "containerstarting", "containercreated",     "healthcheckstarting",    "inspectfailed"};

bool is(std::string_view text, std::string_view word) { return absl::EqualsIgnoreCase(to_absl(text), to_absl(word)); }

const ComputeCondition* ready_condition(const ComputeObservation& observed) {
  for (const auto& condition : observed.conditions) {
    if (condition.type == "Ready") return &condition;
  }
  return nullptr;
}

bool has_condition(const ComputeObservation& observed, std::string_view type, bool status,
                   std::initializer_list<std::string_view> reasons) {
  for (const auto& c : observed.conditions) {
    if ((!type.empty() && !is(c.type, type)) || !is(c.status, status ? "true" : "false")) continue;
    if (reasons.size() == 0) return true;
    for (auto reason : reasons) {
      if (is(c.reason, reason)) return true;
    }
  }
  return false;
}

bool accepted(const pb::SandboxStatus& status, const std::string& instance) {
  const auto& admission = status.configuration_admission();
  return admission.state() == pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED && !instance.empty() && admission.instance_id() == instance;
}

bool set_ready(pb::SandboxStatus& status, bool value, const char* reason, const std::string& message, Millis now) {
  return set_condition(status, "Ready", value, reason, message, now);
}

/// The driver's own conditions, kept beside ours; its readiness under a name that cannot be taken for the sandbox's.
void copy_conditions(pb::SandboxStatus& status, const ComputeObservation& observed) {
  for (const auto& from : observed.conditions) {
    if (from.type == "ConfigurationReady") continue;
    const std::string type = from.type == "Ready" ? "ComputeReady" : from.type;
    pb::SandboxCondition* to = nullptr;
    for (auto& own : *status.mutable_conditions()) {
      if (own.type() == type) to = &own;
    }
    if (to == nullptr) to = status.add_conditions();
    to->set_type(type);
    to->set_status(from.status);
    to->set_reason(from.reason);
    to->set_message(from.message);
    absl::Time at;
    if (!from.transition_time.empty() && absl::ParseTime(absl::RFC3339_full, from.transition_time, &at, nullptr)) {
      set_millis(to->mutable_transition_time(), absl::ToUnixMillis(at));
    } else {
      to->clear_transition_time();
    }
  }
}

/// How long a supervisor may take to deliver the last output of a main process: 30 s for an attachment to come, 30 s for it to end.
constexpr Millis kDeliveryLimit = 60'000;

bool gpu_unschedulable(const records::SandboxRecord& record, const ComputeCondition& ready) {
  return record.sandbox().spec().resource_requirements().has_gpu() && is(ready.reason, "Unschedulable");
}

constexpr const char* kGpuHint =
    "The GPU sandbox could not be scheduled on this gateway; another sandbox may hold the GPU. Use the `openshell doctor` commands to "
    "inspect it.";

bool permanent(const std::string& reason) {
  return is(reason, "Unschedulable") || is(reason, "InvalidImage") || is(reason, "ImagePullFailed") || is(reason, "ValidationFailed");
}

Millis backoff(std::uint32_t step) { return std::min(kFirstRetry << std::min(step, 20U), kLongestRetry); }

bool asks_for_another_run(const records::SandboxRecord& record, std::int32_t code) {
  const auto policy = record.sandbox().spec().restart_policy();
  return policy == pb::SANDBOX_RESTART_POLICY_ALWAYS || (policy == pb::SANDBOX_RESTART_POLICY_ON_FAILURE && code != 0);
}

/// When a waiting restart is due: not while somebody may still read the output of the last run. Its supervisor says when nobody does, or
/// its session ends; a supervisor of which nothing is heard has had its time.
Millis restart_time(const records::SandboxRecord& record) {
  const auto& status = record.sandbox().status();
  const bool delivered = record.finalized_instance() == status.main_process_instance_id();
  return to_millis(status.next_restart_time()) + (delivered ? 0 : kDeliveryLimit);
}

void became_ready(records::SandboxRecord& record, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  status.mutable_provisioning()->clear_deadline();
  status.mutable_provisioning()->clear_preparation_deadline();
  if (!record.has_ready_time()) set_millis(record.mutable_ready_time(), now);
  if (!status.has_main_process_started_time()) set_millis(status.mutable_main_process_started_time(), now);
}

}  // namespace

std::string phase_name(pb::SandboxPhase phase) {
  const auto full = pb::SandboxPhase_Name(phase);  // SANDBOX_PHASE_READY
  auto word = absl::AsciiStrToLower(full.substr(full.rfind('_') + 1));
  if (!word.empty()) word[0] = absl::ascii_toupper(word[0]);
  return word;
}

bool set_condition(pb::SandboxStatus& status, const std::string& type, bool value, const std::string& reason, const std::string& message,
                   Millis now) {
  pb::SandboxCondition* found = nullptr;
  for (auto& condition : *status.mutable_conditions()) {
    if (condition.type() == type) found = &condition;
  }
  if (found == nullptr) {
    found = status.add_conditions();
    found->set_type(type);
  }
  const std::string text = value ? "True" : "False";
  if (found->status() == text && found->reason() == reason && found->message() == message) return false;
  found->set_status(text);
  found->set_reason(reason);
  found->set_message(message);
  set_millis(found->mutable_transition_time(), now);
  return true;
}

pb::SandboxPhase derive_phase(const ComputeObservation& observed) {
  if (!observed.has_status) return pb::SANDBOX_PHASE_UNKNOWN;
  if (observed.deleting) return pb::SANDBOX_PHASE_DELETING;
  if (has_condition(observed, "Suspended", true, {})) return pb::SANDBOX_PHASE_STOPPED;
  const auto* ready = ready_condition(observed);
  if (ready == nullptr) return pb::SANDBOX_PHASE_PROVISIONING;
  if (is(ready->status, "true")) return pb::SANDBOX_PHASE_READY;
  if (!is(ready->status, "false")) return pb::SANDBOX_PHASE_PROVISIONING;
  const auto reason = absl::AsciiStrToLower(ready->reason);
  const bool transient = std::find(kTransient.begin(), kTransient.end(), reason) != kTransient.end();
  return transient ? pb::SANDBOX_PHASE_PROVISIONING : pb::SANDBOX_PHASE_ERROR;
}

void begin_attempt(records::SandboxRecord& record, Millis now, const std::string& generation, const std::string& token_id,
                   const std::string& attempt_id) {
  record.set_intent(records::INTENT_RUNNING);
  record.set_runtime_generation(generation);
  record.set_auth_epoch(record.auth_epoch() + 1);
  record.set_gateway_token_id(token_id);
  record.clear_refresh_previous_token_id();
  record.clear_refresh_request_hash();
  record.clear_refresh_rotation_id();
  record.clear_refresh_issued_at();
  record.clear_refresh_replay_until();
  record.clear_ready_time();
  record.clear_recovery_time();
  record.clear_finalized_instance();
  auto& status = *record.mutable_sandbox()->mutable_status();
  status.clear_exit_code();
  status.clear_next_restart_time();
  status.clear_main_process_started_time();
  // The fence of the next registration is the instance of the last one: it can only be replaced by who knows it, and is retired then.
  const auto fence = status.configuration_admission().instance_id();
  status.mutable_configuration_admission()->Clear();
  status.mutable_configuration_admission()->set_instance_id(fence);
  status.mutable_configuration_admission()->set_state(pb::CONFIGURATION_ADMISSION_STATE_PENDING);
  auto& provisioning = *status.mutable_provisioning();
  provisioning.Clear();
  provisioning.set_attempt_id(attempt_id);
  provisioning.set_configuration_change_id(cat("initial:", attempt_id));
  set_millis(provisioning.mutable_configuration_change_time(), now);
  set_millis(provisioning.mutable_deadline(), now + kRepairWindow);
  set_condition(status, "ConfigurationReady", false, "ConfigurationPending", "Waiting for the first accepted configuration", now);
}

bool settle_readiness(records::SandboxRecord& record, const Surroundings& at) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  const auto phase = status.phase();
  if (phase != pb::SANDBOX_PHASE_PROVISIONING && phase != pb::SANDBOX_PHASE_STARTING && phase != pb::SANDBOX_PHASE_UNKNOWN &&
      phase != pb::SANDBOX_PHASE_UNSPECIFIED) {
    return false;
  }
  if (!at.session || !accepted(status, at.instance_id)) return false;
  const auto& provisioning = status.provisioning();
  if (provisioning.has_timeout_time()) return false;
  if (provisioning.has_deadline() && at.now >= to_millis(provisioning.deadline())) {
    const bool moved = status.phase() != pb::SANDBOX_PHASE_PROVISIONING;
    status.set_phase(pb::SANDBOX_PHASE_PROVISIONING);
    return set_ready(status, false, "ProvisioningDeadlineElapsed", "Provisioning deadline elapsed; awaiting compute reclamation", at.now) ||
           moved;
  }
  status.set_phase(pb::SANDBOX_PHASE_READY);
  set_ready(status, true, "DependenciesReady", "Supervisor session connected", at.now);
  became_ready(record, at.now);
  return true;
}

bool session_connected(records::SandboxRecord& record, const Surroundings& at, const std::string& host_key_fingerprint) {
  auto& sandbox = *record.mutable_sandbox();
  auto& status = *sandbox.mutable_status();
  bool changed = false;
  if (!host_key_fingerprint.empty() && sandbox.host_key_fingerprint() != host_key_fingerprint) {
    sandbox.set_host_key_fingerprint(host_key_fingerprint);
    changed = true;
  }
  switch (status.phase()) {
    case pb::SANDBOX_PHASE_DELETING:
    case pb::SANDBOX_PHASE_STOPPING:
    case pb::SANDBOX_PHASE_STOPPED:
    case pb::SANDBOX_PHASE_COMPLETED:
    case pb::SANDBOX_PHASE_ERROR:
      return changed;
    default:
      break;
  }
  if (status.main_process_instance_id() != at.instance_id) {
    status.set_main_process_instance_id(at.instance_id);
    status.clear_exit_code();
    status.clear_main_process_started_time();
    changed = true;
  }
  if (status.phase() == pb::SANDBOX_PHASE_READY && accepted(status, at.instance_id)) return changed;
  if (status.phase() != pb::SANDBOX_PHASE_PROVISIONING) {
    status.set_phase(pb::SANDBOX_PHASE_PROVISIONING);
    changed = true;
  }
  if (settle_readiness(record, at)) return true;
  return set_ready(status, false, "ConfigurationPending", "Waiting for the first accepted configuration", at.now) || changed;
}

bool session_ended(records::SandboxRecord& record, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  if (status.has_next_restart_time() && record.finalized_instance() != status.main_process_instance_id()) {
    record.set_finalized_instance(status.main_process_instance_id());  // whoever read its output reads no more
    return true;
  }
  if (status.phase() != pb::SANDBOX_PHASE_READY) return false;
  status.set_phase(pb::SANDBOX_PHASE_PROVISIONING);
  set_ready(status, false, "DependenciesNotReady", "Supervisor session disconnected", now);
  return true;
}

void fail(records::SandboxRecord& record, Millis now, const std::string& reason, const std::string& message, bool is_permanent) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  const bool held = record.has_ready_time() && now - to_millis(record.ready_time()) >= kGoodRun;
  status.set_phase(pb::SANDBOX_PHASE_ERROR);
  set_condition(status, "Ready", false, reason, message, now);
  if (is_permanent && record.intent() == records::INTENT_RUNNING) record.set_intent(records::INTENT_HELD);
  if (record.intent() != records::INTENT_RUNNING) return;
  if (held) record.set_recovery_step(0);
  set_millis(record.mutable_recovery_time(), now + backoff(record.recovery_step()));
  record.set_recovery_step(record.recovery_step() + 1);
}

bool apply_observation(records::SandboxRecord& record, const ComputeObservation& observed, const Surroundings& at) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  const auto old = status.phase();
  if (!observed.generation.empty() && observed.generation != record.runtime_generation()) return false;  // of an earlier start
  if (old == pb::SANDBOX_PHASE_DELETING || old == pb::SANDBOX_PHASE_ERROR || old == pb::SANDBOX_PHASE_COMPLETED) return false;
  if (!observed.has_status) return settle_readiness(record, at);
  const records::SandboxRecord before = record;
  const auto derived = derive_phase(observed);

  status.set_agent_pod(observed.instance_id);
  status.set_agent_fd(observed.agent_fd);
  status.set_sandbox_fd(observed.sandbox_fd);
  copy_conditions(status, observed);

  const auto* ready = ready_condition(observed);
  const std::string reason = ready != nullptr ? ready->reason : std::string{};
  const std::string message = ready != nullptr && gpu_unschedulable(record, *ready) ? kGpuHint
                              : ready != nullptr                                    ? ready->message
                                                                                    : std::string{};
  const auto broken = [&] { fail(record, at.now, reason.empty() ? "ComputeFailed" : reason, message, permanent(reason)); };

  switch (old) {
    case pb::SANDBOX_PHASE_STOPPED:
      break;
    case pb::SANDBOX_PHASE_STOPPING:
      if (derived == pb::SANDBOX_PHASE_STOPPED || has_condition(observed, "", false, {"ContainerExited", "ContainerStopped"})) {
        finish_stop(record, at.now);
      } else if (derived == pb::SANDBOX_PHASE_ERROR &&
                 !has_condition(observed, "Suspended", false, {"PodTerminating", "PodNotTerminated"})) {
        fail(record, at.now, reason, message);
      }
      break;
    case pb::SANDBOX_PHASE_STARTING:
      if (derived == pb::SANDBOX_PHASE_ERROR) {
        broken();
      } else {
        settle_readiness(record, at);
      }
      break;
    default:
      if (derived == pb::SANDBOX_PHASE_ERROR) {
        broken();
      } else if (derived == pb::SANDBOX_PHASE_STOPPED) {
        status.set_phase(pb::SANDBOX_PHASE_STOPPED);
        set_ready(status, false, "Stopped", "Sandbox compute is stopped", at.now);
      } else if (old != pb::SANDBOX_PHASE_READY && !settle_readiness(record, at)) {
        status.set_phase(pb::SANDBOX_PHASE_PROVISIONING);
        if (derived == pb::SANDBOX_PHASE_READY && !at.session) {
          set_ready(status, false, "SupervisorNotConnected", "Backend ready; waiting for supervisor session", at.now);
        }
      }
  }
  return !google::protobuf::util::MessageDifferencer::Equals(before, record);
}

bool apply_missing(records::SandboxRecord& record, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  switch (status.phase()) {
    case pb::SANDBOX_PHASE_COMPLETED:
    case pb::SANDBOX_PHASE_ERROR:
    case pb::SANDBOX_PHASE_DELETING:
      return false;
    case pb::SANDBOX_PHASE_STOPPING:
    case pb::SANDBOX_PHASE_STOPPED:
    case pb::SANDBOX_PHASE_STARTING:
      fail(record, now, "ComputeResourceMissing",
           "The compute driver could not find the retained sandbox resource; delete the sandbox to clean up its remaining state", true);
      return true;
    default:
      fail(record, now, "BackendResourceMissing", "Sandbox compute resource disappeared while the gateway was offline");
      return true;
  }
}

bool main_process_exited(records::SandboxRecord& record, const std::string& instance_id, std::int32_t code, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  switch (status.phase()) {
    case pb::SANDBOX_PHASE_DELETING:
    case pb::SANDBOX_PHASE_STOPPING:
    case pb::SANDBOX_PHASE_STOPPED:
    case pb::SANDBOX_PHASE_COMPLETED:
      return false;
    default:
      break;
  }
  const auto& stored = status.main_process_instance_id();
  if (!stored.empty()) {
    const bool starting = status.phase() == pb::SANDBOX_PHASE_STARTING;
    if (starting == (stored == instance_id)) return false;  // the old process of a new start, or a stale one
  }
  if (status.has_exit_code()) return false;
  status.set_main_process_instance_id(instance_id);
  status.set_exit_code(code);
  if (status.phase() == pb::SANDBOX_PHASE_ERROR) return true;  // keeps the infrastructure's reason
  const bool again = asks_for_another_run(record, code);
  record.set_intent(again ? records::INTENT_RUNNING : records::INTENT_FINISHED);
  status.mutable_provisioning()->clear_deadline();
  if (code == 0) {
    status.set_phase(pb::SANDBOX_PHASE_COMPLETED);
    set_ready(status, false, "MainProcessCompleted", "Canonical main process completed successfully", now);
  } else {
    status.set_phase(pb::SANDBOX_PHASE_ERROR);
    set_ready(status, false, "MainProcessFailed", cat("Canonical main process exited with status ", code), now);
  }
  record.clear_recovery_time();
  if (again) {
    const bool good = record.has_ready_time() && now - to_millis(record.ready_time()) >= kGoodRun;
    if (good) record.set_restart_step(0);
    const auto wait = record.restart_step() == 0 ? 0 : backoff(record.restart_step() - 1);
    record.set_restart_step(record.restart_step() + 1);
    set_millis(status.mutable_next_restart_time(), now + wait);
  }
  return true;
}

bool ready_to_remove(const records::SandboxRecord& record, bool session) {
  const auto& sandbox = record.sandbox();
  const auto retention = sandbox.metadata().annotations().find("openshell.nvidia.com/retention");
  if (retention == sandbox.metadata().annotations().end() || retention->second != "ephemeral") return false;
  const auto& status = sandbox.status();
  return status.has_exit_code() && record.intent() == records::INTENT_FINISHED && !session &&
         record.finalized_instance() == status.main_process_instance_id();
}

absl::Status check_usable(const records::SandboxRecord& record, bool session) {
  const auto& status = record.sandbox().status();
  if (status.phase() == pb::SANDBOX_PHASE_READY) return absl::OkStatus();
  const bool finished = status.phase() == pb::SANDBOX_PHASE_COMPLETED || status.phase() == pb::SANDBOX_PHASE_ERROR;
  if (finished && status.has_exit_code() && session) return absl::OkStatus();
  return absl::FailedPreconditionError("sandbox is not ready");
}

absl::Status check_stop(const records::SandboxRecord& record, LifecycleStep* step) {
  const auto phase = record.sandbox().status().phase();
  switch (phase) {
    case pb::SANDBOX_PHASE_STOPPED:
      *step = LifecycleStep::done;
      return absl::OkStatus();
    case pb::SANDBOX_PHASE_COMPLETED:
    case pb::SANDBOX_PHASE_READY:
    case pb::SANDBOX_PHASE_STOPPING:
    case pb::SANDBOX_PHASE_ERROR:
      *step = LifecycleStep::call_driver;
      return absl::OkStatus();
    default:
      return absl::FailedPreconditionError(cat("sandbox must be Ready to stop (current phase: ", phase_name(phase), ")"));
  }
}

absl::Status check_start(const records::SandboxRecord& record, LifecycleStep* step) {
  const auto& status = record.sandbox().status();
  switch (status.phase()) {
    case pb::SANDBOX_PHASE_READY:
      *step = LifecycleStep::done;
      return absl::OkStatus();
    case pb::SANDBOX_PHASE_ERROR:
      if (status.provisioning().has_timeout_time() && !status.provisioning().has_cleanup_completed_time()) {
        return absl::FailedPreconditionError("cleanup of the expired sandbox is still in progress; retry later");
      }
      [[fallthrough]];
    case pb::SANDBOX_PHASE_STOPPED:
    case pb::SANDBOX_PHASE_COMPLETED:
    case pb::SANDBOX_PHASE_STARTING:
      *step = LifecycleStep::call_driver;
      return absl::OkStatus();
    default:
      return absl::FailedPreconditionError(cat("sandbox must be Stopped to start (current phase: ", phase_name(status.phase()), ")"));
  }
}

void begin_stop(records::SandboxRecord& record, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  record.set_intent(records::INTENT_STOPPED);
  record.clear_recovery_time();
  status.clear_next_restart_time();
  if (status.phase() == pb::SANDBOX_PHASE_COMPLETED) {
    record.set_intent(records::INTENT_FINISHED);
    return;
  }
  status.clear_exit_code();
  status.set_phase(pb::SANDBOX_PHASE_STOPPING);
  set_ready(status, false, "Stopping", "Sandbox stop requested", now);
}

void finish_stop(records::SandboxRecord& record, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  if (status.phase() == pb::SANDBOX_PHASE_COMPLETED) return;
  status.set_phase(pb::SANDBOX_PHASE_STOPPED);
  status.mutable_provisioning()->clear_deadline();
  set_ready(status, false, "Stopped", "Sandbox compute is stopped", now);
}

void begin_delete(records::SandboxRecord& record, Millis now) {
  record.set_intent(records::INTENT_DELETED);
  record.clear_recovery_time();
  auto& sandbox = *record.mutable_sandbox();
  sandbox.mutable_status()->clear_next_restart_time();
  sandbox.mutable_status()->set_phase(pb::SANDBOX_PHASE_DELETING);
  set_millis(sandbox.mutable_metadata()->mutable_deletion_time(), now);
}

bool expire(records::SandboxRecord& record, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  auto& provisioning = *status.mutable_provisioning();
  if (status.phase() != pb::SANDBOX_PHASE_PROVISIONING && status.phase() != pb::SANDBOX_PHASE_STARTING) return false;
  if (!provisioning.has_deadline() || now < to_millis(provisioning.deadline())) return false;
  provisioning.clear_deadline();
  set_millis(provisioning.mutable_timeout_time(), now);
  std::string message = "Provisioning repair window expired after 300 seconds";
  if (const auto& error = status.configuration_admission().error(); !error.empty()) message += cat(": ", error);
  fail(record, now, "ProvisioningTimedOut", message, true);
  return true;
}

std::optional<Millis> next_due(const records::SandboxRecord& record) {
  std::optional<Millis> due;
  const auto consider = [&](Millis at) { due = due ? std::min(*due, at) : at; };
  const auto& status = record.sandbox().status();
  if (status.provisioning().has_deadline() &&
      (status.phase() == pb::SANDBOX_PHASE_PROVISIONING || status.phase() == pb::SANDBOX_PHASE_STARTING)) {
    consider(to_millis(status.provisioning().deadline()));
  }
  if (record.has_recovery_time() && record.intent() == records::INTENT_RUNNING) consider(to_millis(record.recovery_time()));
  if (status.has_next_restart_time()) consider(restart_time(record));
  if (status.provisioning().has_timeout_time() && !status.provisioning().has_cleanup_completed_time()) {
    consider(status.provisioning().has_cleanup_retry_time() ? to_millis(status.provisioning().cleanup_retry_time()) : 0);
  }
  return due;
}

bool recovery_due(const records::SandboxRecord& record, Millis now) {
  return record.intent() == records::INTENT_RUNNING && record.sandbox().status().phase() == pb::SANDBOX_PHASE_ERROR &&
         record.has_recovery_time() && now >= to_millis(record.recovery_time());
}

bool restart_due(const records::SandboxRecord& record, Millis now) {
  return record.intent() == records::INTENT_RUNNING && record.sandbox().status().has_next_restart_time() && now >= restart_time(record);
}

}  // namespace openshell::gateway
