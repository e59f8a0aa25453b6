#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/pattern.hpp"

namespace openshell::policy::rego {
namespace {

/// Bytes of a pattern after it became a regular expression.
constexpr std::size_t kMostTranslated = 1U << 16U;
constexpr int kMostNesting = 32;

void append_literal(std::string& out, std::string_view character) {
  if (character.size() == 1 && std::string_view("\\.+*?()|[]{}^$-&~#").find(character[0]) != std::string_view::npos) out += '\\';
  if (character == std::string_view("\0", 1)) {
    out += "\\x00";
    return;
  }
  out += character;
}

/// A class of what is no delimiter; `.` where there are none.
std::string not_a_delimiter(const std::vector<std::string>& delimiters) {
  if (delimiters.empty()) return "(?s:.)";
  std::string out = "[^";
  for (const auto& delimiter : delimiters) append_literal(out, delimiter);
  return out + "]";
}

/// A pattern becomes a regular expression of the same meaning, whose match takes time linear in the text.
class Translator {
 public:
  Translator(std::string_view pattern, const std::vector<std::string>& delimiters) : pattern_(pattern), one_(not_a_delimiter(delimiters)) {}

  absl::StatusOr<std::string> translate() {
    if (auto status = sequence(0); !status.ok()) return status;
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ >= pattern_.size(); }
  std::string_view take() {
    const auto size = character_size(pattern_, at_);
    const auto character = pattern_.substr(at_, size);
    at_ += size;
    return character;
  }
  [[nodiscard]] absl::Status wrong(std::size_t at, std::string_view what) const {
    return failure("glob: syntax error at ", at, ": ", what);
  }

  absl::Status escaped() {
    ++at_;
    if (at_end()) return wrong(at_, "trailing backslash");
    append_literal(out_, take());
    return absl::OkStatus();
  }

  /// Until the end, or inside alternatives until the comma or brace that ends this one.
  absl::Status sequence(int depth) {
    while (!at_end()) {
      const char c = pattern_[at_];
      absl::Status status;
      if (depth > 0 && (c == ',' || c == '}')) return status;
      if (c == '*') {
        const auto begin = at_;
        while (!at_end() && pattern_[at_] == '*') ++at_;
        out_ += at_ - begin > 1 ? "(?s:.*)" : one_ + "*";
      } else if (c == '?') {
        ++at_;
        out_ += one_;
      } else if (c == '\\') {
        status = escaped();
      } else if (c == '[') {
        status = range();
      } else if (c == '{') {
        status = alternatives(depth + 1);
      } else {
        append_literal(out_, take());
      }
      if (!status.ok()) return status;
      if (out_.size() > kMostTranslated) return absl::ResourceExhaustedError("limit exceeded: elements");
    }
    return absl::OkStatus();
  }

  absl::Status alternatives(int depth) {
    const auto begin = at_;
    if (depth > kMostNesting) return wrong(begin, "alternatives nested too deeply");
    ++at_;
    out_ += "(?:";
    for (;;) {
      if (auto status = sequence(depth); !status.ok()) return status;
      if (at_end()) return wrong(pattern_.size(), "unclosed `{`");
      const bool last = pattern_[at_++] == '}';
      out_ += last ? ")" : "|";
      if (last) return absl::OkStatus();
    }
  }

  absl::Status range() {
    ++at_;
    std::string inside;
    const bool negated = !at_end() && pattern_[at_] == '!';
    if (negated) ++at_;
    std::vector<std::string_view> characters;
    bool is_range = false;
    while (!at_end() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        ++at_;
        if (at_end()) break;
      } else if (pattern_[at_] == '-' && characters.size() == 1) {
        is_range = true;
        ++at_;
        continue;
      }
      characters.push_back(take());
    }
    if (at_end()) return wrong(at_, "unexpected end of input");
    if (characters.empty() || (is_range && characters.size() != 2)) return wrong(at_ + 1, "could not parse range");
    if (is_range && characters[1] < characters[0])
      return wrong(at_, text::cat("hi character '", characters[1], "' should be greater than lo '", characters[0], "'"));
    ++at_;
    out_ += negated ? "[^" : "[";
    for (std::size_t i = 0; i < characters.size(); ++i) {
      if (is_range && i == 1) out_ += '-';
      append_literal(out_, characters[i]);
    }
    out_ += ']';
    return absl::OkStatus();
  }

  std::string_view pattern_;
  std::string one_;
  std::size_t at_ = 0;
  std::string out_;
};

absl::StatusOr<std::vector<std::string>> delimiters_of(const Value& value) {
  if (value.is_null()) return std::vector<std::string>{};
  if (!value.is_array()) return operand_error(2, "one of {array, null}", value);
  if (value.size() == 0) return std::vector<std::string>{"."};
  std::vector<std::string> out;
  for (const auto& item : value.items()) {
    if (!item.is_string() || item.text().empty() || character_size(item.text(), 0) != item.text().size()) {
      return misuse("operand 2 must be array of runes but got array containing ", kind_name(item.kind()));
    }
    out.emplace_back(item.text());
  }
  return out;
}

BuiltinResult match(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 2}); !status.ok()) return status;
  const auto delimiters = delimiters_of(a[1]);
  if (!delimiters.ok()) return delimiters.status();
  auto& kept = context.memory<absl::flat_hash_map<std::string, std::shared_ptr<const re2::RE2>>>("glob.patterns");
  std::string key;
  for (const auto& delimiter : *delimiters) key += delimiter;
  key += text::cat("\n", a[0].text());
  auto found = kept.find(key);
  if (found == kept.end()) {
    if (auto status = context.charge(1 + key.size() / 16); !status.ok()) return status;
    const auto translated = Translator(a[0].text(), *delimiters).translate();
    if (!translated.ok()) return translated.status();
    auto pattern = compile_pattern(context, *translated);
    if (!pattern.ok()) return pattern.status();
    if (kept.size() >= kKeptPatterns) kept.clear();
    found = kept.emplace(std::move(key), *std::move(pattern)).first;
  }
  return Value::boolean(re2::RE2::FullMatch(re2::StringPiece(a[2].text().data(), a[2].text().size()), *found->second));
}

BuiltinResult quote_meta(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  std::string out;
  for (const char c : a[0].text()) {
    if (std::string_view("*?\\[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return Value::string(out);
}

}  // namespace

const BuiltinTable& glob_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"glob.match", {string(), any_of({null(), array_of(string())}), string()}, boolean(), match},
      {"glob.quote_meta", {string()}, string(), quote_meta},
  };
  return table;
}

}  // namespace openshell::policy::rego
