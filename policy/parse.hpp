// Reads an authored policy (YAML 1.2 core schema, and JSON, which is a part of it) strictly: unknown keys, wrong types, tags, null,
// duplicate and non-string keys are errors with their line. One parser serves the command line, the gateway, image policies and local
// files. Pure functions, any thread. (CA-99)
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "policy/diagnostic.hpp"
#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// Bounds of the reader. A text beyond one of them is refused where the bound is crossed.
struct ParseLimits {
  std::size_t bytes = 4'194'304;         ///< Size of the text.
  std::size_t scalar_bytes = 4'194'304;  ///< Scalar text in total, aliases expanded.
  std::size_t depth = 64;                ///< Nested collections.
  std::size_t events = 300'000;          ///< Parser events.
  std::size_t nodes = 100'000;           ///< Nodes, aliases expanded.
  std::size_t keys = 10'000;             ///< Keys of one mapping.
  std::size_t elements = 10'000;         ///< Elements of one sequence.
  std::size_t aliases = 100;             ///< Uses of aliases.
  std::size_t alias_ratio = 5;           ///< Aliases at most so many times the anchors.
};

/// What a reading gave. `policy` is null where the text had errors.
struct ParseResult {
  ParseResult();
  ParseResult(ParseResult&&) noexcept;
  ParseResult& operator=(ParseResult&&) noexcept;
  ~ParseResult();

  std::unique_ptr<pb::SandboxPolicy> policy;
  Diagnostics diagnostics;
  SourceMap places;

  [[nodiscard]] bool ok() const noexcept { return policy != nullptr && !diagnostics.has_errors(); }
};

/// Syntax and schema only: the policy comes back as written (`port` beside no `ports`, names not filled in), for tools that look at the
/// text. `file` names the text in messages; `<policy>` where it is empty.
[[nodiscard]] ParseResult parse_policy(std::string_view text, std::string_view file = {}, const ParseLimits& limits = {});

/// The whole way of an authored policy: parse, all checks of validate.hpp, ambiguity, normalise. `policy` is canonical when ok().
/// What `openshell policy set`, image discovery and the quickstart call.
[[nodiscard]] ParseResult load_policy(std::string_view text, std::string_view file = {}, const ParseLimits& limits = {});

}  // namespace openshell::policy
