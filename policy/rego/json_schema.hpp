// JSON Schema (drafts 4, 6 and 7) over values of the language. References reach within the schema only.
#pragma once

#include "policy/rego/builtins.hpp"

#include <absl/status/status.h>

#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

struct SchemaFault {
  std::string field;  ///< `a.0.b`; `(Root)`.
  std::string type;   ///< `invalid_type`
  std::string description;
};

/// UNKNOWN: what is wrong with the schema itself.
absl::Status check_schema(QueryContext& context, const Value& schema);

/// What of the document the schema refuses; none where it conforms. Precondition: check_schema() passed. RESOURCE_EXHAUSTED as ever.
absl::StatusOr<std::vector<SchemaFault>> validate(QueryContext& context, const Value& schema, const Value& document);

/// Whether the text has the form of that name; true for names that are not known.
bool has_format(std::string_view format, std::string_view text);

}  // namespace openshell::policy::rego
