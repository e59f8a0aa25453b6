// JSON Patch (RFC 6902) over the values of the language, sets included.
#pragma once

#include "policy/rego/value.hpp"

#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace openshell::policy::rego {

/// A path as JSON Pointer (RFC 6901; the slash at its begin may be missing) or as an array of its steps. INVALID_ARGUMENT else.
absl::StatusOr<std::vector<Value>> read_path(const Value& path);

/// How the step into an array reads in a pointer.
std::string number_key(const Value& number);

/// The document after one operation. UNKNOWN: what does not fit.
absl::StatusOr<Value> apply_patch(const Value& document, const Value& operation);

}  // namespace openshell::policy::rego
