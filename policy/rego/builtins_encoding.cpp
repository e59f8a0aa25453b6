#include "policy/rego/base64.hpp"
#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"

namespace openshell::policy::rego {
namespace {

BuiltinResult base64_decode_text(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  std::string bytes;
  std::size_t at = 0;
  if (!base64_decode(a[0].text(), Base64Alphabet::standard, Base64Padding::required, bytes, at)) {
    return failure("illegal base64 data at input byte ", at);
  }
  return Value::string(bytes);
}

BuiltinResult base64_is_valid(QueryContext& /*context*/, Arguments a) {
  if (!a[0].is_string()) return Value::boolean(false);
  std::string bytes;
  std::size_t at = 0;
  return Value::boolean(base64_decode(a[0].text(), Base64Alphabet::standard, Base64Padding::required, bytes, at));
}

template <Base64Alphabet Alphabet, Base64Padding Padding>
BuiltinResult base64_encode_text(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  if (auto status = context.room_for_text(a[0].text().size() * 4 / 3); !status.ok()) return status;
  return Value::string(base64_encode(a[0].text(), Alphabet, Padding));
}

/// With or without padding.
BuiltinResult base64url_decode_text(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  std::string text(a[0].text());
  if (text.find('=') == std::string::npos) {
    if (text.size() % 4 == 1) return failure("illegal base64url string: ", text);
    text.append((4 - text.size() % 4) % 4, '=');
  }
  std::string bytes;
  std::size_t at = 0;
  if (!base64_decode(text, Base64Alphabet::url, Base64Padding::required, bytes, at))
    return failure("illegal base64 data at input byte ", at);
  return Value::string(bytes);
}

BuiltinResult hex_encode(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  if (auto status = context.room_for_text(a[0].text().size() * 2); !status.ok()) return status;
  return Value::string(hex_text(a[0].text()));
}

std::string named_byte(std::string_view text, std::size_t at) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(text[at]);
  std::string out = "U+00";
  out += kDigits[byte >> 4U];
  out += kDigits[byte & 15U];
  if (byte >= 0x20 && byte < 0x7F) out += text::cat(" '", text.substr(at, 1), "'");
  return out;
}

BuiltinResult hex_decode(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const auto text = a[0].text();
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    for (std::size_t j = i; j < std::min(i + 2, text.size()); ++j) {
      if (hex_digit(text[j]) < 0) return failure("encoding/hex: invalid byte: ", named_byte(text, j));
    }
    if (i + 1 == text.size()) return failure("encoding/hex: odd length hex string");
    bytes += static_cast<char>(hex_digit(text[i]) * 16 + hex_digit(text[i + 1]));
  }
  return Value::string(bytes);
}

std::string query_escape(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else if (c == ' ') {
      out += '+';
    } else {
      out += '%';
      out += kDigits[static_cast<unsigned char>(c) >> 4U];
      out += kDigits[static_cast<unsigned char>(c) & 15U];
    }
  }
  return out;
}

/// `plus`: it stands for a space, as in a query.
absl::StatusOr<std::string> unescape(std::string_view text, bool plus) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size() || hex_digit(text[i + 1]) < 0 || hex_digit(text[i + 2]) < 0) {
        return failure("invalid URL escape ", quoted(text.substr(i, 3)));
      }
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += plus && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

BuiltinResult urlquery_encode(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  if (auto status = context.room_for_text(a[0].text().size() * 3); !status.ok()) return status;
  return Value::string(query_escape(a[0].text()));
}

BuiltinResult urlquery_decode(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  auto text = unescape(a[0].text(), true);
  if (!text.ok()) return text.status();
  return Value::string(*text);
}

BuiltinResult urlquery_encode_object(QueryContext& context, Arguments a) {
  if (!a[0].is_object()) return operand_error(1, "object", a[0]);
  std::string out;
  const auto wrong_value = [] { return misuse("operand 1 values must be string, array[string], or set[string]"); };
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += text::cat(query_escape(key.text()), "=", query_escape(value.text()));
  };
  for (const auto& member : a[0].members()) {
    if (!member.key.is_string()) return operand_error(1, "string", member.key);
    if (member.value.is_string()) {
      add(member.key, member.value);
    } else if (member.value.is_array() || member.value.is_set()) {
      for (const auto& item : member.value.items()) {
        if (!item.is_string()) return wrong_value();
        add(member.key, item);
      }
    } else {
      return wrong_value();
    }
    if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  }
  return Value::string(out);
}

BuiltinResult urlquery_decode_object(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  std::vector<std::pair<std::string, std::vector<Value>>> found;
  absl::flat_hash_map<std::string, std::size_t> places;
  for (const auto part : split_at(a[0].text(), '&')) {
    if (auto status = context.charge(1); !status.ok()) return status;
    if (part.find(';') != std::string_view::npos) return failure("invalid semicolon separator in query");
    if (part.empty()) continue;
    const auto equals = part.find('=');
    auto key = unescape(part.substr(0, equals), true);
    if (!key.ok()) return key.status();
    auto value = unescape(equals == std::string_view::npos ? std::string_view{} : part.substr(equals + 1), true);
    if (!value.ok()) return value.status();
    const auto [place, is_new] = places.emplace(*key, found.size());
    if (is_new) found.push_back({*key, {}});
    found[place->second].second.push_back(Value::string(*value));
  }
  std::vector<Member> members;
  for (auto& [key, values] : found) members.push_back({Value::string(key), Value::array(std::move(values))});
  return Value::object(std::move(members));
}

