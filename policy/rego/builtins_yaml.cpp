#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/number.hpp"
#include "policy/rego/operands.hpp"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/emitterstyle.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <sstream>

namespace openshell::policy::rego {
namespace {

constexpr std::size_t kMostNesting = 128;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool all_of(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

BigInteger whole(std::string_view digits, unsigned base) {
  BigInteger out = 0;
  for (const char c : digits) {
    if (c != '_') out = out * base + hex_digit(c);
  }
  return out;
}

/// A number as YAML 1.1 and 1.2 write it; undefined where the text is none. `infinite`: it is one that JSON can not hold.
Value number_of(std::string_view text, bool& infinite) {
  const std::string_view sign = text.starts_with('-') || text.starts_with('+') ? text.substr(0, 1) : std::string_view{};
  std::string_view rest = text.substr(sign.size());
  const bool minus = sign == "-";
  if (is_one_of(text::lower(rest), {".inf"}) || (sign.empty() && is_one_of(rest, {".nan", ".NaN", ".NAN"}))) {
    infinite = true;
    return Value::null();
  }
  const auto signed_number = [&](std::string_view digits, unsigned base) {
    return Number::from(minus ? -whole(digits, base) : whole(digits, base));
  };
  if (rest.size() > 128) return {};
  if (rest.starts_with("0x") && all_of(rest.substr(2), "0123456789abcdefABCDEF_")) return signed_number(rest.substr(2), 16);
  if (rest.starts_with("0b") && all_of(rest.substr(2), "01_")) return signed_number(rest.substr(2), 2);
  if (rest.starts_with("0o") && all_of(rest.substr(2), "01234567_")) return signed_number(rest.substr(2), 8);
  if (rest.size() > 1 && rest[0] == '0' && all_of(rest, "01234567_")) return signed_number(rest, 8);
  if (rest.empty() || rest[0] == '_' || rest.find_first_not_of("0123456789_.eE+-") != std::string_view::npos) return {};
  std::string plain;
  for (const char c : rest) {
    if (c != '_') plain += c;
  }
  if (plain.starts_with('.')) plain = text::cat("0", plain);
  const auto exponent = plain.find_first_of("eE");
  const auto point = plain.find('.');
  if (point != std::string::npos && (point + 1 == plain.size() || point + 1 == exponent)) plain.erase(point, 1);
  std::size_t zeros = 0;
  while (zeros + 1 < plain.size() && plain[zeros] == '0' && hex_digit(plain[zeros + 1]) >= 0 && hex_digit(plain[zeros + 1]) < 10) ++zeros;
  plain.erase(0, zeros);
  const Value value = Value::number(text::cat(minus ? "-" : "", plain));
  if (!value.is_defined()) return {};
  if (const auto integer = big_integer(value)) return Number::from(*integer);
  return Number::from(static_cast<long double>(static_cast<double>(approximate(value))));
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(QueryContext& context) : context_(context) {}
  Value root = Value::null();
  absl::Status status;

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t anchor) override { place(Value::null(), anchor); }
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) return fail("yaml: anchor contains itself");
    charge(1 + weight(found->second));
    place(found->second, 0);
  }
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    place(tag == "?" || tag.empty() ? plain(text) : tagged(tag, text), anchor, tag == "?" && text == "<<");
  }
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(false, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(true, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    bool map = false;
    YAML::anchor_t anchor = 0;
    std::vector<Value> items;
    std::vector<Member> members;
    std::vector<Member> merged;  ///< By `<<`: what the mapping has itself wins.
    std::optional<Value> key;
    bool merge = false;
  };

  void fail(std::string_view why) {
    if (status.ok()) status = failure(why);
  }
  void charge(std::uint64_t steps) {
    if (auto spent = context_.charge(steps); !spent.ok() && status.ok()) status = spent;
  }
  static std::uint64_t weight(const Value& value) { return value.size(); }

  Value plain(const std::string& text) {
    if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return Value::null();
    if (is_one_of(text, {"true", "True", "TRUE"})) return Value::boolean(true);
    if (is_one_of(text, {"false", "False", "FALSE"})) return Value::boolean(false);
    bool infinite = false;
    Value number = number_of(text, infinite);
    if (infinite) fail("json: unsupported value: an infinity or NaN");
    return number.is_defined() ? number : Value::string(text);
  }
  Value tagged(const std::string& tag, const std::string& text) {
    if (tag == "tag:yaml.org,2002:int" || tag == "tag:yaml.org,2002:float" || tag == "tag:yaml.org,2002:bool" ||
        tag == "tag:yaml.org,2002:null") {
      return plain(text);
    }
    return Value::string(text);
  }

  void open(bool map, YAML::anchor_t anchor) {
    charge(1);
    if (levels_.size() >= kMostNesting) fail("yaml: exceeded max depth");
    Level level;
    level.map = map;
    level.anchor = anchor;
    levels_.push_back(std::move(level));
  }
  void close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    if (!level.map) return place(Value::array(std::move(level.items)), level.anchor);
    level.merged.insert(level.merged.end(), std::make_move_iterator(level.members.begin()), std::make_move_iterator(level.members.end()));
    place(Value::object(std::move(level.merged)), level.anchor);
  }

  /// Keys become text, as they are in JSON.
  std::optional<Value> key_of(const Value& value) {
    if (value.is_string()) return value;
    if (value.is_boolean()) return Value::string(value.is_true() ? "true" : "false");
    if (value.is_number()) return Value::string(number_text(value));
    if (value.is_null()) return Value::string("null");
    fail("yaml: invalid map key");
    return std::nullopt;
  }

  void place(Value value, YAML::anchor_t anchor, bool merge = false) {
    charge(1);
    if (anchor != 0) anchors_[anchor] = value;
    if (!status.ok()) return;
    if (levels_.empty()) {
      root = std::move(value);
      return;
    }
    Level& level = levels_.back();
    if (auto room = context_.room_for(level.items.size() + level.members.size()); !room.ok()) status = room;
    if (!level.map) {
      level.items.push_back(std::move(value));
    } else if (!level.key && !level.merge) {
      if (merge) {
        level.merge = true;
      } else {
        level.key = key_of(value);
      }
    } else if (level.merge) {
      level.merge = false;
      take_in(level, value);
    } else {
      level.members.push_back({*std::exchange(level.key, std::nullopt), std::move(value)});
    }
  }

  /// Of several mappings the first one wins, hence in reverse.
  void take_in(Level& level, const Value& value) {
    if (value.is_object()) {
      level.merged.insert(level.merged.end(), value.members().begin(), value.members().end());
      return;
    }
    const auto items = value.items();
    if (!value.is_array()) return fail("yaml: map merge requires map or sequence of maps as the value");
    for (auto item = items.rbegin(); item != items.rend(); ++item) {
      if (!item->is_object()) return fail("yaml: map merge requires map or sequence of maps as the value");
      level.merged.insert(level.merged.end(), item->members().begin(), item->members().end());
    }
  }

  QueryContext& context_;
  std::vector<Level> levels_;
  std::map<YAML::anchor_t, Value> anchors_;
};

