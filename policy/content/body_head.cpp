#include "policy/content/body_head.hpp"

#include "policy/text.hpp"

namespace openshell::policy {
namespace {

bool is_json_type(const std::string& type) {
  constexpr std::string_view kPrefix = "application/";
  constexpr std::string_view kSuffix = "+json";
  return type == "application/json" ||
         (type.starts_with(kPrefix) && type.ends_with(kSuffix) && type.size() > kPrefix.size() + kSuffix.size());
}

// `; charset=` of a media type must be UTF-8, once.
bool charset_is_utf8(std::string_view parameters) {
  while (!parameters.empty()) {
    parameters.remove_prefix(1);
    const auto end = parameters.find(';');
    const auto one = parameters.substr(0, end);
    const auto equals = one.find('=');
    if (text::lower(text::trim(one.substr(0, equals))) == "charset") {
      auto value = equals == std::string_view::npos ? std::string_view{} : text::trim(one.substr(equals + 1));
      if (value.size() > 1 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
      if (text::lower(value) != "utf-8") return false;
    }
    parameters = end == std::string_view::npos ? std::string_view{} : parameters.substr(end);
  }
  return true;
}

}  // namespace

std::string json_body_fault(const BodyHead& head, bool typed) {
  for (const auto coding : head.content_encoding) {
    if (text::lower(text::trim(coding)) != "identity") return "Content-Encoding other than identity is not supported";
  }
  if (typed && head.content_type.size() != 1) return "exactly one Content-Type is needed";
  for (const auto value : head.content_type) {
    const auto cut = value.find(';');
    if (typed && !is_json_type(text::lower(text::trim(value.substr(0, cut))))) return "Content-Type is not JSON";
    if (cut != std::string_view::npos && !charset_is_utf8(value.substr(cut))) return "charset other than UTF-8 is not supported";
  }
  return {};
}

}  // namespace openshell::policy
