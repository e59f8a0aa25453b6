// Request targets in the one form in which policy judges them and upstream receives them.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace openshell::egress::http {

inline constexpr std::size_t kMaxPathBytes = 4096;  ///< raw path of a target, before decoding

struct AbsoluteForm {
  std::string_view scheme;
  std::string_view authority;
  std::string_view rest;  ///< path and query; may be empty
};
/// `http://authority...` or `https://authority...`; nullopt for every other target.
std::optional<AbsoluteForm> split_absolute_form(std::string_view target);

struct Target {
  std::string path;                  ///< canonical: decoded once, dot segments resolved, encoded again
  std::optional<std::string> query;  ///< byte for byte, without '?'
  [[nodiscard]] std::string str() const { return query ? path + "?" + *query : path; }
};

/// INVALID_ARGUMENT: the message says what is wrong without quoting the target.
absl::StatusOr<Target> canonical_target(std::string_view raw, bool allow_encoded_slash);

/// Name and value pairs in order, decoded (`+` is a space). INVALID_ARGUMENT for a bad escape or text that is not UTF-8.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query);

/// nullopt for a `%` that two hexadecimal digits do not follow.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);

/// Appends `text` with every byte escaped that is no letter, no digit and not in `literal`.
void percent_encode(std::string& out, std::string_view text, std::string_view literal);

[[nodiscard]] bool is_valid_utf8(std::string_view text) noexcept;

}  // namespace openshell::egress::http
