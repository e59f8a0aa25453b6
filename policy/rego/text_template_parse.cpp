#include "policy/rego/operands.hpp"
#include "policy/rego/text_template.hpp"

#include <algorithm>

namespace openshell::policy::rego::text_template {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kNameEnds = " \t\r\n|()\"`,=:.$";

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<Node>> all() {
    std::vector<Node> nodes;
    std::string end;
    if (auto status = list(nodes, end, 0); !status.ok()) return status;
    if (!end.empty()) return wrong("unexpected {{", end, "}}");
    return nodes;
  }

 private:
  template <class... Parts>
  [[nodiscard]] absl::Status wrong(const Parts&... parts) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    return failure("template: template:", line, ": ", parts...);
  }

  /// Text and actions up to the end, or up to `else` or `end`, whose action is then in `end`.
  absl::Status list(std::vector<Node>& nodes, std::string& end, int depth) {
    if (depth > kMaxNesting) return wrong("nested too deeply");
    while (at_ < text_.size()) {
      const auto open = text_.find("{{", at_);
      std::string_view plain = text_.substr(at_, open == std::string_view::npos ? open : open - at_);
      if (trim_next_) plain.remove_prefix(std::min(plain.find_first_not_of(kSpaces), plain.size()));
      trim_next_ = false;
      const bool trims = open != std::string_view::npos && text_.substr(open + 2).starts_with("- ");
      if (trims) plain = plain.substr(0, plain.find_last_not_of(kSpaces) + 1);
      if (!plain.empty()) nodes.push_back({Node::Form::text, std::string(plain), {}, {}, {}});
      if (open == std::string_view::npos) {
        at_ = text_.size();
        return absl::OkStatus();
      }
      at_ = open + (trims ? 3 : 2);
      std::string action;
      if (auto status = action_text(action); !status.ok()) return status;
      bool ends = false;
      if (auto status = this->action(action, nodes, ends, depth); !status.ok()) return status;
      if (ends) {
        end = action;
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  absl::Status action_text(std::string& out) {
    std::size_t i = at_;
    const auto comment = text_.find_first_not_of(kSpaces, i);
    if (comment != std::string_view::npos && text_.substr(comment).starts_with("/*")) {
      const auto close = text_.find("*/", comment);
      if (close == std::string_view::npos) return wrong("unclosed comment");
      i = close + 2;
      at_ = i;
    }
    for (char quote = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (quote != 0) {
        if (c == '\\' && quote == '"') ++i;
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '`') {
        quote = c;
      } else if (text_.substr(i).starts_with("}}")) {
        std::string_view inside = text_.substr(at_, i - at_);
        trim_next_ = inside.ends_with(" -");
        if (trim_next_) inside.remove_suffix(1);
        const auto first = std::min(inside.find_first_not_of(kSpaces), inside.size());
        out = std::string(inside.substr(first, inside.find_last_not_of(kSpaces) + 1 - first));
        is_comment_ = comment != std::string_view::npos && comment < at_;
        at_ = i + 2;
        return absl::OkStatus();
      }
    }
    return wrong("unclosed action");
  }

  absl::Status action(const std::string& text, std::vector<Node>& nodes, bool& ends, int depth) {
    if (text.empty()) return is_comment_ ? absl::OkStatus() : wrong("missing value for command");
    const std::string word = text.substr(0, text.find_first_of(" \t\r\n"));
    const std::string rest = text.substr(word.size());
    ends = word == "end" || word == "else";
    if (ends) return absl::OkStatus();
    if (word == "define" || word == "template" || word == "block" || word == "break" || word == "continue") {
      return wrong("{{", word, "}} is not supported");
    }
    Node node;
    node.form = word == "if"      ? Node::Form::choice
                : word == "range" ? Node::Form::loop
                : word == "with"  ? Node::Form::scope
                                  : Node::Form::output;
    const bool block = node.form != Node::Form::output;
    if (auto status = whole_pipeline(block ? rest : text, node.pipeline); !status.ok()) return status;
    if (block) {
      if (auto status = branches(node, word, depth); !status.ok()) return status;
    }
    nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status branches(Node& node, const std::string& word, int depth) {
    std::string end;
    if (auto status = list(node.body, end, depth + 1); !status.ok()) return status;
    if (end.starts_with("else") && end != "else") {
      // `else if`: the rest is a branch of its own, which ends where this one does.
      bool ends = false;
      const auto begin = end.find_first_not_of(kSpaces, 4);
      return begin == std::string::npos || end.substr(begin).starts_with("end")
                 ? wrong("unexpected {{", end, "}}")
                 : action(end.substr(begin), node.otherwise, ends, depth + 1);
    }
    if (end == "else") {
      end.clear();
      if (auto status = list(node.otherwise, end, depth + 1); !status.ok()) return status;
    }
    return end == "end" ? absl::OkStatus() : wrong("unexpected EOF: {{", word, "}} has no {{end}}");
  }

  absl::Status whole_pipeline(std::string_view text, Pipeline& out) {
    std::string_view rest = text;
    if (auto status = pipeline(rest, out, 0); !status.ok()) return status;
    return rest.empty() ? absl::OkStatus() : wrong("unexpected ", quoted(rest), " in command");
  }

  static void skip(std::string_view& rest) { rest.remove_prefix(std::min(rest.find_first_not_of(kSpaces), rest.size())); }

  /// `$x :=`, `$i, $x :=`, `$x =`.
  static void variables(std::string_view& rest, Pipeline& out) {
    std::string_view look = rest;
    std::vector<std::string> names;
    while (look.starts_with("$")) {
      const auto size = std::min(look.find_first_of(kNameEnds, 1), look.size());
      names.emplace_back(look.substr(0, size));
      look.remove_prefix(size);
      skip(look);
      if (!look.starts_with(",")) break;
      look.remove_prefix(1);
      skip(look);
    }
    const bool declares = look.starts_with(":=");
    if (names.empty() || (!declares && !look.starts_with("="))) return;
    look.remove_prefix(declares ? 2 : 1);
    out.variables = std::move(names);
    out.declares = declares;
    rest = look;
  }

  absl::Status pipeline(std::string_view& rest, Pipeline& out, int depth) {
    if (depth > kMaxNesting) return wrong("nested too deeply");
    skip(rest);
    variables(rest, out);
    Command command;
    for (skip(rest);; skip(rest)) {
      const bool end = rest.empty() || rest.front() == ')';
      if (end || rest.front() == '|') {
        if (command.empty()) return wrong("missing value for command");
        out.commands.push_back(std::move(command));
        command = {};
        if (end) return absl::OkStatus();
        rest.remove_prefix(1);
        continue;
      }
      Operand operand;
      if (auto status = read(rest, operand, depth); !status.ok()) return status;
      command.push_back(std::move(operand));
    }
  }

  absl::Status read(std::string_view& rest, Operand& out, int depth) {
    const char c = rest.front();
    if (c == '(') {
      rest.remove_prefix(1);
      auto inner = std::make_shared<Pipeline>();
      if (auto status = pipeline(rest, *inner, depth + 1); !status.ok()) return status;
      if (!rest.starts_with(")")) return wrong("unclosed left paren");
      rest.remove_prefix(1);
      out.form = Operand::Form::inner;
      out.inner = std::move(inner);
      return fields(rest, out);
    }
    if (c == '"' || c == '`') return text(rest, out);
    if (c == '.' || c == '$') {
      out.form = Operand::Form::place;
      if (c == '$') {
        const auto size = std::min(rest.find_first_of(kNameEnds, 1), rest.size());
        out.name = std::string(rest.substr(0, size));
        rest.remove_prefix(size);
      } else if (rest.size() == 1 || kNameEnds.find(rest[1]) != std::string_view::npos) {
        rest.remove_prefix(1);
        return absl::OkStatus();
      }
      return fields(rest, out);
    }
    const auto end = std::min(rest.find_first_of(" \t\r\n|()"), rest.size());
    const std::string name(rest.substr(0, end));
    rest.remove_prefix(end);
    return word(name, out);
  }

  absl::Status fields(std::string_view& rest, Operand& out) {
    while (rest.starts_with(".")) {
      const auto size = std::min(rest.find_first_of(kNameEnds, 1), rest.size()) - 1;
      if (size == 0) return wrong("unexpected <.> in operand");
      out.fields.emplace_back(rest.substr(1, size));
      rest.remove_prefix(size + 1);
    }
    return absl::OkStatus();
  }

  absl::Status text(std::string_view& rest, Operand& out) {
    const char quote = rest.front();
    std::size_t end = 1;
    while (end < rest.size() && rest[end] != quote) end += quote == '"' && rest[end] == '\\' ? 2 : 1;
    if (end >= rest.size()) return wrong("unterminated quoted string");
    const auto whole = rest.substr(0, end + 1);
    rest.remove_prefix(end + 1);
    if (quote == '`') {
      out.literal = Value::string(whole.substr(1, whole.size() - 2));
      return absl::OkStatus();
    }
    auto parsed = parse_json(whole);
    if (!parsed.ok()) return wrong("invalid syntax");
    out.literal = *parsed;
    return absl::OkStatus();
  }

  absl::Status word(const std::string& name, Operand& out) {
    if (name == "true" || name == "false") {
      out.literal = Value::boolean(name == "true");
    } else if (name == "nil") {
      out.literal = Value::null();
    } else if (!name.empty() && (name[0] == '-' || (name[0] >= '0' && name[0] <= '9'))) {
      out.literal = Value::number(name);
      if (!out.literal.is_defined()) return wrong("bad number syntax: ", quoted(name));
    } else {
      static constexpr std::string_view kFunctions = " and or not eq ne lt le gt ge len index slice print printf println html js urlquery ";
      if (name.empty() || kFunctions.find(text::cat(" ", name, " ")) == std::string_view::npos)
        return wrong("function ", quoted(name), " not defined");
      out.form = Operand::Form::function;
      out.name = name;
    }
    return absl::OkStatus();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool trim_next_ = false;
  bool is_comment_ = false;
};

}  // namespace

absl::StatusOr<std::vector<Node>> parse(std::string_view text) { return Parser(text).all(); }

}  // namespace openshell::policy::rego::text_template
