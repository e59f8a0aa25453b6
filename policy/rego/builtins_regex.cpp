#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/pattern.hpp"

namespace openshell::policy::rego {
namespace {

/// What a match found: [begin, end) per group, npos where a group took no part.
struct Span {
  std::size_t begin = std::string_view::npos;
  std::size_t end = std::string_view::npos;
  [[nodiscard]] bool took_part() const { return begin != std::string_view::npos; }
};
using Match = std::vector<Span>;

std::string_view part(std::string_view text, const Span& span) {
  return span.took_part() ? text.substr(span.begin, span.end - span.begin) : std::string_view{};
}

/// At most `most` matches (all, when negative) from left to right; an empty one beside the match before it does not count.
absl::StatusOr<std::vector<Match>> find_matches(QueryContext& context, const re2::RE2& pattern, std::string_view text, std::int64_t most) {
  std::vector<Match> found;
  const auto groups = static_cast<std::size_t>(pattern.NumberOfCapturingGroups()) + 1;
  std::vector<re2::StringPiece> pieces(groups);
  const re2::StringPiece input(text.data(), text.size());
  std::size_t last_end = std::string_view::npos;
  for (std::size_t at = 0; at <= text.size() && (most < 0 || found.size() < static_cast<std::size_t>(most));) {
    if (auto status = context.charge(1 + (text.size() - at) / 4096); !status.ok()) return status;
    if (!pattern.Match(input, at, text.size(), re2::RE2::UNANCHORED, pieces.data(), static_cast<int>(groups))) break;
    const auto begin = static_cast<std::size_t>(pieces[0].data() - text.data());
    const auto end = begin + pieces[0].size();
    const bool counts = end != begin || begin != last_end;
    if (end > at) {
      at = end;
    } else {
      at += at < text.size() ? character_size(text, at) : 1;
    }
    last_end = end;
    if (!counts) continue;
    Match match(groups);
    for (std::size_t i = 0; i < groups; ++i) {
      if (pieces[i].data() == nullptr) continue;
      match[i].begin = static_cast<std::size_t>(pieces[i].data() - text.data());
      match[i].end = match[i].begin + pieces[i].size();
    }
    found.push_back(std::move(match));
    if (auto status = context.room_for(found.size()); !status.ok()) return status;
  }
  return found;
}

BuiltinResult matches(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  const auto pattern = compile_pattern(context, a[0].text());
  if (!pattern.ok()) return pattern.status();
  if (auto status = context.charge(a[1].text().size() / 4096); !status.ok()) return status;
  return Value::boolean(re2::RE2::PartialMatch(re2::StringPiece(a[1].text().data(), a[1].text().size()), **pattern));
}

BuiltinResult is_valid(QueryContext& context, Arguments a) {
  return Value::boolean(a[0].is_string() && compile_pattern(context, a[0].text()).ok());
}

BuiltinResult split(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  const auto pattern = compile_pattern(context, a[0].text());
  if (!pattern.ok()) return pattern.status();
  const auto text = a[1].text();
  if (!a[0].text().empty() && text.empty()) return Value::array({Value::string("")});
  const auto found = find_matches(context, **pattern, text, -1);
  if (!found.ok()) return found.status();
  std::vector<Value> parts;
  std::size_t begin = 0;
  std::size_t end = 0;
  for (const auto& match : *found) {
    end = match[0].begin;
    if (match[0].end != 0) parts.push_back(Value::string(text.substr(begin, end - begin)));
    begin = match[0].end;
  }
  if (end != text.size()) parts.push_back(Value::string(text.substr(begin)));
  return Value::array(std::move(parts));
}

bool is_name_character(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// The name after a dollar sign, with how much of the text it takes; 0 where there is none.
std::size_t read_name(std::string_view text, std::string_view& name) {
  const bool braces = text.starts_with("{");
  std::size_t end = braces ? 1 : 0;
  while (end < text.size() && is_name_character(text[end])) ++end;
  name = text.substr(braces ? 1 : 0, end - (braces ? 1 : 0));
  if (name.empty()) return 0;
  if (!braces) return end;
  return end < text.size() && text[end] == '}' ? end + 1 : 0;
}

/// `$1`, `${1}`, `$name`, `${name}` stand for groups, `$$` for a dollar sign; a group that is not there is empty.
void expand(std::string& out, std::string_view form, std::string_view text, const Match& match, const re2::RE2& pattern) {
  while (!form.empty()) {
    const auto dollar = form.find('$');
    out += form.substr(0, dollar);
    if (dollar == std::string_view::npos) return;
    form.remove_prefix(dollar + 1);
    if (form.starts_with("$")) {
      out += '$';
      form.remove_prefix(1);
      continue;
    }
    std::string_view name;
    const auto size = read_name(form, name);
    if (size == 0) {
      out += '$';
      continue;
    }
    form.remove_prefix(size);
    const bool is_number =
        name.find_first_not_of("0123456789") == std::string_view::npos && name.size() < 9 && (name.size() == 1 || name[0] != '0');
    if (is_number) {
      const auto group = static_cast<std::size_t>(std::stoi(std::string(name)));
      if (group < match.size()) out += part(text, match[group]);
    } else if (const auto group = pattern.NamedCapturingGroups().find(std::string(name)); group != pattern.NamedCapturingGroups().end()) {
      out += part(text, match[static_cast<std::size_t>(group->second)]);
    }
  }
}

BuiltinResult replace(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1, 2}); !status.ok()) return status;
  const auto pattern = compile_pattern(context, a[1].text());
  if (!pattern.ok()) return pattern.status();
  const auto text = a[0].text();
  const auto found = find_matches(context, **pattern, text, -1);
  if (!found.ok()) return found.status();
  std::string out;
  std::size_t at = 0;
  for (const auto& match : *found) {
    out += text.substr(at, match[0].begin - at);
    expand(out, a[2].text(), text, match, **pattern);
    at = match[0].end;
    if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  }
  out += text.substr(at);
  return Value::string(out);
}

