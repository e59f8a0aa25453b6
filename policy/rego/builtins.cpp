#include "policy/rego/builtins.hpp"
#include "policy/rego/builtins_collections.hpp"
#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/builtins_numbers.hpp"
#include "policy/rego/builtins_objects.hpp"
#include "policy/rego/builtins_operators.hpp"
#include "policy/rego/builtins_strings.hpp"
#include "policy/rego/builtins_types.hpp"
#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {

using openshell::policy::text::cat;
namespace {

struct Registry {
  absl::flat_hash_map<std::string_view, const Builtin*, std::hash<std::string_view>> by_name;
  std::vector<const Builtin*> sorted;
};

/// Each group: `const BuiltinTable& strings_builtins();`, declared in its header and listed here.
const Registry& registry() {
  static const Registry* const made = [] {
    auto* all = new Registry;
    for (const BuiltinTable* table : std::vector<const BuiltinTable*>{
             &operator_builtins(), &number_builtins(),  &collection_builtins(), &object_builtins(),         &type_builtins(),
             &string_builtins(),   &context_builtins(), &crypto_builtins(),     &encoding_builtins(),       &glob_builtins(),
             &graph_builtins(),    &json_builtins(),    &json_path_builtins(),  &json_schema_builtins(),    &jwt_builtins(),
             &name_builtins(),     &net_builtins(),     &regex_builtins(),      &regex_template_builtins(), &template_builtins(),
             &time_builtins(),     &yaml_builtins()}) {
      for (const auto& builtin : *table) {
        all->by_name.emplace(builtin.name, &builtin);
        all->sorted.push_back(&builtin);
      }
    }
    std::sort(all->sorted.begin(), all->sorted.end(), [](const Builtin* a, const Builtin* b) { return a->name < b->name; });
    return all;
  }();
  return *made;
}

}  // namespace

absl::Status QueryContext::too_many_steps() { return absl::ResourceExhaustedError("limit exceeded: steps"); }
absl::Status QueryContext::too_many_elements() { return absl::ResourceExhaustedError("limit exceeded: elements"); }

const Builtin* find_builtin(std::string_view name) {
  const auto found = registry().by_name.find(name);
  return found == registry().by_name.end() ? nullptr : found->second;
}

std::span<const Builtin* const> all_builtins() { return registry().sorted; }

absl::Status operand_error(std::size_t position, std::string_view expected, const Value& got) {
  return absl::InvalidArgumentError(cat("operand ", position, " must be ", expected, " but got ", kind_name(got.kind())));
}

}  // namespace openshell::policy::rego
