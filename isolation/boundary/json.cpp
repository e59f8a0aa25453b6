#include "isolation/boundary/json.hpp"

#include <algorithm>
#include <set>

namespace openshell::boundary::internal {
namespace {

constexpr std::size_t kMaxDepth = 32;

/// Boost.JSON lets the last of two equal keys win; two readers of one text could then disagree. `text` is known to be valid JSON.
bool has_duplicate_keys(std::string_view text) {
  std::vector<std::optional<std::set<std::string, std::less<>>>> open;  // an object's keys so far; nullopt for an array
  bool key_next = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '{':
        open.emplace_back(std::in_place);
        key_next = true;
        break;
      case '[':
        open.emplace_back(std::nullopt);
        key_next = false;
        break;
      case '}':
      case ']':
        open.pop_back();
        key_next = false;
        break;
      case ',':
        key_next = !open.empty() && open.back().has_value();
        break;
      case '"': {
        const std::size_t begin = i;
        for (++i; text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        if (!key_next) break;
        key_next = false;
        std::string_view raw = text.substr(begin, i - begin + 1);
        // An escaped spelling of a key is compared by what it means.
        std::string key = raw.find('\\') == std::string_view::npos ? std::string(raw.substr(1, raw.size() - 2))
                                                                   : std::string(json::parse(raw).get_string());
        if (!open.back()->insert(std::move(key)).second) return true;
        break;
      }
      default:
        break;
    }
  }
  return false;
}

void append_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto is_plain = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; };
  out.reserve(out.size() + text.size() + text.size() / 32);
  out += '"';
  for (auto at = text.begin(); at != text.end(); ++at) {
    const auto run = std::find_if_not(at, text.end(), is_plain);
    out.append(at, run);
    if ((at = run) == text.end()) break;
    switch (const char c = *at) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += "\\u00";
        out += kHex[(c >> 4) & 0xf];
        out += kHex[c & 0xf];
    }
  }
  out += '"';
}

void append(std::string& out, const json::value& value) {
  if (const auto* object = value.if_object()) {
    std::vector<const json::key_value_pair*> members;
    members.reserve(object->size());
    for (const auto& member : *object) members.push_back(&member);
    std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) {
      const std::string_view x{a->key().data(), a->key().size()}, y{b->key().data(), b->key().size()};
      return x < y;  // char_traits<char> compares as unsigned bytes
    });
    out += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i != 0) out += ',';
      append_string(out, {members[i]->key().data(), members[i]->key().size()});
      out += ':';
      append(out, members[i]->value());
    }
    out += '}';
  } else if (const auto* array = value.if_array()) {
    out += '[';
    for (std::size_t i = 0; i < array->size(); ++i) {
      if (i != 0) out += ',';
      append(out, (*array)[i]);
    }
    out += ']';
  } else if (const auto* text = value.if_string()) {
    append_string(out, {text->data(), text->size()});
  } else {
    out += json::serialize(value);
  }
}

/// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none (overlong forms, surrogates and beyond U+10FFFF are none).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b <= 0xdf) return tail(1) ? 2 : 0;
  if (b >= 0xe0 && b <= 0xef) {
    if (!tail(1) || !tail(2) || (b == 0xe0 && byte(1) < 0xa0) || (b == 0xed && byte(1) >= 0xa0)) return 0;
    return 3;
  }
  if (b >= 0xf0 && b <= 0xf4) {
    if (!tail(1) || !tail(2) || !tail(3) || (b == 0xf0 && byte(1) < 0x90) || (b == 0xf4 && byte(1) >= 0x90)) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

absl::StatusOr<json::value> parse_strict(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code error;
  json::value value;
  try {
    value = json::parse({text.data(), text.size()}, error, {}, options);
  } catch (const std::exception&) {
    return absl::InvalidArgumentError("not JSON that fits in memory");
  }
  if (error) return absl::InvalidArgumentError(fmt::format("not JSON: {}", error.message()));
  if (has_duplicate_keys(text)) return absl::InvalidArgumentError("a key stands twice in one object");
  return value;
}

std::string canonical(const json::value& value) {
  std::string out;
  append(out, value);
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    // ASCII by the run: a CA bundle is 200 KiB of it.
    const auto other = std::find_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    out.append(text.begin(), other);
    text.remove_prefix(static_cast<std::size_t>(other - text.begin()));
    if (text.empty()) break;
    const std::size_t n = sequence_length(text);
    if (n == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out.append(text.substr(0, n));
      text.remove_prefix(n);
    }
  }
  return out;
}

absl::Status Reader::finish() const {
  if (!status_.ok()) return status_;
  for (const auto& member : object_) {
    const std::string_view key{member.key().data(), member.key().size()};
    if (std::find(known_.begin(), known_.end(), key) == known_.end())
      return wrong(where_, fmt::format("unknown key '{}'", key.substr(0, 64)));
  }
  return absl::OkStatus();
}

}  // namespace openshell::boundary::internal
