#include "policy/rego/value.hpp"

#include "policy/rego/number.hpp"
#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {

using openshell::policy::text::cat;
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Length of the UTF-8 sequence that begins at `at`, 0 where it is none.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(at + 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!tail(at + 1) || !tail(at + 2)) return 0;
    if ((first == 0xE0 && byte(at + 1) < 0xA0) || (first == 0xED && byte(at + 1) > 0x9F)) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!tail(at + 1) || !tail(at + 2) || !tail(at + 3)) return 0;
    if ((first == 0xF0 && byte(at + 1) < 0x90) || (first == 0xF4 && byte(at + 1) > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

void append_utf8(std::string& out, unsigned point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | (point >> 6));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | (point >> 12));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (point >> 18));
    out += static_cast<char>(0x80 | ((point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}

void append_escape(std::string& out, unsigned point) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(point >> shift) & 0xF];
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  absl::StatusOr<Value> whole() {
    auto value = read(0);
    if (!value.ok()) return value;
    skip_space();
    if (at_ != text_.size()) return wrong("more after the value");
    return value;
  }

 private:
  absl::Status wrong(std::string_view what) const { return absl::InvalidArgumentError(cat("JSON: ", what, " at byte ", at_)); }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view name) {
    if (!text_.substr(at_).starts_with(name)) return false;
    at_ += name.size();
    return true;
  }

  absl::StatusOr<Value> read(int depth) {
    skip_space();
    if (at_ >= text_.size()) return wrong("the text ends too early");
    if (depth > kMaxJsonNesting) return wrong("nested too deeply");
    switch (text_[at_]) {
      case '{':
        return read_object(depth);
      case '[':
        return read_array(depth);
      case '"': {
        std::string bytes;
        if (auto status = read_string(bytes); !status.ok()) return status;
        return Value::string(bytes);
      }
      case 't':
        if (word("true")) return Value::boolean(true);
        break;
      case 'f':
        if (word("false")) return Value::boolean(false);
        break;
      case 'n':
        if (word("null")) return Value::null();
        break;
      default:
        return read_number();
    }
    return wrong("an unknown word");
  }

  absl::StatusOr<Value> read_number() {
    const std::size_t start = at_;
    while (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  std::string_view("+-.eE").find(text_[at_]) != std::string_view::npos)) {
      ++at_;
    }
    Value number = Number::parse(text_.substr(start, at_ - start));
    if (number.is_defined()) return number;
    at_ = start;
    return wrong("an unexpected character or a broken number");
  }

  absl::StatusOr<Value> read_array(int depth) {
    ++at_;
    std::vector<Value> items;
    if (take(']')) return Value::array({});
    while (true) {
      auto item = read(depth + 1);
      if (!item.ok()) return item;
      items.push_back(*std::move(item));
      if (take(',')) continue;
      if (take(']')) return Value::array(std::move(items));
      return wrong("',' or ']' is missing");
    }
  }

  absl::StatusOr<Value> read_object(int depth) {
    ++at_;
    std::vector<Member> members;
    if (take('}')) return Value::sorted_object({});
    while (true) {
      skip_space();
      if (peek() != '"') return wrong("a key in quotes is missing");
      std::string key;
      if (auto status = read_string(key); !status.ok()) return status;
      if (!take(':')) return wrong("':' is missing");
      auto value = read(depth + 1);
      if (!value.ok()) return value;
      members.push_back({Value::string(key), *std::move(value)});
      if (take(',')) continue;
      if (take('}')) return Value::object(std::move(members));
      return wrong("',' or '}' is missing");
    }
  }

  absl::Status read_string(std::string& out) {
    ++at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return absl::OkStatus();
      }
      if (static_cast<unsigned char>(c) < 0x20) return wrong("a control character in a string");
      if (c == '\\') {
        if (auto status = read_escape(out); !status.ok()) return status;
        continue;
      }
      const std::size_t length = sequence_length(text_, at_);
      if (length == 0) {
        out += kReplacement;
        ++at_;
      } else {
        out.append(text_.substr(at_, length));
        at_ += length;
      }
    }
    return wrong("a string has no end");
  }

  std::optional<unsigned> hex4() const {
    if (at_ + 4 > text_.size()) return std::nullopt;
    unsigned point = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const char c = text_[at_ + i];
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
      point = point * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return point;
  }

  absl::Status read_escape(std::string& out) {
    ++at_;
    const char c = peek();
    ++at_;
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
    if (const auto i = kNames.find(c); i != std::string_view::npos) {
      out += kBytes[i];
      return absl::OkStatus();
    }
    if (c != 'u') return wrong("an unknown escape");
    const auto first = hex4();
    if (!first) return wrong("four hex digits are missing");
    at_ += 4;
    if (*first < 0xD800 || *first > 0xDFFF) {
      append_utf8(out, *first);
      return absl::OkStatus();
    }
    if (*first < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const auto second = hex4();
      if (second && *second >= 0xDC00 && *second <= 0xDFFF) {
        at_ += 4;
        append_utf8(out, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
        return absl::OkStatus();
      }
      at_ -= 2;
    }
    out += kReplacement;
    return absl::OkStatus();
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string key_text(const Value& key) {
  if (key.is_string()) return std::string(key.text());
  return to_json(key);
}

void append_json_object(std::string& out, const Value& value, bool html) {
  const auto members = value.members();
  const bool plain = std::all_of(members.begin(), members.end(), [](const Member& m) { return m.key.is_string(); });
  std::vector<std::pair<std::string, const Value*>> texts;
  if (!plain) {
    for (const auto& member : members) texts.emplace_back(key_text(member.key), &member.value);
    std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  out += '{';
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i != 0) out += ',';
    append_json_string(out, plain ? members[i].key.text() : std::string_view(texts[i].first), html);
    out += ':';
    append_json(out, plain ? members[i].value : *texts[i].second, html);
  }
  out += '}';
}

void append_list(std::string& out, std::span<const Value> items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += ", ";
    append_rego(out, items[i]);
  }
}

}  // namespace

