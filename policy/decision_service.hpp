// How decision records leave a sandbox.
#pragma once

namespace openshell::policy {

/// The relay by which a supervisor gives its records; of the reserved service ids the one that clients may ask for.
inline constexpr const char* kDecisionService = "openshell.decisions/1";

}  // namespace openshell::policy
