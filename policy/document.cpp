#include "policy/document.hpp"

#include "policy/text.hpp"
#include "policy/yaml_tree.hpp"

namespace openshell::policy {
namespace {

// Escapes that JSON and YAML share.
std::string quoted(std::string_view value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "\"";
  const auto escape = [&](unsigned code) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(code >> static_cast<unsigned>(shift)) & 0xFU];
  };
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto c = static_cast<unsigned char>(value[i]);
    const auto rest = value.substr(i);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c < 0x20 || c == 0x7F) {
      escape(c);
    } else if (c == 0xC2 && rest.size() > 1 && static_cast<unsigned char>(rest[1]) < 0xA0) {  // U+0080..U+009F
      escape(static_cast<unsigned char>(rest[1]));
      i += 1;
    } else if (rest.starts_with("\u2028") || rest.starts_with("\u2029") || rest.starts_with("\uFEFF")) {
      escape(rest.starts_with("\u2028") ? 0x2028 : rest.starts_with("\u2029") ? 0x2029 : 0xFEFF);
      i += 2;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

bool plain_in_yaml(std::string_view value) {
  if (value.empty() || core_type(value) != ScalarType::string || value == "<<") return false;
  if (value.front() == ' ' || value.back() == ' ' || value.back() == ':') return false;
  if (std::string_view{"-?:,[]{}#&*!|>'\"%@`="}.find(value.front()) != std::string_view::npos) return false;
  if (value.find(": ") != std::string_view::npos || value.find(" #") != std::string_view::npos) return false;
  for (const char ch : value) {
    const auto c = static_cast<unsigned char>(ch);
    if (c < 0x20 || c >= 0x7F || std::string_view{"{}[],\"\\"}.find(ch) != std::string_view::npos) return false;
  }
  return true;
}

std::string yaml_scalar(std::string_view value) { return plain_in_yaml(value) ? std::string{value} : quoted(value); }

void yaml(const Document& document, std::size_t indent, bool in_list, std::string& out);

// The value of a key or list item: on the same line where it is a scalar or empty.
void yaml_value(const Document& value, std::size_t indent, bool in_list, std::string& out) {
  if (value.kind == Document::Kind::text) {
    out += text::cat(" ", yaml_scalar(value.text), "\n");
  } else if (value.kind == Document::Kind::bare) {
    out += text::cat(" ", value.text, "\n");
  } else if (value.entries.empty()) {
    out += value.kind == Document::Kind::list ? " []\n" : " {}\n";
  } else if (in_list && value.kind == Document::Kind::mapping) {
    out += ' ';
    yaml(value, indent + 2, true, out);
  } else {
    out += '\n';
    yaml(value, indent + 2, false, out);
  }
}

void yaml(const Document& document, std::size_t indent, bool in_list, std::string& out) {
  bool first = in_list;  // the first key of a mapping stands behind its dash
  for (const auto& [key, value] : document.entries) {
    if (!first) out.append(indent, ' ');
    first = false;
    if (document.kind == Document::Kind::list) {
      out += '-';
      yaml_value(value, indent, true, out);
    } else {
      out += text::cat(yaml_scalar(key), ":");
      yaml_value(value, indent, false, out);
    }
  }
}

void json(const Document& document, std::size_t indent, bool pretty, std::string& out) {
  if (document.kind == Document::Kind::text) {
    out += quoted(document.text);
    return;
  }
  if (document.kind == Document::Kind::bare) {
    out += document.text;
    return;
  }
  const bool list = document.kind == Document::Kind::list;
  out += list ? '[' : '{';
  bool first = true;
  const auto line = [&](std::size_t blanks) {
    if (!pretty) return;
    out += '\n';
    out.append(blanks, ' ');
  };
  for (const auto& [key, value] : document.entries) {
    if (!first) out += ',';
    first = false;
    line(indent + 2);
    if (!list) out += text::cat(quoted(key), pretty ? ": " : ":");
    json(value, indent + 2, pretty, out);
  }
  if (!first) line(indent);
  out += list ? ']' : '}';
}

}  // namespace

std::string write_yaml(const Document& document) {
  if (document.entries.empty()) return "{}\n";
  std::string out;
  yaml(document, 0, false, out);
  return out;
}

std::string write_flow_yaml(const Document& document) {
  if (document.kind == Document::Kind::text) return yaml_scalar(document.text);
  if (document.kind == Document::Kind::bare) return document.text;
  const bool list = document.kind == Document::Kind::list;
  std::string out = list ? "[" : "{";
  for (const auto& [key, value] : document.entries) {
    if (out.size() > 1) out += ", ";
    if (!list) out += text::cat(yaml_scalar(key), ": ");
    out += write_flow_yaml(value);
  }
  return out + (list ? "]" : "}");
}

std::string write_json(const Document& document, bool pretty) {
  std::string out;
  json(document, 0, pretty, out);
  if (pretty) out += '\n';
  return out;
}

}  // namespace openshell::policy
