#include "policy/boundary/boundary.hpp"

#include <array>

#include "policy/boundary/parts.hpp"
#include "policy/hash.hpp"
#include "policy/normalize.hpp"
#include "sandbox.pb.h"

namespace openshell::policy::boundary {

std::string_view to_string(Result result) {
  constexpr std::array<std::string_view, 5> kNames{"within_boundary", "exceeds_boundary", "error", "unsupported", "inconclusive"};
  return kNames.at(static_cast<std::size_t>(result));
}

std::string_view to_string(Reason reason) {
  constexpr std::array<std::string_view, 11> kNames{"",
                                                    "invalid_input",
                                                    "unsupported_policy_shape",
                                                    "unresolved_workdir",
                                                    "unresolved_binary_path",
                                                    "unresolved_filesystem_path",
                                                    "solver_timeout",
                                                    "solver_unknown",
                                                    "resource_limit",
                                                    "invalid_witness",
                                                    "cancelled"};
  return kNames.at(static_cast<std::size_t>(reason));
}

std::string_view to_string(Counterexample::Domain domain) {
  constexpr std::array<std::string_view, 5> kNames{"filesystem", "network_l4", "network_rest", "process", "landlock"};
  return kNames.at(static_cast<std::size_t>(domain));
}

Answer unresolved(Reason code, std::string sentence) {
  Answer out;
  switch (code) {
    case Reason::invalid_input:
      out.result = Result::error;
      break;
    case Reason::solver_timeout:
    case Reason::solver_unknown:
    case Reason::resource_limit:
    case Reason::invalid_witness:
    case Reason::cancelled:
      out.result = Result::inconclusive;
      break;
    default:
      out.result = Result::unsupported;
  }
  out.reason_code = code;
  out.reason = std::move(sentence);
  return out;
}

Answer exceeds(Counterexample example) {
  Answer out;
  out.result = Result::exceeds_boundary;
  out.counterexample = std::move(example);
  return out;
}

Answer ended(Reason reason) {
  if (reason == Reason::solver_timeout)
    return unresolved(reason, "the time was not enough; give more with --timeout, or check a smaller policy");
  if (reason == Reason::cancelled) return unresolved(reason, "the check was cancelled");
  return unresolved(Reason::resource_limit, "the policies have too many combinations of programs, hosts and requests to compare");
}

Answer check(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary, const Limits& limits) {
  if (limits.interrupted && limits.interrupted() == Reason::cancelled) return ended(Reason::cancelled);
  if (auto answer = check_size(candidate, boundary)) return *std::move(answer);
  if (auto answer = check_shape(boundary, "boundary")) return *std::move(answer);
  if (auto answer = check_shape(candidate, "candidate")) return *std::move(answer);
  pb::SandboxPolicy a = candidate, b = boundary;
  normalize(a, Provenance::clear);
  normalize(b, Provenance::clear);
  if (auto answer = check_pairs(a, b, limits)) return *std::move(answer);
  if (auto answer = check_workdir(a, b)) return *std::move(answer);
  if (canonical_bytes(a) == canonical_bytes(b)) return {};
  // What certainly exceeds is told before what is not known.
  for (const auto step : {filesystem_exceeds, landlock_exceeds, process_exceeds}) {
    if (auto answer = step(a, b)) return *std::move(answer);
  }
  if (auto answer = check_network(a, b, limits)) return *std::move(answer);
  for (const auto step : {filesystem_unresolved, process_unresolved}) {
    if (auto answer = step(a, b)) return *std::move(answer);
  }
  return {};
}

}  // namespace openshell::policy::boundary
