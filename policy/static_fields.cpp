#include "policy/static_fields.hpp"

#include <algorithm>

#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

template <class Paths>
const std::string* first_removed(const Paths& live, const Paths& next) {
  for (const auto& path : live) {
    if (std::find(next.begin(), next.end(), path) == next.end()) return &path;
  }
  return nullptr;
}

absl::Status check_filesystem(const pb::SandboxPolicy& live, const pb::SandboxPolicy& next) {
  if (!live.has_filesystem()) return absl::OkStatus();
  if (!next.has_filesystem()) return absl::InvalidArgumentError("filesystem policy cannot be removed on a live sandbox");
  if (live.filesystem().include_workdir() != next.filesystem().include_workdir()) {
    return absl::InvalidArgumentError("filesystem include_workdir cannot be changed on a live sandbox");
  }
  if (const auto* path = first_removed(live.filesystem().read_only(), next.filesystem().read_only())) {
    return absl::InvalidArgumentError(text::cat("filesystem read_only path '", *path, "' cannot be removed on a live sandbox"));
  }
  if (const auto* path = first_removed(live.filesystem().read_write(), next.filesystem().read_write())) {
    return absl::InvalidArgumentError(text::cat("filesystem read_write path '", *path, "' cannot be removed on a live sandbox"));
  }
  return absl::OkStatus();
}

template <class Section>
bool differs(bool live, bool next, const Section& a, const Section& b) {
  return live != next || a.SerializeAsString() != b.SerializeAsString();
}

}  // namespace

absl::Status check_live_update(const pb::SandboxPolicy& live, const pb::SandboxPolicy& next) {
  if (const auto status = check_filesystem(live, next); !status.ok()) return status;
  if (differs(live.has_landlock(), next.has_landlock(), live.landlock(), next.landlock())) {
    return absl::InvalidArgumentError("landlock policy cannot be changed on a live sandbox (applied at startup)");
  }
  if (differs(live.has_process(), next.has_process(), live.process(), next.process())) {
    return absl::InvalidArgumentError("process policy cannot be changed on a live sandbox (applied at startup)");
  }
  return absl::OkStatus();
}

}  // namespace openshell::policy