BuiltinResult read(QueryContext& context, std::string_view text) {
  if (auto status = context.charge(text.size() / 64); !status.ok()) return status;
  TreeBuilder builder(context);
  try {
    std::istringstream input{std::string(text)};
    YAML::Parser parser(input);
    parser.HandleNextDocument(builder);
  } catch (const YAML::Exception& error) {
    return failure("yaml: line ", error.mark.line + 1, ": ", error.msg);
  }
  if (!builder.status.ok()) return builder.status;
  return builder.root;
}

BuiltinResult unmarshal(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  return read(context, a[0].text());
}

BuiltinResult is_valid(QueryContext& context, Arguments a) { return Value::boolean(a[0].is_string() && read(context, a[0].text()).ok()); }

// Writing: keys in order, two blanks a level, sequences indented below their key.

/// Whether the text would be read as something else when written plainly.
bool needs_quotes(std::string_view text) {
  bool infinite = false;
  if (is_one_of(text, {"", "~", "null", "Null", "NULL", "<<", "="})) return true;
  if (is_one_of(text, {"true", "True", "TRUE", "false", "False", "FALSE", "yes", "Yes", "YES", "no", "No",
                       "NO",   "on",   "On",   "ON",    "off",   "Off",   "OFF", "y",   "Y",   "n",  "N"})) {
    return true;
  }
  return number_of(text, infinite).is_defined();
}

/// A date, a time, or a number in sixties, which older readers take for one.
bool looks_like_date(std::string_view text) {
  if (text.size() >= 8 && hex_digit(text[0]) >= 0 && all_of(text.substr(0, 4), "0123456789") && text[4] == '-' &&
      text.find_first_not_of("0123456789-:.TtZz +") == std::string_view::npos) {
    return true;
  }
  return text.find(':') != std::string_view::npos && all_of(text, "0123456789:_.") && text.find(':') != 0;
}

