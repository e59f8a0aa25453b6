// Abseil as Debian builds it looks for deadlocks: every lock of a mutex is entered into a graph of all locks of the process, behind one
// lock of its own. gRPC takes a hundred a call.
#pragma once

#include <absl/synchronization/mutex.h>

namespace openshell {

/// First thing of a program that speaks gRPC.
inline void omit_lock_checks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace openshell
