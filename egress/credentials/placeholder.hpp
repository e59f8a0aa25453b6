// Placeholders: the texts that stand for credentials inside a sandbox (CR rows). Syntax only, no secret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::egress {

inline constexpr std::string_view kPlaceholderMarker = "openshell:resolve:env:";
inline constexpr std::string_view kAliasMarker = "OPENSHELL-RESOLVE-ENV-";
inline constexpr std::string_view kRedacted = "[CREDENTIAL]";

struct Placeholder {
  enum class Form : std::uint8_t { kCanonical, kRevision, kStable };
  Form form = Form::kCanonical;
  bool alias = false;  ///< written by a user in the shape a client library demands
  std::string key;
  std::uint64_t revision = 0;  ///< kRevision
  std::string handle;          ///< kStable: 64 lower-case hex digits
  std::size_t begin = 0;       ///< in the text it was found in
  std::size_t length = 0;
};

/// The text is exactly one placeholder.
std::optional<Placeholder> parse_placeholder(std::string_view text);

/// All placeholders of a text in order. nullopt: a marker stands there that begins no well-formed placeholder.
std::optional<std::vector<Placeholder>> find_placeholders(std::string_view text);

/// Those that are well-formed; what only looks like one is left out. For texts in which nothing has to be a placeholder.
std::vector<Placeholder> well_formed_placeholders(std::string_view text);

/// A reserved marker, raw or after one percent-decoding. Well-formed or not.
bool has_marker(std::string_view text);

/// `text` with every placeholder replaced by kRedacted. nullopt: malformed placeholder syntax.
std::optional<std::string> redact_placeholders(std::string_view text);

/// Environment names that would read as a revision or stable placeholder: `v<digits>_<key>`, `s<64 hex>_<key>`.
bool is_reserved_key(std::string_view key);

std::string canonical_placeholder(std::string_view key);
std::string revision_placeholder(std::uint64_t revision, std::string_view key);  ///< canonical for revision 0
std::string stable_placeholder(std::string_view handle, std::string_view key);

}  // namespace openshell::egress
