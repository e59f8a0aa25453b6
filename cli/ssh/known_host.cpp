#include "cli/ssh/known_host.hpp"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <openssl/sha.h>

#include <array>

namespace openshell::cli {

std::string known_host_line(const std::string& fingerprint, const std::string& host, const std::string& type, const std::string& key) {
  std::string blob;
  if (!absl::Base64Unescape(key, &blob) || blob.empty()) return {};
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(blob.data()), blob.size(), digest.data());
  auto text = absl::Base64Escape(absl::string_view{reinterpret_cast<const char*>(digest.data()), digest.size()});
  while (text.ends_with('=')) text.pop_back();
  std::string wanted = fingerprint;
  while (wanted.ends_with('=')) wanted.pop_back();
  if (wanted != absl::StrCat("SHA256:", text)) return {};
  return absl::StrCat(host, " ", type, " ", key);
}

}  // namespace openshell::cli
