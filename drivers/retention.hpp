// The label by which a driver tells the supervisor that a sandbox is only there for its main process.
#pragma once

#include <string_view>

namespace openshell::drivers {

inline constexpr std::string_view kRetentionLabel = "openshell.nvidia.com/retention";
inline constexpr std::string_view kRetentionEphemeral = "ephemeral";

}  // namespace openshell::drivers
