// The text that stands for a credential inside a sandbox. The gateway and the supervisor issue it, the egress pipeline of the supervisor
// resolves it.
//
//   openshell:resolve:env:KEY                 canonical: standalone use only, "the current value"
//   openshell:resolve:env:v42_KEY             the value of environment revision 42
//   openshell:resolve:env:s<64 hex>_KEY       stable: whatever value the named binding has now
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openshell::providers {

inline constexpr std::string_view kPlaceholderMarker = "openshell:resolve:env:";

/// Revision 0 gives the canonical form.
std::string placeholder(std::uint64_t revision, std::string_view key);
/// `handle`: 64 lower-case hexadecimal digits.
std::string stable_placeholder(std::string_view handle, std::string_view key);

struct Placeholder {
  std::string key;
  std::optional<std::uint64_t> revision;  ///< revision form
  std::string handle;                     ///< stable form, else empty
  friend bool operator==(const Placeholder&, const Placeholder&) = default;
};
/// The whole text must be one placeholder. A revision above 2^64-1 makes the digits part of no form: nullopt.
std::optional<Placeholder> parse_placeholder(std::string_view text);

/// `v<digits>_<key>` and `s<64 hex>_<key>` would be read as part of a placeholder: no variable may have such a name.
bool is_reserved_name(std::string_view name);

}  // namespace openshell::providers
