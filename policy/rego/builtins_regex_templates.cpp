#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/pattern.hpp"

namespace openshell::policy::rego {
namespace {

absl::StatusOr<char> delimiter(const Value& value, std::string_view which) {
  const auto text = value.text();
  if (text.size() == 1) return text[0];
  return failure(which, " delimiter has to be exactly one character long but is ", text.size(), " long");
}

/// Plain text around regular expressions between the delimiters.
absl::StatusOr<std::string> expression_of(std::string_view form, char start, char end, QueryContext& context) {
  const auto unbalanced = [&] { return failure("unbalanced braces in ", quoted(form)); };
  std::string out = "^";
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < form.size(); ++i) {
    if (form[i] == start && (start != end || depth == 0)) {
      if (depth++ == 0) {
        out += re2::RE2::QuoteMeta(re2::StringPiece(form.data() + begin, i - begin));
        begin = i + 1;
      }
    } else if (form[i] == end) {
      if (--depth < 0) return unbalanced();
      if (depth > 0) continue;
      const auto inner = form.substr(begin, i - begin);
      const auto alone = compile_pattern(context, text::cat("^", inner, "$"));
      if (!alone.ok()) return alone.status();
      out += text::cat("(", inner, ")");
      begin = i + 1;
    }
  }
  if (depth != 0) return unbalanced();
  out += re2::RE2::QuoteMeta(re2::StringPiece(form.data() + begin, form.size() - begin));
  return out + "$";
}

BuiltinResult template_match(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1, 2, 3}); !status.ok()) return status;
  const auto start = delimiter(a[2], "start");
  if (!start.ok()) return start.status();
  const auto end = delimiter(a[3], "end");
  if (!end.ok()) return end.status();
  const auto expression = expression_of(a[0].text(), *start, *end, context);
  if (!expression.ok()) return expression.status();
  const auto pattern = compile_pattern(context, *expression);
  if (!pattern.ok()) return pattern.status();
  return Value::boolean(re2::RE2::PartialMatch(re2::StringPiece(a[1].text().data(), a[1].text().size()), **pattern));
}

// Globs of characters, classes, dots and the repetitions + and *: whether two of them can match one same text that is not empty.

/// Characters as sorted ranges.
struct Characters {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
  bool any = false;
};

struct Token {
  Characters characters;
  char repeat = 0;  ///< 0, '*' or '+'.
};

std::uint32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  std::uint32_t out = lead & (0xFFU >> (character.size() + 1));
  for (const char byte : character.substr(1)) out = out << 6U | (static_cast<unsigned char>(byte) & 0x3FU);
  return out;
}

struct GlobReader {
  std::string_view text;
  std::size_t at = 0;

  [[nodiscard]] absl::Status invalid(std::size_t position, std::string_view why) const {
    return failure("input:", text, ", pos:", position, ", ", why, ": the input provided is invalid");
  }
  std::string_view take() {
    const auto size = character_size(text, at);
    at += size;
    return text.substr(at - size, size);
  }

  absl::StatusOr<Characters> set() {
    Characters out;
    for (;;) {
      if (at >= text.size()) return invalid(text.size(), "found [ without matching ]");
      if (text[at] == ']') break;
      if (text[at] == '\\' && ++at >= text.size()) return invalid(text.size(), "found \\ without a character");
      const auto low = code_point(take());
      if (at + 1 < text.size() && text[at] == '-' && text[at + 1] != ']') {
        ++at;
        const auto high = code_point(take());
        if (high < low) return invalid(at, "range is not ordered");
        out.ranges.emplace_back(low, high);
      } else {
        out.ranges.emplace_back(low, low);
      }
    }
    ++at;
    return out;
  }

  absl::StatusOr<std::vector<Token>> read() {
    std::vector<Token> out;
    while (at < text.size()) {
      Token token;
      const auto place = at;
      const char c = text[at];
      if (c == '.') {
        ++at;
        token.characters.any = true;
      } else if (c == '[') {
        ++at;
        auto characters = set();
        if (!characters.ok()) return characters.status();
        token.characters = *std::move(characters);
      } else if (c == ']') {
        return invalid(place, "found ] without matching [");
      } else if (c == '*' || c == '+') {
        return invalid(place, "repetition must be preceded by a character");
      } else {
        if (c == '\\' && ++at >= text.size()) return invalid(place, "found \\ without a character");
        const auto code = code_point(take());
        token.characters.ranges.emplace_back(code, code);
      }
      if (at < text.size() && (text[at] == '*' || text[at] == '+')) token.repeat = text[at++];
      out.push_back(std::move(token));
    }
    return out;
  }
};

bool overlap(const Characters& a, const Characters& b) {
  if (a.any || b.any) return a.any ? b.any || !b.ranges.empty() : !a.ranges.empty();
  for (const auto& one : a.ranges) {
    for (const auto& other : b.ranges) {
      if (one.first <= other.second && other.first <= one.second) return true;
    }
  }
  return false;
}

/// A state is a place in each of the two; a step reads one character that both admit.
struct Intersection {
  QueryContext& context;
  const std::vector<Token>& one;
  const std::vector<Token>& other;
  std::vector<std::uint8_t> seen;
  std::vector<std::pair<std::size_t, std::size_t>> queue;
  bool found = false;

  void add(std::size_t i, std::size_t j, bool read_something) {
    // Each place with each way not to have begun a repetition: `*` may be left out.
    const std::size_t index = (i * (other.size() + 1) + j) * 2 + (read_something ? 1 : 0);
    if (seen[index] != 0) return;
    seen[index] = 1;
    if (i == one.size() && j == other.size() && read_something) found = true;
    queue.emplace_back(i * 2 + (read_something ? 1 : 0), j);
    if (i < one.size() && one[i].repeat == '*') add(i + 1, j, read_something);
    if (j < other.size() && other[j].repeat == '*') add(i, j + 1, read_something);
  }

  absl::StatusOr<bool> run() {
    if (auto status = context.room_for((one.size() + 1) * (other.size() + 1)); !status.ok()) return status;
    seen.assign((one.size() + 1) * (other.size() + 1) * 2, 0);
    add(0, 0, false);
    while (!queue.empty() && !found) {
      if (auto status = context.charge(1); !status.ok()) return status;
      const auto [packed, j] = queue.back();
      queue.pop_back();
      const std::size_t i = packed / 2;
      if (i >= one.size() || j >= other.size() || !overlap(one[i].characters, other[j].characters)) continue;
      const bool stay_one = one[i].repeat != 0;
      const bool stay_other = other[j].repeat != 0;
      add(i + 1, j + 1, true);
      if (stay_one) add(i, j + 1, true);
      if (stay_other) add(i + 1, j, true);
      if (stay_one && stay_other) add(i, j, true);
    }
    return found;
  }
};

BuiltinResult globs_match(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  const auto one = GlobReader{a[0].text()}.read();
  if (!one.ok()) return one.status();
  const auto other = GlobReader{a[1].text()}.read();
  if (!other.ok()) return other.status();
  Intersection intersection{context, *one, *other, {}, {}};
  const auto found = intersection.run();
  if (!found.ok()) return found.status();
  return Value::boolean(*found);
}

}  // namespace

const BuiltinTable& regex_template_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"regex.globs_match", {string(), string()}, boolean(), globs_match},
      {"regex.template_match", {string(), string(), string(), string()}, boolean(), template_match},
  };
  return table;
}

}  // namespace openshell::policy::rego