absl::StatusOr<Value> parse_json(std::string_view text) { return Reader(text).whole(); }

void append_json_string(std::string& out, std::string_view bytes, bool html) {
  out += '"';
  for (std::size_t i = 0; i < bytes.size();) {
    const char c = bytes[i];
    if (static_cast<unsigned char>(c) < 0x80) {
      ++i;
      static constexpr std::string_view kNames = "\"\\bfnrt";
      static constexpr std::string_view kBytes = "\"\\\b\f\n\r\t";
      if (const auto at = kBytes.find(c); at != std::string_view::npos) {
        out += '\\';
        out += kNames[at];
      } else if (static_cast<unsigned char>(c) < 0x20 || (html && (c == '<' || c == '>' || c == '&'))) {
        append_escape(out, static_cast<unsigned char>(c));
      } else {
        out += c;
      }
      continue;
    }
    const std::size_t length = sequence_length(bytes, i);
    const auto sequence = bytes.substr(i, length == 0 ? 1 : length);
    if (length == 0) {
      out += html ? "\\ufffd" : kReplacement;
    } else if (sequence == "\xE2\x80\xA8" || sequence == "\xE2\x80\xA9") {
      append_escape(out, sequence.back() == '\xA8' ? 0x2028 : 0x2029);
    } else {
      out += sequence;
    }
    i += sequence.size();
  }
  out += '"';
}

void append_json(std::string& out, const Value& value, bool html) {
  switch (value.kind()) {
    case Kind::undefined:
      return;
    case Kind::null:
      out += "null";
      return;
    case Kind::boolean:
      out += value.is_true() ? "true" : "false";
      return;
    case Kind::number:
      out += number_text(value);
      return;
    case Kind::string:
      append_json_string(out, value.text(), html);
      return;
    case Kind::array:
    case Kind::set: {
      out += '[';
      bool first = true;
      for (const auto& item : value.items()) {
        if (!first) out += ',';
        first = false;
        append_json(out, item, html);
      }
      out += ']';
      return;
    }
    case Kind::object:
      append_json_object(out, value, html);
      return;
  }
}

std::string to_json(const Value& value, bool html) {
  std::string out;
  append_json(out, value, html);
  return out;
}

void append_rego(std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::array:
      out += '[';
      append_list(out, value.items());
      out += ']';
      return;
    case Kind::set:
      if (value.size() == 0) {
        out += "set()";
        return;
      }
      out += '{';
      append_list(out, value.items());
      out += '}';
      return;
    case Kind::object: {
      out += '{';
      bool first = true;
      for (const auto& member : value.members()) {
        if (!first) out += ", ";
        first = false;
        append_rego(out, member.key);
        out += ": ";
        append_rego(out, member.value);
      }
      out += '}';
      return;
    }
    default:
      append_json(out, value);
      return;
  }
}

std::string to_rego(const Value& value) {
  std::string out;
  append_rego(out, value);
  return out;
}

}  // namespace openshell::policy::rego
