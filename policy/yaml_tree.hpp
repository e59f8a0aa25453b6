// YAML text to a tree of plain nodes with places, within ParseLimits. Internal to the parser: tags, merge keys, null keys and cyclic
// aliases end here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policy/diagnostic.hpp"
#include "policy/parse.hpp"

namespace openshell::policy {

/// What YAML 1.2 core reads a scalar as.
enum class ScalarType : std::uint8_t { string, null, boolean, integer, floating };

[[nodiscard]] ScalarType core_type(std::string_view plain);

struct YamlNode;
using YamlNodePtr = std::shared_ptr<const YamlNode>;  // an alias shares the node of its anchor

struct YamlKey {
  std::string text;
  Place place;
};

struct YamlNode {
  enum class Kind : std::uint8_t { scalar, sequence, mapping } kind = Kind::scalar;
  ScalarType type = ScalarType::string;  ///< scalar
  std::string text;                      ///< scalar
  std::vector<YamlKey> keys;             ///< mapping, parallel to items
  std::vector<YamlNodePtr> items;
  Place place;
  std::size_t nodes = 1;         ///< This node and all below.
  std::size_t height = 1;        ///< Levels of collections, this one included; a scalar has 0.
  std::size_t scalar_bytes = 0;  ///< Of all scalars below, keys included.

  [[nodiscard]] const YamlNode* find(std::string_view key) const;
};

/// Null after an error, which is then in `diagnostics` (one, at its place).
[[nodiscard]] YamlNodePtr read_yaml(std::string_view text, const ParseLimits& limits, Diagnostics& diagnostics);

}  // namespace openshell::policy
