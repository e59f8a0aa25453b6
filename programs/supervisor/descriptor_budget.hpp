#pragma once

#include <cstddef>

namespace openshell::supervisor {

/// How many relays the descriptors of a process are enough for: two each, one per side, beside what it holds otherwise. Never more than
/// `most`, and at least 1: a process that cannot carry one is of no use, and says so by refusing.
/// @param limit  RLIMIT_NOFILE (getrlimit(2))
/// @param used   descriptors open now
[[nodiscard]] std::size_t affordable_relays(std::size_t limit, std::size_t used, std::size_t most) noexcept;

/// Raises the soft limit of descriptors to the hard one, then the same for this process. Called once, before the engine is made.
[[nodiscard]] std::size_t budget_descriptors(std::size_t most);

}  // namespace openshell::supervisor
