#include "policy/content/json.hpp"

#include "policy/utf8.hpp"

namespace openshell::policy {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | code >> 6U);
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | code >> 12U);
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | code >> 18U);
    put(0x80U | (code >> 12U & 0x3FU));
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
}

}  // namespace

bool JsonReader::Keys::add(const std::string& key) {
  if (key.size() > kMaxJsonKeyBytes || seen_.size() >= kMaxJsonKeys || reader_.open_keys_ >= kMaxJsonOpenKeys)
    return reader_.fail("JSON object has too many keys");
  if (!seen_.insert(key).second) return reader_.fail("duplicate key in JSON object");
  ++reader_.open_keys_;
  return true;
}

void JsonReader::white_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
}

JsonKind JsonReader::peek() {
  if (!error_.empty()) return JsonKind::none;
  white_space();
  switch (next()) {
    case '{':
      return JsonKind::object;
    case '[':
      return JsonKind::array;
    case '"':
      return JsonKind::string;
    case 't':
    case 'f':
      return JsonKind::boolean;
    case 'n':
      return JsonKind::null;
    default:
      return next() == '-' || is_digit(next()) ? JsonKind::number : JsonKind::none;
  }
}

bool JsonReader::open(char bracket) {
  if (!error_.empty()) return false;
  white_space();
  if (next() != bracket) return fail("invalid JSON");
  if (++depth_ > kMaxJsonDepth) return fail("JSON is nested too deeply");
  ++at_;
  return true;
}

bool JsonReader::close() {
  ++at_;
  --depth_;
  return error_.empty();
}

bool JsonReader::closes(char bracket) {
  white_space();
  return error_.empty() && next() == bracket;
}

bool JsonReader::comma() {
  white_space();
  if (!error_.empty() || next() != ',') return false;
  ++at_;
  return true;
}

bool JsonReader::colon() {
  white_space();
  if (next() != ':') return fail("invalid JSON");
  ++at_;
  return true;
}

bool JsonReader::read_key(std::string& out) {
  white_space();
  return read_string(&out);
}

bool JsonReader::string(std::string& out) {
  if (peek() != JsonKind::string) return fail("invalid JSON");
  return read_string(&out);
}

bool JsonReader::skip() {
  switch (peek()) {
    case JsonKind::object:
      return object([this](std::string_view) { return skip(); });
    case JsonKind::array:
      return array([this] { return skip(); });
    case JsonKind::string:
      return read_string(nullptr);
    case JsonKind::number:
      return number();
    case JsonKind::boolean:
      return word(next() == 't' ? "true" : "false");
    case JsonKind::null:
      return word("null");
    case JsonKind::none:
      break;
  }
  return fail("invalid JSON");
}

bool JsonReader::raw(std::string_view& out) {
  white_space();
  const auto begin = at_;
  if (!skip()) return false;
  out = text_.substr(begin, at_ - begin);
  return true;
}

bool JsonReader::finish() {
  white_space();
  return error_.empty() && (at_ == text_.size() || fail("invalid JSON"));
}

bool JsonReader::word(std::string_view expected) {
  if (!text_.substr(at_).starts_with(expected)) return fail("invalid JSON");
  at_ += expected.size();
  return true;
}

bool JsonReader::number() {
  if (next() == '-') ++at_;
  if (!is_digit(next())) return fail("invalid JSON");
  if (next() == '0') {
    ++at_;
  } else {
    while (is_digit(next())) ++at_;
  }
  if (next() == '.') {
    ++at_;
    if (!is_digit(next())) return fail("invalid JSON");
    while (is_digit(next())) ++at_;
  }
  if (next() == 'e' || next() == 'E') {
    ++at_;
    if (next() == '+' || next() == '-') ++at_;
    if (!is_digit(next())) return fail("invalid JSON");
    while (is_digit(next())) ++at_;
  }
  // A number ends where white space or a mark of the syntax begins; `01` and `1x` end nowhere.
  const char after = next();
  const bool ends = at_ == text_.size() || after == ',' || after == ']' || after == '}' || after == ' ' || after == '\t' || after == '\n' ||
                    after == '\r';
  return ends || fail("invalid JSON");
}

bool JsonReader::read_string(std::string* out) {
  if (!error_.empty() || next() != '"') return fail("invalid JSON");
  ++at_;
  if (out != nullptr) out->clear();
  while (at_ < text_.size()) {
    // A run of plain ASCII, which is nearly everything.
    const auto begin = at_;
    while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) >= 0x20 && static_cast<unsigned char>(text_[at_]) < 0x80 &&
           text_[at_] != '"' && text_[at_] != '\\') {
      ++at_;
    }
    if (out != nullptr) out->append(text_.substr(begin, at_ - begin));
    if (at_ == text_.size()) break;
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte == '"') {
      ++at_;
      return true;
    }
    if (byte == '\\' ? !escape(out) : byte < 0x20 || !utf8(out)) return fail("invalid JSON");
  }
  return fail("invalid JSON");
}

bool JsonReader::escape(std::string* out) {
  ++at_;
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (at_ == text_.size()) return false;
  if (const auto which = kNames.find(text_[at_]); which != std::string_view::npos) {
    ++at_;
    if (out != nullptr) *out += kMeanings[which];
    return true;
  }
  std::uint32_t code = 0;
  if (text_[at_] != 'u' || !hex4(code)) return false;
  if (code >= 0xDC00 && code <= 0xDFFF) return false;
  if (code >= 0xD800 && code <= 0xDBFF) {
    std::uint32_t low = 0;
    if (next() != '\\') return false;
    ++at_;
    if (next() != 'u' || !hex4(low) || low < 0xDC00 || low > 0xDFFF) return false;
    code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
  }
  if (out != nullptr) append_utf8(*out, code);
  return true;
}

// `at_` stands on the `u`.
bool JsonReader::hex4(std::uint32_t& out) {
  if (text_.size() - at_ < 5) return false;
  out = 0;
  for (std::size_t i = 1; i <= 4; ++i) {
    const char c = text_[at_ + i];
    const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return false;
    out = out << 4U | static_cast<std::uint32_t>(digit);
  }
  at_ += 5;
  return true;
}

bool JsonReader::utf8(std::string* out) {
  const auto first = static_cast<unsigned char>(text_[at_]);
  const auto character = text_.substr(at_, first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2);
  if (!is_utf8(character)) return false;
  if (out != nullptr) out->append(character);
  at_ += character.size();
  return true;
}

}  // namespace openshell::policy
