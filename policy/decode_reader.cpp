#include "policy/decode_reader.hpp"

namespace openshell::policy {

std::string_view kind_name(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::sequence) return "a list";
  if (node.kind == YamlNode::Kind::mapping) return "a mapping";
  switch (node.type) {
    case ScalarType::string:
      return "a string";
    case ScalarType::null:
      return "null";
    case ScalarType::boolean:
      return "a boolean";
    case ScalarType::integer:
      return "an integer";
    case ScalarType::floating:
      return "a number with a fraction";
  }
  return "something else";
}

// Decimal, 0o and 0x, as the core schema has them.
bool read_integer(std::string_view written, std::int64_t& value) {
  int base = 10;
  if (written.starts_with("0o") || written.starts_with("0x")) {
    base = written[1] == 'o' ? 8 : 16;
    written.remove_prefix(2);
  } else if (written.starts_with('+')) {
    written.remove_prefix(1);
  }
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value, base);
  return error == std::errc{} && end == written.data() + written.size();
}

}  // namespace openshell::policy
