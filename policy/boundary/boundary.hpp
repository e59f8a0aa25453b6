// Does a policy allow anything that a boundary - a policy that an operator wrote as the most that may be allowed - does not?
//
// Files, processes and Landlock are compared field by field. Of the network every choice (program, host, path...) is split into the few
// classes among which any pattern of either policy can tell, one example of each is put to both compiled policies, and the first that only
// the candidate allows is the counterexample: so it was decided by the very matcher that would let it happen. What is not modelled is
// answered `unsupported`, never passed. Pure but for `Limits`, any thread.
//
//   Answer answer = check(candidate, boundary, limits);   // both as parsed, valid (validate.hpp)
//   if (answer.result != Result::within_boundary) refuse(describe(answer));
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/proto_fwd.hpp"

namespace openshell::policy::boundary {

// Bounds over both policies together.
inline constexpr std::size_t kMaxRules = 1'024;
inline constexpr std::size_t kMaxEndpoints = 4'096;
inline constexpr std::size_t kMaxBinaries = 4'096;
inline constexpr std::size_t kMaxPorts = 65'536;
inline constexpr std::size_t kMaxRequestRules = 16'384;
inline constexpr std::size_t kMaxQueryMatchers = 256;
inline constexpr std::size_t kMaxPatternBytes = 4'096;         ///< of one pattern
inline constexpr std::size_t kMaxAllPatternBytes = 1'048'576;  ///< of all
inline constexpr std::size_t kMaxQuestions = 5'000'000;        ///< put to the compiled policies

enum class Result : std::uint8_t { within_boundary, exceeds_boundary, error, unsupported, inconclusive };
[[nodiscard]] std::string_view to_string(Result result);

/// Why there is no yes or no.
enum class Reason : std::uint8_t {
  none,
  invalid_input,
  unsupported_policy_shape,
  unresolved_workdir,
  unresolved_binary_path,
  unresolved_filesystem_path,
  solver_timeout,
  solver_unknown,
  resource_limit,
  invalid_witness,
  cancelled
};
[[nodiscard]] std::string_view to_string(Reason reason);

/// One action that the candidate allows and the boundary does not.
struct Counterexample {
  enum class Domain : std::uint8_t { filesystem, network_l4, network_rest, process, landlock } domain = Domain::filesystem;
  std::string access;                           ///< filesystem: `read` or `write`
  std::string path;                             ///< filesystem: the path; network_rest: the request's
  std::string candidate_value, boundary_value;  ///< process, landlock
  std::string binary, ancestor;                 ///< network; empty: any
  bool identity_enforced = true;                ///< network: programs count
  std::string host;
  std::uint16_t port = 0;
  std::string method;
  std::vector<std::pair<std::string, std::string>> query;  ///< decoded
};
[[nodiscard]] std::string_view to_string(Counterexample::Domain domain);

struct Answer {
  Result result = Result::within_boundary;
  std::optional<Counterexample> counterexample;  ///< exceeds_boundary only
  Reason reason_code = Reason::none;
  std::string reason;  ///< One sentence; empty with a yes or no.
};

/// What ends a check from outside.
struct Limits {
  std::function<Reason()> interrupted;  ///< none: go on; solver_timeout or cancelled. May be empty.
};

/// Both as parsed and valid; not yet normalised, since a policy with `port` and `ports` is told from one with either.
[[nodiscard]] Answer check(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary, const Limits& limits);
/// Only the bounds above; nullopt: both are small enough. Can be asked of policies that are not valid.
[[nodiscard]] std::optional<Answer> check_size(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary);

[[nodiscard]] Answer unresolved(Reason code, std::string sentence);  ///< unsupported, or inconclusive, as the code says

}  // namespace openshell::policy::boundary
