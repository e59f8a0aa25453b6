#include "policy/rego/builtins_sprintf.hpp"

#include "policy/rego/number.hpp"
#include "policy/text.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

/// Columns that a width may ask for.
constexpr int kMaxWidth = 10'000;

struct Verb {
  bool minus = false, plus = false, sharp = false, zero = false, space = false;
  int width = -1;
  int precision = -1;
  char letter = 0;
};

std::string padded(std::string text, const Verb& verb, bool number) {
  std::size_t size = 0;
  for (const char c : text) size += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  if (verb.width < 0 || size >= static_cast<std::size_t>(verb.width)) return text;
  const std::size_t missing = static_cast<std::size_t>(verb.width) - size;
  if (verb.minus) return text + std::string(missing, ' ');
  if (!verb.zero) return std::string(missing, ' ') + text;
  const std::size_t sign = number && !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.insert(sign, missing, '0');
}

std::string digits_of(BigInteger value, unsigned base, bool upper) {
  if (base == 10) return value.str();
  std::string out;
  const unsigned bits = base == 2 ? 1 : base == 8 ? 3 : 4;
  const char* const digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  do {
    out.push_back(digits[static_cast<unsigned>(BigInteger(value & BigInteger(base - 1)))]);
    value >>= bits;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string utf8(const BigInteger& value) {
  if (value < 0 || value > 0x10FFFF) return "\xEF\xBF\xBD";
  std::string out;
  const auto parsed = [&] {
    const auto point = static_cast<unsigned>(value);
    if (point < 0x80) {
      out += static_cast<char>(point);
    } else if (point < 0x800) {
      out += static_cast<char>(0xC0U | (point >> 6));
      out += static_cast<char>(0x80U | (point & 0x3FU));
    } else if (point < 0x10000) {
      out += static_cast<char>(0xE0U | (point >> 12));
      out += static_cast<char>(0x80U | ((point >> 6) & 0x3FU));
      out += static_cast<char>(0x80U | (point & 0x3FU));
    } else {
      out += static_cast<char>(0xF0U | (point >> 18));
      out += static_cast<char>(0x80U | ((point >> 12) & 0x3FU));
      out += static_cast<char>(0x80U | ((point >> 6) & 0x3FU));
      out += static_cast<char>(0x80U | (point & 0x3FU));
    }
  };
  parsed();
  return out;
}

std::string integer_text(const BigInteger& value, const Verb& verb) {
  const bool negative = value < 0;
  const BigInteger size = negative ? BigInteger(-value) : value;
  std::string prefix = negative ? "-" : verb.plus ? "+" : verb.space ? " " : "";
  std::string digits;
  switch (verb.letter) {
    case 'b':
      digits = digits_of(size, 2, false);
      break;
    case 'o':
    case 'O':
      digits = digits_of(size, 8, false);
      break;
    case 'x':
    case 'X':
      digits = digits_of(size, 16, verb.letter == 'X');
      break;
    default:
      digits = size.str();
      break;
  }
  if (verb.precision >= 0 && digits.size() < static_cast<std::size_t>(verb.precision))
    digits.insert(0, static_cast<std::size_t>(verb.precision) - digits.size(), '0');
  if (verb.letter == 'O') prefix += "0o";
  if (verb.sharp && verb.letter == 'x') prefix += "0x";
  if (verb.sharp && verb.letter == 'X') prefix += "0X";
  if (verb.sharp && verb.letter == 'b') prefix += "0b";
  if (verb.sharp && verb.letter == 'o') prefix += "0";
  return padded(prefix + digits, verb, true);
}

/// `%v` of a decimal: the fewest digits that name it, with an exponent where that is far from 0.
std::string shortest(double value) {
  char buffer[64];
  int digits = 1;
  for (; digits < 17; ++digits) {
    std::snprintf(buffer, sizeof buffer, "%.*e", digits - 1, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  std::snprintf(buffer, sizeof buffer, "%.*e", digits - 1, value);
  const std::string spelled = buffer;
  const int exponent = std::atoi(spelled.c_str() + spelled.find('e') + 1);
  if (exponent < -4 || exponent >= 6) return spelled;
  std::snprintf(buffer, sizeof buffer, "%.*f", std::max(0, digits - 1 - exponent), value);
  return buffer;
}

std::string decimal_text(double value, const Verb& verb) {
  std::string out;
  if (verb.letter == 'v' || ((verb.letter == 'g' || verb.letter == 'G') && verb.precision < 0)) {
    out = shortest(value);
  } else {
    char buffer[512];
    const char shape[] = {'%', '.', '*', verb.letter == 'F' ? 'f' : verb.letter, '\0'};
    std::snprintf(buffer, sizeof buffer, shape, std::min(verb.precision < 0 ? 6 : verb.precision, 100), value);
    out = buffer;
  }
  if (verb.plus && !out.starts_with("-")) out.insert(0, "+");
  if (verb.space && !verb.plus && !out.starts_with("-")) out.insert(0, " ");
  return padded(out, verb, true);
}

std::string quoted(std::string_view text, const Verb& verb) {
  if (verb.sharp && text.find('`') == std::string_view::npos) return cat("`", text, "`");
  std::string out = "\"";
  for (const char c : text) {
    static constexpr std::string_view kNames = "\"\\abfnrtv";
    static constexpr std::string_view kBytes = "\"\\\a\b\f\n\r\t\v";
    if (const auto at = kBytes.find(c); at != std::string_view::npos) {
      out += '\\';
      out += kNames[at];
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += buffer;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string string_text(std::string text, const Verb& verb) {
  if (verb.precision >= 0) {
    std::size_t at = 0;
    for (int left = verb.precision; at < text.size(); ++at) {
      if ((static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U && left-- == 0) break;
    }
    text.resize(at);
  }
  switch (verb.letter) {
    case 'q':
      return padded(quoted(text, verb), verb, false);
    case 'x':
    case 'X': {
      std::string out;
      for (const char c : text) {
        char buffer[4];
        std::snprintf(buffer, sizeof buffer, verb.letter == 'x' ? "%02x" : "%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
        out += buffer;
      }
      return padded(out, verb, false);
    }
    default:
      return padded(std::move(text), verb, false);
  }
}

std::string misfit(const Verb& verb, std::string_view type, std::string_view text) {
  return cat("%!", std::string(1, verb.letter), "(", type, "=", text, ")");
}

std::string shown(const Value& value, const Verb& verb) {
  if (!value.is_number()) {
    std::string text = value.is_string() ? std::string(value.text()) : to_rego(value);
    if (std::string_view("svqxX").find(verb.letter) == std::string_view::npos) return misfit(verb, "string", text);
    return string_text(std::move(text), verb);
  }
  if (const auto whole = big_integer(value);
      whole && (value.is_small_integer() || number_text(value).find_first_of(".eE") == std::string::npos)) {
    switch (verb.letter) {
      case 'd':
      case 'v':
      case 'b':
      case 'o':
      case 'O':
      case 'x':
      case 'X':
        return integer_text(*whole, verb);
      case 'c':
        return padded(utf8(*whole), verb, false);
      case 'q':
        return padded(cat("'", utf8(*whole), "'"), verb, false);
      case 'U': {
        std::string digits = digits_of(*whole < 0 ? BigInteger(-*whole) : *whole, 16, true);
        if (digits.size() < 4) digits.insert(0, 4 - digits.size(), '0');
        return padded("U+" + digits, verb, false);
      }
      default:
        return misfit(verb, value.is_small_integer() ? "int64" : "big.Int", whole->str());
    }
  }
  const auto decimal = static_cast<double>(approximate(value));
  if (std::string_view("veEfFgG").find(verb.letter) != std::string_view::npos) return decimal_text(decimal, verb);
  return misfit(verb, "float64", shortest(decimal));
}

}  // namespace

BuiltinResult format_values(QueryContext& context, std::string_view format, std::span<const Value> values) {
  std::string out;
  std::size_t used = 0;
  bool reordered = false;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    Verb verb;
    for (++at; at < format.size(); ++at) {
      const char c = format[at];
      if (c == '-') {
        verb.minus = true;
        verb.zero = false;
      } else if (c == '+') {
        verb.plus = true;
      } else if (c == '#') {
        verb.sharp = true;
      } else if (c == ' ') {
        verb.space = true;
      } else if (c == '0') {
        verb.zero = !verb.minus;
      } else {
        break;
      }
    }
    const auto index = [&] {
      if (at >= format.size() || format[at] != '[') return;
      const auto close = format.find(']', at);
      if (close == std::string_view::npos) return;
      const int chosen = std::atoi(std::string(format.substr(at + 1, close - at - 1)).c_str());
      if (chosen >= 1) used = static_cast<std::size_t>(chosen - 1);
      reordered = true;
      at = close + 1;
    };
    const auto number = [&](int& into) {
      if (at < format.size() && format[at] == '*') {
        ++at;
        if (used < values.size()) into = static_cast<int>(std::clamp<std::int64_t>(values[used++].as_integer().value_or(0), 0, kMaxWidth));
        return;
      }
      while (at < format.size() && std::isdigit(static_cast<unsigned char>(format[at])) != 0) {
        into = std::min(kMaxWidth, std::max(into, 0) * 10 + (format[at++] - '0'));
      }
    };
    index();
    number(verb.width);
    if (at < format.size() && format[at] == '.') {
      ++at;
      verb.precision = 0;
      index();
      number(verb.precision);
    }
    index();
    if (at >= format.size()) {
      out += "%!(NOVERB)";
      break;
    }
    verb.letter = format[at++];
    if (verb.letter == '%') {
      out += '%';
    } else if (used >= values.size()) {
      out += reordered ? cat("%!", std::string(1, verb.letter), "(BADINDEX)") : cat("%!", std::string(1, verb.letter), "(MISSING)");
    } else if (verb.letter == 'T') {
      const Value& value = values[used++];
      out += padded(!value.is_number()         ? "string"
                    : value.is_small_integer() ? "int64"
                    : big_integer(value)       ? "*big.Int"
                                               : "float64",
                    verb, false);
    } else {
      out += shown(values[used++], verb);
    }
    if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  }
  if (!reordered && used < values.size()) {
    out += "%!(EXTRA ";
    for (std::size_t i = used; i < values.size(); ++i) {
      Verb verb;
      verb.letter = 'v';
      const Value& value = values[i];
      out += cat(i == used ? "" : ", ",
                 !value.is_number()         ? "string"
                 : value.is_small_integer() ? "int64"
                 : big_integer(value)       ? "*big.Int"
                                            : "float64",
                 "=", shown(value, verb));
    }
    out += ')';
  }
  return Value::string(out);
}

}  // namespace openshell::policy::rego
