// Regular expressions as the language's built-ins read them: RE2's syntax, compiled once for a query.
#pragma once

#include "policy/rego/builtins.hpp"

#include <re2/re2.h>

#include <memory>
#include <string_view>

namespace openshell::policy::rego {

/// Patterns that are kept for one query; the next one makes room for all.
inline constexpr std::size_t kKeptPatterns = 256;
/// Memory of one compiled pattern.
inline constexpr std::int64_t kPatternBytes = std::int64_t{4} << 20;

/// Valid while the query lives and is not asked for another kKeptPatterns of them; UNKNOWN `error parsing regexp: ...`.
absl::StatusOr<std::shared_ptr<const re2::RE2>> compile_pattern(QueryContext& context, std::string_view text);

}  // namespace openshell::policy::rego