/// A path as Go writes it; one that was written otherwise is shown as it was.
std::string path_escape(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("-_.~$&+,/:;=@").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : c == ' ' ? "%20" : query_escape({&c, 1});
  }
  return out;
}

struct Uri {
  std::string_view scheme, host, port, path, query, fragment;
  bool opaque = false;
};

absl::StatusOr<Uri> split_authority(Uri uri, std::string_view authority) {
  const auto user_end = authority.rfind('@');
  if (user_end != std::string_view::npos) authority.remove_prefix(user_end + 1);
  std::string_view rest = authority;
  if (!authority.empty() && authority.front() == '[') {
    const auto end = authority.find(']');
    if (end == std::string_view::npos) return failure("missing ']' in host");
    uri.host = authority.substr(1, end - 1);
    rest = authority.substr(end + 1);
  } else {
    const auto colon = authority.find(':');
    uri.host = authority.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view{} : authority.substr(colon);
    if (const auto bad = uri.host.find_first_of(" \"<>\\^`{|}"); bad != std::string_view::npos) {
      return failure("invalid character ", quoted(uri.host.substr(bad, 1)), " in host name");
    }
  }
  if (!rest.empty()) {
    if (rest.front() != ':' || rest.find_first_not_of("0123456789", 1) != std::string_view::npos) {
      return failure("invalid port ", quoted(rest), " after host");
    }
    uri.port = rest.substr(1);
  }
  return uri;
}

/// RFC 3986, as lenient with characters as Go's reader is.
absl::StatusOr<Uri> split_uri(std::string_view text) {
  Uri uri;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return failure("net/url: invalid control character in URL");
  }
  if (const auto hash = text.find('#'); hash != std::string_view::npos) {
    uri.fragment = text.substr(hash + 1);
    text = text.substr(0, hash);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) continue;
    if ((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.') {
      if (i == 0) break;
      continue;
    }
    if (c == ':') {
      if (i == 0) return failure("missing protocol scheme");
      uri.scheme = text.substr(0, i);
      text.remove_prefix(i + 1);
    }
    break;
  }
  if (const auto mark = text.find('?'); mark != std::string_view::npos) {
    uri.query = text.substr(mark + 1);
    text = text.substr(0, mark);
  }
  if (!text.starts_with("/")) {
    if (!uri.scheme.empty()) {
      uri.opaque = true;
      return uri;
    }
    const auto colon = text.find(':');
    if (colon != std::string_view::npos && colon < text.find('/')) return failure("first path segment in URL cannot contain colon");
  }
  if (text.starts_with("//") && (!uri.scheme.empty() || !text.starts_with("///"))) {
    const auto end = text.find('/', 2);
    const auto authority = text.substr(2, end == std::string_view::npos ? end : end - 2);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end);
    uri.path = text;
    return split_authority(uri, authority);
  }
  uri.path = text;
  return uri;
}

BuiltinResult uri_parse(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const auto wrong = [&](const absl::Status& why) {
    return failure("parse ", quoted(a[0].text()), ": ", std::string_view(why.message().data(), why.message().size()));
  };
  const auto uri = split_uri(a[0].text());
  if (!uri.ok()) return wrong(uri.status());
  std::vector<Member> members;
  const auto add = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) members.push_back({Value::string(key), Value::string(value)});
  };
  const auto path = unescape(uri->path, false);
  if (!path.ok()) return wrong(path.status());
  const auto fragment = unescape(uri->fragment, false);
  if (!fragment.ok()) return wrong(fragment.status());
  const auto host = unescape(uri->host, false);
  if (!host.ok()) return wrong(host.status());
  add("scheme", text::lower(uri->scheme));
  add("hostname", *host);
  add("port", uri->port);
  if (!uri->opaque) {
    add("path", *path);
    add("raw_path", path_escape(*path) == uri->path ? *path : uri->path);
  }
  add("raw_query", uri->query);
  add("fragment", *fragment);
  return Value::object(std::move(members));
}

BuiltinResult uri_is_valid(QueryContext& context, Arguments a) {
  return Value::boolean(a[0].is_string() && !a[0].text().empty() && uri_parse(context, a).ok());
}

}  // namespace

const BuiltinTable& encoding_builtins() {
  using namespace types;
  static const Type texts = any_of({string(), array_of(string()), set_of(string())});
  static const BuiltinTable table = {
      {"base64.decode", {string()}, string(), base64_decode_text},
      {"base64.encode", {string()}, string(), base64_encode_text<Base64Alphabet::standard, Base64Padding::required>},
      {"base64.is_valid", {string()}, boolean(), base64_is_valid},
      {"base64url.decode", {string()}, string(), base64url_decode_text},
      {"base64url.encode", {string()}, string(), base64_encode_text<Base64Alphabet::url, Base64Padding::required>},
      {"base64url.encode_no_pad", {string()}, string(), base64_encode_text<Base64Alphabet::url, Base64Padding::none>},
      {"hex.decode", {string()}, string(), hex_decode},
      {"hex.encode", {string()}, string(), hex_encode},
      {"uri.is_valid", {string()}, boolean(), uri_is_valid},
      {"uri.parse", {string()}, object_of(string(), string()), uri_parse},
      {"urlquery.decode", {string()}, string(), urlquery_decode},
      {"urlquery.decode_object", {string()}, object_of(string(), array_of(string())), urlquery_decode_object},
      {"urlquery.encode", {string()}, string(), urlquery_encode},
      {"urlquery.encode_object", {object_of(string(), texts)}, string(), urlquery_encode_object},
  };
  return table;
}

}  // namespace openshell::policy::rego
