// A question as a document, both ways: what `policy explain --input`, test files and decision records hold. Strict: an unknown member, a
// wrong type, a host with a NUL are errors that name the member. Pure, any thread. (NET-58)
//
//   {"network": {"host": "api.test", "port": 443}, "exec": {"path": "/usr/bin/curl", "ancestors": [], "cmdline_paths": []},
//    "request": {"method": "GET", "path": "/v1", "query_params": {"tag": ["a"]}}}
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>

#include "policy/decode_reader.hpp"
#include "policy/diagnostic.hpp"
#include "policy/matcher.hpp"
#include "policy/question.hpp"
#include "policy/yaml_tree.hpp"

namespace openshell::policy {

/// Queries, fields, operations and the like that one question has of a kind, at most.
inline constexpr std::size_t kMaxQuestionItems = 1'000;

/// Reads the document at `node`. False: `diagnostics` says why.
bool read_question(const YamlNode& node, const std::string& path, Question& out, SourceMap& places, Diagnostics& diagnostics);

/// A whole text, JSON or YAML. INVALID_ARGUMENT: one line a fault, `FILE:LINE:COL: invalid input: MEMBER: ...`.
absl::StatusOr<Question> parse_question(std::string_view text, std::string_view file = {});

/// Whether the values of query parameters and of body parameters are written as they are, or as `sha256:` and the hash of the value: so a
/// record of decisions keeps nothing that a request carried in them.
enum class Values : std::uint8_t { plain, hashed };

/// Appends one line of JSON, members in the order above; absent optional parts are left out. Bytes that are no UTF-8 become U+FFFD. No
/// allocation but that of `out`, and of the hashes.
void append_json(std::string& out, const Destination& destination, const Request* request, Values values);
[[nodiscard]] std::string to_json(const Question& question);

/// `text` as a JSON string, quotes included.
void append_json_text(std::string& out, std::string_view text);

/// How a value stands in a record.
[[nodiscard]] std::string hashed_value(std::string_view value);
[[nodiscard]] bool is_hashed_value(std::string_view value);

}  // namespace openshell::policy
