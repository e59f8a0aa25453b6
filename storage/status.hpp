// How a lost race and a taken key are carried in an absl::Status. Internal to storage/: others read them with conflict_version and
// violated_constraint.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string_view>

namespace openshell::storage {

absl::Status conflict_error(std::string_view type, std::string_view id, std::uint64_t current);
absl::Status unique_error(std::string_view type, std::string_view constraint);

}  // namespace openshell::storage
