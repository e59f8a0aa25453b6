// What of a policy concerns the sandbox itself: files, processes, Landlock.
#include <algorithm>
#include <set>
#include <string>

#include "policy/boundary/parts.hpp"
#include "policy/normalize.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy::boundary {
namespace {

using text::cat;
using Paths = std::set<std::string>;

struct Access {
  std::string_view name;
  Paths candidate, boundary;
};

// What may be written may be read.
std::vector<Access> accesses(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  const auto add = [](Paths& out, const auto& list) {
    for (const auto& path : list) out.insert(normalize_path(path));
  };
  const auto writes = [&](const pb::SandboxPolicy& p) {
    Paths out;
    add(out, p.filesystem().read_write());
    return out;
  };
  const auto reads = [&](const pb::SandboxPolicy& p) {
    Paths out = writes(p);
    add(out, p.filesystem().read_only());
    return out;
  };
  return {{"write", writes(candidate), writes(boundary)}, {"read", reads(candidate), reads(boundary)}};
}

bool has_workdir(const pb::SandboxPolicy& policy) { return !policy.has_filesystem() || policy.filesystem().include_workdir(); }

bool is_root(const std::string& identity) { return identity == "root" || identity == "0"; }

std::string landlock(const pb::SandboxPolicy& policy) {
  return policy.landlock().compatibility().empty() ? "best_effort" : policy.landlock().compatibility();
}

std::string identity(const pb::SandboxPolicy& policy) {
  return policy.has_process() ? cat(policy.process().run_as_user(), ":", policy.process().run_as_group()) : "sandbox:sandbox";
}

}  // namespace

MaybeAnswer check_workdir(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  if (!has_workdir(candidate) || has_workdir(boundary)) return {};
  const auto& writable = boundary.filesystem().read_write();
  if (std::any_of(writable.begin(), writable.end(), [](const std::string& path) { return normalize_path(path) == "/"; })) return {};
  return unresolved(Reason::unresolved_workdir,
                    "the candidate includes the working directory and the boundary does not: where that is, no policy says; set "
                    "filesystem_policy.include_workdir to the same in both");
}

MaybeAnswer filesystem_exceeds(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  for (const auto& access : accesses(candidate, boundary)) {
    if (access.candidate.empty() || !access.boundary.empty()) continue;
    Counterexample example;
    example.access = access.name;
    example.path = *access.candidate.begin();
    return exceeds(std::move(example));
  }
  return {};
}

// Two different paths may be one directory: a symbolic link decides, and no policy shows it.
MaybeAnswer filesystem_unresolved(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  for (const auto& access : accesses(candidate, boundary)) {
    if (access.boundary.contains("/")) continue;
    for (const auto& path : access.candidate) {
      if (access.boundary.contains(path)) continue;
      return unresolved(
          Reason::unresolved_filesystem_path,
          cat("the candidate grants ", access.name, " below '", path,
              "', which the boundary does not list by that name; whether a path that it lists leads there depends on links in the image"));
    }
  }
  return {};
}

MaybeAnswer landlock_exceeds(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  if (landlock(boundary) != "hard_requirement" || landlock(candidate) == "hard_requirement") return {};
  Counterexample example;
  example.domain = Counterexample::Domain::landlock;
  example.candidate_value = landlock(candidate);
  example.boundary_value = landlock(boundary);
  return exceeds(std::move(example));
}

MaybeAnswer process_exceeds(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  const auto root = [](const pb::SandboxPolicy& p) { return is_root(p.process().run_as_user()) || is_root(p.process().run_as_group()); };
  if (!root(candidate) || root(boundary)) return {};
  Counterexample example;
  example.domain = Counterexample::Domain::process;
  example.candidate_value = identity(candidate);
  example.boundary_value = identity(boundary);
  return exceeds(std::move(example));
}

MaybeAnswer process_unresolved(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  if (identity(candidate) == identity(boundary)) return {};
  return unresolved(Reason::unsupported_policy_shape, cat("the candidate runs as '", identity(candidate), "' and the boundary as '",
                                                          identity(boundary), "': what either may do beyond the other is not modeled"));
}

}  // namespace openshell::policy::boundary
