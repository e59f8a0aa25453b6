// The first byte picks the kind; the rest is `pattern LF text`. A pattern that matches the text overlaps with the literal text; matching
// ends in time.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "policy/glob.hpp"

using openshell::policy::Glob;
using openshell::policy::GlobKind;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto kind = static_cast<GlobKind>(data[0] % 5);
  const std::string_view rest{reinterpret_cast<const char*>(data) + 1, size - 1};
  const auto cut = rest.find('\n');
  const auto pattern = Glob::compile(rest.substr(0, cut), kind);
  if (!pattern.ok()) {
    if (pattern.status().message().empty()) std::abort();
    return 0;
  }
  const auto text = cut == std::string_view::npos ? std::string_view{} : rest.substr(cut + 1);
  const bool matches = pattern->matches(text);
  const auto other = Glob::compile(text, kind);
  if (!other.ok()) return 0;
  const bool overlaps = Glob::overlap(*pattern, *other);
  if (overlaps != Glob::overlap(*other, *pattern)) std::abort();
  if (other->is_literal() && other->matches(text) && matches && !overlaps) std::abort();
  return 0;
}
