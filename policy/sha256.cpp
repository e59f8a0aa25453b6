#include "policy/sha256.hpp"

#include <openssl/sha.h>

namespace openshell::policy {

static_assert(kSha256Bytes == SHA256_DIGEST_LENGTH);

std::array<unsigned char, kSha256Bytes> sha256(std::string_view bytes) {
  std::array<unsigned char, kSha256Bytes> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

std::string sha256_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * kSha256Bytes);
  for (const unsigned char byte : sha256(bytes)) {
    hex.push_back(kDigits[byte >> 4U]);
    hex.push_back(kDigits[byte & 0xFU]);
  }
  return hex;
}

}  // namespace openshell::policy
