// The state machine of a sandbox: what each event does to its record. Pure: no clock, no actor, no store. Every function changes the record
// it is given and says whether it did; the entity stores a changed record before anybody sees it.
// [CA-11..CA-50]
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <string>

#include "actors/gateway/times.hpp"
#include "messages/gateway.hpp"
#include "records.pb.h"

namespace openshell::gateway {

namespace pb = openshell::v1;

/// How long a start may wait for its first accepted configuration, and a rejected one for its repair.
inline constexpr Millis kRepairWindow = 300'000;
/// Backoff of recoveries and restarts: first wait, longest wait, and how long a run must hold to count as good.
inline constexpr Millis kFirstRetry = 1'000;
inline constexpr Millis kLongestRetry = 180'000;
inline constexpr Millis kGoodRun = 10'000;
/// Supervisor instances that are remembered as retired.
inline constexpr int kMaxRetiredInstances = 32;

/// What is known beside the record when an event is applied.
struct Surroundings {
  Millis now = 0;
  bool session = false;     ///< a supervisor session is current
  std::string instance_id;  ///< its instance, empty without session
};

/// The phase that a driver's words mean by themselves.
pb::SandboxPhase derive_phase(const ComputeObservation& observed);

/// A new attempt: generation, epoch, admission PENDING, a fresh repair window.
void begin_attempt(records::SandboxRecord& record, Millis now, const std::string& generation, const std::string& token_id,
                   const std::string& attempt_id);

/// A snapshot of the driver. A stale one never revives what ended. True when the record changed.
bool apply_observation(records::SandboxRecord& record, const ComputeObservation& observed, const Surroundings& at);

/// The driver has nothing under this id although it was not deleted. True when the record changed.
bool apply_missing(records::SandboxRecord& record, Millis now);

bool session_connected(records::SandboxRecord& record, const Surroundings& at, const std::string& host_key_fingerprint);
bool session_ended(records::SandboxRecord& record, Millis now);

/// READY as soon as a session of the accepted instance is there, before the window closes. True when the phase or a condition changed.
bool settle_readiness(records::SandboxRecord& record, const Surroundings& at);

/// A failure of the infrastructure: ERROR with a reason; intent stays, so that it is recovered, unless `permanent`.
void fail(records::SandboxRecord& record, Millis now, const std::string& reason, const std::string& message, bool permanent = false);

/// The main process ended. False where the report changes nothing (stale instance, repeated, or nothing runs); never an error.
bool main_process_exited(records::SandboxRecord& record, const std::string& instance_id, std::int32_t code, Millis now);
/// True for an ephemeral sandbox that is done: result recorded, finalised, no session, no further run asked for.
bool ready_to_remove(const records::SandboxRecord& record, bool session);

/// Whether exec and forwarding may start something: READY, or a recorded result with compute and session still there. FAILED_PRECONDITION
/// otherwise.
absl::Status check_usable(const records::SandboxRecord& record, bool session);

/// Stop and start, as a person may ask for them.
enum class LifecycleStep { done, call_driver };
absl::Status check_stop(const records::SandboxRecord& record, LifecycleStep* step);
absl::Status check_start(const records::SandboxRecord& record, LifecycleStep* step);
void begin_stop(records::SandboxRecord& record, Millis now);
void finish_stop(records::SandboxRecord& record, Millis now);
void begin_delete(records::SandboxRecord& record, Millis now);

/// The repair window ran out: ERROR, held until a person starts it. True when it did so now.
bool expire(records::SandboxRecord& record, Millis now);
/// When the next thing is due that only time brings (window, recovery, restart); nullopt: nothing.
std::optional<Millis> next_due(const records::SandboxRecord& record);
/// True for an ERROR that recovery may turn into a new attempt now.
bool recovery_due(const records::SandboxRecord& record, Millis now);
/// True for a waiting restart of the main process.
bool restart_due(const records::SandboxRecord& record, Millis now);

/// Sets the one condition of that type, keeping the transition time where nothing changed. True when something changed.
bool set_condition(pb::SandboxStatus& status, const std::string& type, bool value, const std::string& reason, const std::string& message,
                   Millis now);

/// "Provisioning", "Ready": as messages show it.
std::string phase_name(pb::SandboxPhase phase);

}  // namespace openshell::gateway
