#include "messages/values.hpp"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"

namespace openshell {
namespace {

constexpr std::size_t kLongestHost = 253;  // RFC 1035 section 2.3.4, without the root label
constexpr std::size_t kLongestLabel = 63;

bool is_label_byte(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

/// inet_aton would read such a last label as (part of) an address: all digits, or 0x and hexadecimal digits.
bool reads_as_number(std::string_view label) {
  if (label.starts_with("0x")) {
    return std::all_of(label.begin() + 2, label.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  }
  return std::all_of(label.begin(), label.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

absl::StatusOr<Host> Host::parse(std::string_view text) {
  std::string name{text};
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name.ends_with('.')) name.pop_back();
  if (name.empty() || name.size() > kLongestHost) {
    return absl::InvalidArgumentError(absl::StrCat("host name must have 1 to ", kLongestHost, " bytes, has ", name.size()));
  }
  std::string_view rest = name;
  std::string_view label;
  while (true) {
    const auto dot = rest.find('.');
    label = rest.substr(0, dot);
    if (label.empty() || label.size() > kLongestLabel || label.front() == '-' || label.back() == '-' ||
        !std::all_of(label.begin(), label.end(), is_label_byte)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "' is not a host name: a label has 1 to 63 letters, digits, hyphens or underscores"));
    }
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  if (reads_as_number(label)) return absl::InvalidArgumentError(absl::StrCat("'", name, "' is a spelling of an address, not a host name"));
  return Host{std::move(name)};
}

}  // namespace openshell
