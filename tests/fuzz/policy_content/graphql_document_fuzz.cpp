// The first line names the operation, the rest is the document. What is accepted has a type and sorted fields, and stays what it is when
// ignored characters are put around it; what is refused says why.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/content/graphql_document.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto cut = text.find('\n');
  if (cut == std::string_view::npos) return 0;
  const auto name = text.substr(0, cut);
  const auto document = text.substr(cut + 1);
  const auto read = openshell::policy::read_graphql_document(document, name);
  if (!read.ok()) {
    if (read.status().message().empty()) std::abort();
    return 0;
  }
  if (read->type != "query" && read->type != "mutation" && read->type != "subscription") std::abort();
  if (!name.empty() && read->name != name) std::abort();
  if (!std::is_sorted(read->fields.begin(), read->fields.end())) std::abort();
  const auto again = openshell::policy::read_graphql_document(",\n# c\n" + std::string{document} + "\n,", name);
  if (!again.ok() || again->fields != read->fields || again->type != read->type) std::abort();
  return 0;
}
