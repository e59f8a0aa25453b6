// A GraphQL executable document (specification October 2021, section 2) read as far as a policy needs it: the operation that a server would
// run, and which fields of the root it selects, through fragments. The whole text is checked against the grammar, so that no server sees
// another operation in it. Pure function, any thread. (L7-04)
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy {

inline constexpr std::size_t kMaxGraphqlTokens = 20'000;
inline constexpr std::size_t kMaxGraphqlDepth = 128;  ///< nested selections, values and types together

struct GraphqlDefinition {
  std::string type;                 ///< `query`, `mutation` or `subscription`
  std::string name;                 ///< empty: unnamed
  std::vector<std::string> fields;  ///< names of the root's fields (aliases do not count), sorted, each once
};

/// The operation that `operation_name` selects; empty: the only one. INVALID_ARGUMENT: not the grammar of an executable document, a
/// fragment that does not exist or exists twice, an operation name twice, an unnamed operation beside another, or no operation to select.
/// Messages hold no text of the document.
absl::StatusOr<GraphqlDefinition> read_graphql_document(std::string_view document, std::string_view operation_name);

}  // namespace openshell::policy
