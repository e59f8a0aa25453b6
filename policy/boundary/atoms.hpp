// The texts among which a set of patterns can tell: one example for each way of being matched by some of them and not by the others.
//
// A question of the form "is there a text that these allow and those do not" over all texts is thereby one over a short list. Pure, any
// thread.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "policy/glob.hpp"

namespace openshell::policy::boundary {

/// States of all patterns together that are visited before the question counts as too large.
inline constexpr std::size_t kMaxAtomStates = 200'000;

struct Atom {
  std::string text;                    ///< The shortest one of its kind.
  std::vector<std::uint32_t> matched;  ///< The patterns that match it, rising; empty: none does.
};

/// Of all texts that can occur (canonical paths, absolute file names, DNS names; any text of dotted kind). All patterns are of `kind`.
/// RESOURCE_EXHAUSTED beyond kMaxAtomStates, CANCELLED once `stop` says so (asked every thousand states).
absl::StatusOr<std::vector<Atom>> atoms_of(std::span<const Glob* const> globs, GlobKind kind, const std::function<bool()>& stop);

}  // namespace openshell::policy::boundary