/// Characters at which plain text would end or begin something else.
bool is_plain(std::string_view text) {
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (std::string_view(",[]{}#&*!|>'\"%@`").find(text.front()) != std::string_view::npos) return false;
  if (std::string_view("-?:").find(text.front()) != std::string_view::npos && (text.size() == 1 || text[1] == ' ')) return false;
  if (text.starts_with("---") || text.starts_with("...")) return false;
  return text.find(": ") == std::string_view::npos && text.find(" #") == std::string_view::npos;
}

bool has_control(std::string_view text) {
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) return true;
  }
  return false;
}

std::string double_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\0':
        out += "\\0";
        break;
      case '\a':
        out += "\\a";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\x1b':
        out += "\\e";
        break;
      case '\v':
        out += "\\v";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          out += text::cat("\\x", [&] {
            std::string digits = hex_text({&c, 1});
            for (char& digit : digits) digit = static_cast<char>(std::toupper(static_cast<unsigned char>(digit)));
            return digits;
          }());
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

class Writer {
 public:
  std::string out;

  void write(const Value& value, std::size_t depth, bool after_key) {
    switch (value.kind()) {
      case Kind::object:
        return object(value, depth, after_key);
      case Kind::array:
      case Kind::set:
        return list(value, depth, after_key);
      case Kind::string:
        return string(value.text(), depth, after_key ? " " : "");
      case Kind::number:
        out += text::cat(after_key ? " " : "", tidy(value), "\n");
        return;
      default:
        out += text::cat(after_key ? " " : "", to_json(value), "\n");
    }
  }

 private:
  /// 1.0 is written as 1.
  static std::string tidy(const Value& number) {
    const auto integer = big_integer(number);
    return number_text(integer ? Number::from(*integer) : number);
  }
  void indent(std::size_t depth) { out.append(2 * depth, ' '); }

  void string(std::string_view text, std::size_t depth, std::string_view before) {
    out += before;
    if (text.find('\n') != std::string_view::npos && !has_control(text) && text.find_first_not_of("\n ") != std::string_view::npos) {
      return block(text, depth);
    }
    out += scalar(text);
    out += '\n';
  }

  static std::string scalar(std::string_view text) {
    if (needs_quotes(text) || looks_like_date(text) || has_control(text) || text.find('\n') != std::string_view::npos)
      return double_quoted(text);
    return is_plain(text) ? std::string(text) : single_quoted(text);
  }

  void block(std::string_view text, std::size_t depth) {
    out += '|';
    if (text.front() == ' ' || text.front() == '\n') out += '2';
    const bool ends = text.back() == '\n';
    if (!ends) {
      out += '-';
    } else if (text.ends_with("\n\n")) {
      out += '+';
    }
    out += '\n';
    if (ends) text.remove_suffix(1);
    for (const auto line : split_at(text, '\n')) {
      if (!line.empty()) indent(std::max<std::size_t>(depth, 1));
      out += line;
      out += '\n';
    }
  }

  void object(const Value& value, std::size_t depth, bool after_key) {
    if (value.size() == 0) {
      out += after_key ? " {}\n" : "{}\n";
      return;
    }
    bool first = !after_key;
    if (after_key) out += '\n';
    for (const auto& member : value.members()) {
      if (!first) indent(depth);
      first = false;
      out += text::cat(scalar(member.key.is_string() ? std::string(member.key.text()) : to_json(member.key)), ":");
      write(member.value, depth + 1, true);
    }
  }

  void list(const Value& value, std::size_t depth, bool after_key) {
    if (value.size() == 0) {
      out += after_key ? " []\n" : "[]\n";
      return;
    }
    bool first = !after_key;
    if (after_key) out += '\n';
    for (const auto& item : value.items()) {
      if (!first) indent(depth);
      first = false;
      out += "- ";
      write(item, depth + 1, false);
    }
  }
};

BuiltinResult marshal(QueryContext& context, Arguments a) {
  if (auto status = charge_whole(context, a[0]); !status.ok()) return status;
  // Through JSON: sets become arrays, keys become text.
  const auto plain = parse_json(to_json(a[0]));
  if (!plain.ok()) return plain.status();
  Writer writer;
  writer.write(*plain, 0, false);
  if (auto status = context.charge(writer.out.size() / 64); !status.ok()) return status;
  if (auto status = context.room_for_text(writer.out.size()); !status.ok()) return status;
  return Value::string(writer.out);
}

}  // namespace

const BuiltinTable& yaml_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"yaml.is_valid", {string()}, boolean(), is_valid},
      {"yaml.marshal", {any()}, string(), marshal},
      {"yaml.unmarshal", {string()}, any(), unmarshal},
  };
  return table;
}

}  // namespace openshell::policy::rego
