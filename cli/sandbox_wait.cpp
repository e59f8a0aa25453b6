#include "cli/sandbox_wait.hpp"

#include <absl/strings/str_cat.h>

#include "cli/sandbox_document.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

/// What the sandbox says of itself, or the bare phase where it says nothing.
absl::Status cannot(Goal goal, const v1::Sandbox& sandbox) {
  const auto reason = not_ready_reason(sandbox);
  return absl::AbortedError(absl::StrCat(reason.empty() ? "sandbox entered " + phase_name(sandbox.status().phase()) : reason,
                                         " while waiting for ", goal_name(goal)));
}

/// The gateway makes a new attempt by itself: this error is not the end.
bool will_be_tried_again(const v1::Sandbox& sandbox) { return sandbox.status().has_next_restart_time(); }

std::optional<absl::Status> ready(const v1::Sandbox& sandbox) {
  switch (sandbox.status().phase()) {
    case v1::SANDBOX_PHASE_READY:
      return absl::OkStatus();
    case v1::SANDBOX_PHASE_ERROR:
    case v1::SANDBOX_PHASE_COMPLETED:
      if (will_be_tried_again(sandbox)) return std::nullopt;
      return cannot(Goal::ready, sandbox);
    case v1::SANDBOX_PHASE_STOPPED:
    case v1::SANDBOX_PHASE_DELETING:
      return cannot(Goal::ready, sandbox);
    default:
      return std::nullopt;
  }
}

std::optional<absl::Status> stopped(const v1::Sandbox& sandbox) {
  switch (sandbox.status().phase()) {
    case v1::SANDBOX_PHASE_STOPPED:
      return absl::OkStatus();
    case v1::SANDBOX_PHASE_ERROR:
    case v1::SANDBOX_PHASE_DELETING:
      return cannot(Goal::stopped, sandbox);
    default:
      return std::nullopt;
  }
}

std::optional<absl::Status> ended(const v1::Sandbox& sandbox) {
  const auto& status = sandbox.status();
  if (status.has_exit_code() && !status.has_next_restart_time()) return absl::OkStatus();
  if (status.phase() == v1::SANDBOX_PHASE_STOPPED || status.phase() == v1::SANDBOX_PHASE_DELETING) return cannot(Goal::exit, sandbox);
  return std::nullopt;  // an error of the infrastructure may be followed by another attempt
}

}  // namespace

std::string goal_name(Goal goal) {
  switch (goal) {
    case Goal::ready:
      return "Ready";
    case Goal::stopped:
      return "Stopped";
    case Goal::exit:
      return "the end of its main process";
    case Goal::deleted:
      return "deletion";
  }
  return "";
}

std::optional<absl::Status> settled(Goal goal, const v1::Sandbox& sandbox) {
  switch (goal) {
    case Goal::ready:
      return ready(sandbox);
    case Goal::stopped:
      return stopped(sandbox);
    case Goal::exit:
      return ended(sandbox);
    case Goal::deleted:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace openshell::cli
