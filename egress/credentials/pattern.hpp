// The two glob meanings of credential bindings: host labels and path segments. Compiled at load.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace openshell::egress {

/// `*`, `?` and `[..]` stay within a part; a part that is exactly `**` stands for one or more parts (host) or any number (path).
/// `*` alone does not match an empty part.
class PartsPattern {
 public:
  static absl::StatusOr<PartsPattern> host(std::string_view pattern);  ///< split at '.', case ignored
  static absl::StatusOr<PartsPattern> path(std::string_view pattern);  ///< split at '/'; "", "**" and "/**" match everything
  [[nodiscard]] bool matches(std::string_view text) const;

 private:
  bool matches_from(std::size_t part, const std::vector<std::string_view>& text, std::size_t at) const;
  char separator_ = '.';
  bool everything_ = false;
  std::vector<std::string> parts_;
};

}  // namespace openshell::egress