absl::StatusOr<std::vector<Match>> find_n(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  if (!a[2].is_number()) return operand_error(3, "number", a[2]);
  const auto most = a[2].as_integer();
  if (!most) return misuse("operand 3 must be integer number but got floating-point number");
  const auto pattern = compile_pattern(context, a[0].text());
  if (!pattern.ok()) return pattern.status();
  return find_matches(context, **pattern, a[1].text(), *most);
}

BuiltinResult find_texts(QueryContext& context, Arguments a) {
  const auto found = find_n(context, a);
  if (!found.ok()) return found.status();
  std::vector<Value> texts;
  for (const auto& match : *found) texts.push_back(Value::string(part(a[1].text(), match[0])));
  return Value::array(std::move(texts));
}

BuiltinResult find_groups(QueryContext& context, Arguments a) {
  const auto found = find_n(context, a);
  if (!found.ok()) return found.status();
  std::vector<Value> all;
  for (const auto& match : *found) {
    std::vector<Value> groups;
    for (const auto& span : match) groups.push_back(Value::string(part(a[1].text(), span)));
    all.push_back(Value::array(std::move(groups)));
  }
  return Value::array(std::move(all));
}

}  // namespace

const BuiltinTable& regex_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"re_match", {string(), string()}, boolean(), matches},
      {"regex.find_all_string_submatch_n", {string(), string(), number()}, array_of(array_of(string())), find_groups},
      {"regex.find_n", {string(), string(), number()}, array_of(string()), find_texts},
      {"regex.is_valid", {string()}, boolean(), is_valid},
      {"regex.match", {string(), string()}, boolean(), matches},
      {"regex.replace", {string(), string(), string()}, string(), replace},
      {"regex.split", {string(), string()}, array_of(string()), split},
  };
  return table;
}

}  // namespace openshell::policy::rego
