#include "policy/parse.hpp"

#include "policy/decode.hpp"
#include "policy/validate.hpp"
#include "policy/yaml_tree.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {

ParseResult::ParseResult() = default;
ParseResult::ParseResult(ParseResult&&) noexcept = default;
ParseResult& ParseResult::operator=(ParseResult&&) noexcept = default;
ParseResult::~ParseResult() = default;

ParseResult parse_policy(std::string_view text, std::string_view file, const ParseLimits& limits) {
  ParseResult result;
  const auto root = read_yaml(text, limits, result.diagnostics);
  if (root != nullptr) {
    result.policy = std::make_unique<pb::SandboxPolicy>();
    decode_policy(*root, *result.policy, result.places, result.diagnostics);
  }
  result.diagnostics.locate(result.places, file);
  if (result.diagnostics.has_errors()) result.policy.reset();
  return result;
}

ParseResult load_policy(std::string_view text, std::string_view file, const ParseLimits& limits) {
  ParseResult result = parse_policy(text, file, limits);
  if (!result.ok()) return result;
  result.diagnostics.append(check_reserved_keys(*result.policy));
  result.diagnostics.append(validate(*result.policy));
  if (!result.diagnostics.has_errors()) {
    result.diagnostics.append(normalize(*result.policy, Provenance::clear));
    result.diagnostics.append(find_ambiguities(*result.policy));
  }
  result.diagnostics.locate(result.places, file);
  if (result.diagnostics.has_errors()) result.policy.reset();
  return result;
}

}  // namespace openshell::policy
