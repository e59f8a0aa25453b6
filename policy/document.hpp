// An ordered tree of values that both emitters write. Internal to serialize.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace openshell::policy {

struct Document {
  enum class Kind : std::uint8_t { text, bare, list, mapping } kind = Kind::mapping;
  std::string text;                                       ///< A string (text), or a number, true, false or null as written (bare).
  std::vector<std::pair<std::string, Document>> entries;  ///< list: keys unused

  static Document string(std::string value) { return {Kind::text, std::move(value), {}}; }
  static Document bare(std::string value) { return {Kind::bare, std::move(value), {}}; }
  static Document boolean(bool value) { return bare(value ? "true" : "false"); }
  static Document list() { return {Kind::list, {}, {}}; }
  static Document mapping() { return {Kind::mapping, {}, {}}; }

  Document& set(std::string key, Document value) {
    entries.emplace_back(std::move(key), std::move(value));
    return entries.back().second;
  }
  Document& push(Document value) { return set({}, std::move(value)); }
};

[[nodiscard]] std::string write_yaml(const Document& document);
/// On one line: `{path: /usr/bin/curl, ports: [443]}`.
[[nodiscard]] std::string write_flow_yaml(const Document& document);
[[nodiscard]] std::string write_json(const Document& document, bool pretty);

}  // namespace openshell::policy
