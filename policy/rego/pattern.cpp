#include "policy/rego/pattern.hpp"

#include "policy/text.hpp"

namespace openshell::policy::rego {
namespace {

std::string describe(const re2::RE2& pattern) {
  std::string what = pattern.error();
  const std::string& where = pattern.error_arg();
  switch (pattern.error_code()) {
    case re2::RE2::ErrorMissingParen:
      what = "missing closing )";
      break;
    case re2::RE2::ErrorUnexpectedParen:
      what = "unexpected )";
      break;
    case re2::RE2::ErrorMissingBracket:
      what = "missing closing ]";
      break;
    case re2::RE2::ErrorBadEscape:
      what = "invalid escape sequence";
      break;
    case re2::RE2::ErrorTrailingBackslash:
      return "trailing backslash at end of expression: ``";
    case re2::RE2::ErrorRepeatArgument:
      what = "missing argument to repetition operator";
      break;
    case re2::RE2::ErrorRepeatOp:
      what = "invalid nested repetition operator";
      break;
    case re2::RE2::ErrorRepeatSize:
      what = "invalid repeat count";
      break;
    case re2::RE2::ErrorBadPerlOp:
      what = "invalid or unsupported Perl syntax";
      break;
    case re2::RE2::ErrorBadNamedCapture:
      what = "invalid named capture";
      break;
    case re2::RE2::ErrorBadUTF8:
      what = "invalid UTF-8";
      break;
    case re2::RE2::ErrorBadCharRange:
      what = "invalid character class range";
      break;
    default:
      break;
  }
  return text::cat(what, ": `", where, "`");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const re2::RE2>> compile_pattern(QueryContext& context, std::string_view text) {
  auto& kept = context.memory<absl::flat_hash_map<std::string, std::shared_ptr<const re2::RE2>>>("regex.patterns");
  const std::string key(text);
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  if (auto status = context.charge(1 + text.size() / 16); !status.ok()) return status;
  re2::RE2::Options options(re2::RE2::Quiet);
  options.set_max_mem(kPatternBytes);
  auto made = std::make_shared<const re2::RE2>(re2::StringPiece(key.data(), key.size()), options);
  if (!made->ok()) return absl::UnknownError(text::cat("error parsing regexp: ", describe(*made)));
  if (kept.size() >= kKeptPatterns) kept.clear();
  kept.emplace(key, made);
  return made;
}

}  // namespace openshell::policy::rego
