// Reading typed values out of a YAML tree, with an error for everything that is not of the wanted shape. Internal to the parser.
#pragma once

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <string>

#include "policy/diagnostic.hpp"
#include "policy/text.hpp"
#include "policy/yaml_tree.hpp"

namespace openshell::policy {

using Keys = std::span<const std::string_view>;

/// What a node is, for messages.
[[nodiscard]] std::string_view kind_name(const YamlNode& node);
/// Decimal, 0o and 0x, as the core schema has them. False: it does not fit.
[[nodiscard]] bool read_integer(std::string_view written, std::int64_t& value);

/// How messages begin, and what the text is called in them.
struct ReaderWords {
  std::string_view prefix = "failed to decode sandbox policy fields: ";
  std::string_view text = "authored policy";
};

class ValueReader {
 public:
  ValueReader(SourceMap& places, Diagnostics& diagnostics, ReaderWords words = {})
      : places_{places}, diagnostics_{diagnostics}, words_{words} {}

 protected:
  // --- errors
  // --------------------------------------------------------------------------------------------------------------------------------------

  void wrong(const YamlNode& node, const std::string& path, std::string_view expected, std::string cure = {}) {
    std::string found{kind_name(node)};
    if (node.kind == YamlNode::Kind::scalar && node.type != ScalarType::null) found = text::cat(found, " (", shorten(node.text, 64), ")");
    if (node.kind == YamlNode::Kind::scalar && node.type == ScalarType::null && cure.empty()) cure = "leave the key out for its default";
    error(node.place, path, text::cat(words_.prefix, shown(path), ": expected ", expected, ", found ", found), std::move(cure),
          "wrong type");
  }
  void missing(const YamlNode& node, const std::string& path, std::string_view key, std::string cure) {
    error(node.place, path, text::cat(words_.prefix, path.empty() ? "" : text::cat(shown(path), ": "), "missing field '", key, "'"),
          std::move(cure), "missing field");
  }
  void error(Place place, const std::string& path, std::string message, std::string cure = {}, std::string kind = {}) {
    diagnostics_.error(path, std::move(message), std::move(cure), std::move(kind)).place = place;
  }
  static std::string shown(std::string_view path) { return path.empty() ? "the document" : shorten(path, kMaxShownPathBytes); }

  // --- shapes
  // --------------------------------------------------------------------------------------------------------------------------------------

  bool is_mapping(const YamlNode& node, const std::string& path) {
    if (node.kind == YamlNode::Kind::mapping) return true;
    wrong(node, path, "a mapping");
    return false;
  }
  bool is_sequence(const YamlNode& node, const std::string& path) {
    if (node.kind == YamlNode::Kind::sequence) return true;
    wrong(node, path, "a list");
    return false;
  }

  static std::string below(const std::string& path, std::string_view key) {
    return path.empty() ? std::string{key} : text::cat(path, ".", key);
  }

  // A mapping with a fixed set of keys.
  template <class Use>
  void each_key(const YamlNode& node, const std::string& path, Keys known, Use&& use) {
    places_.set(path, node.place);
    if (!is_mapping(node, path)) return;
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const auto& key = node.keys[i];
      const std::string at = below(path, key.text);
      if (std::find(known.begin(), known.end(), key.text) == known.end()) {
        const auto near = nearest(key.text, known);
        error(key.place, at, text::cat("unknown field '", shown(at), "' in ", words_.text),
              near.empty() ? "" : text::cat("did you mean '", near, "'?"), "unknown field");
        continue;
      }
      places_.set(at, node.items[i]->kind == YamlNode::Kind::scalar ? node.items[i]->place : key.place);
      use(std::string_view{key.text}, *node.items[i], at);
    }
  }

  // A mapping whose keys are names.
  template <class Use>
  void each_entry(const YamlNode& node, const std::string& path, Use&& use) {
    if (!is_mapping(node, path)) return;
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const std::string at = below(path, node.keys[i].text);
      places_.set(at, node.keys[i].place);
      use(node.keys[i].text, *node.items[i], at);
    }
  }

  template <class Use>
  void each_element(const YamlNode& node, const std::string& path, Use&& use) {
    if (!is_sequence(node, path)) return;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const std::string at = text::cat(path, "[", i, "]");
      places_.set(at, node.items[i]->place);
      use(*node.items[i], at);
    }
  }

  bool string(const YamlNode& node, const std::string& path, std::string& out) {
    if (node.kind != YamlNode::Kind::scalar || node.type != ScalarType::string) {
      const bool quotable = node.kind == YamlNode::Kind::scalar && node.type != ScalarType::null;
      wrong(node, path, "a string", quotable ? text::cat("quote it: \"", shorten(node.text, 64), "\"") : "");
      return false;
    }
    out = node.text;
    return true;
  }
  void boolean(const YamlNode& node, const std::string& path, auto&& set) {
    if (node.kind != YamlNode::Kind::scalar || node.type != ScalarType::boolean) {
      wrong(node, path, "true or false");
      return;
    }
    set(node.text.front() == 't' || node.text.front() == 'T');
  }
  bool integer(const YamlNode& node, const std::string& path, std::int64_t least, std::int64_t most, std::string_view what,
               std::int64_t& out) {
    if (node.kind == YamlNode::Kind::scalar && node.type == ScalarType::integer) {
      if (read_integer(node.text, out) && out >= least && out <= most) return true;
      error(node.place, path, text::cat(words_.prefix, shown(path), ": ", what, " ", shorten(node.text, 64), " is out of range"),
            text::cat("use a number from ", least, " to ", most), text::cat(what, " out of range"));
      return false;
    }
    const bool quoted =
        node.kind == YamlNode::Kind::scalar && node.type == ScalarType::string && core_type(node.text) == ScalarType::integer;
    wrong(node, path, text::cat(what, " (an integer)"), quoted ? "remove the quotes" : "");
    return false;
  }
  void u32(const YamlNode& node, const std::string& path, std::string_view what, auto&& set) {
    std::int64_t value = 0;
    if (integer(node, path, 0, std::numeric_limits<std::uint32_t>::max(), what, value)) set(static_cast<std::uint32_t>(value));
  }
  void strings(const YamlNode& node, const std::string& path, auto& out) {
    each_element(node, path, [&](const YamlNode& item, const std::string& at) {
      std::string value;
      if (string(item, at, value)) out.Add(std::move(value));
    });
  }

  SourceMap& places_;
  Diagnostics& diagnostics_;
  ReaderWords words_;
};

}  // namespace openshell::policy
