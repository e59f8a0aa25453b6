// Any text is read as a profile or refused with a message; what was read is linted without harm, and its file form gives the same profile.
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "openshell.pb.h"
#include "providers/profile_file.hpp"
#include "providers/profile_lint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto profile = openshell::providers::parse_profile({reinterpret_cast<const char*>(data), size}, "f");
  if (!profile.ok()) {
    if (profile.status().message().empty()) std::abort();
    return 0;
  }
  if (!openshell::providers::lint({{"f", &*profile}}).empty()) return 0;
  const auto document = openshell::providers::profile_document(*profile);
  if (!document.ok()) return 0;
  const auto text = boost::json::serialize(*document);
  const auto again = openshell::providers::parse_profile(text, "again");
  // `port: 443` and `ports: [443]` are one thing with two spellings: the forms are compared.
  const auto form = again.ok() ? openshell::providers::profile_document(*again) : again.status();
  if (!form.ok() || boost::json::serialize(*form) != text) {
    std::fprintf(stderr, "a profile without faults does not survive its file form\n");
    std::abort();
  }
  return 0;
}
