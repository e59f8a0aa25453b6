#include "isolation/boundary/digest.hpp"

#include <openssl/sha.h>

namespace openshell::boundary {

std::string sha256_hex(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  unsigned char sum[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), sum);
  std::string out;
  out.reserve(2 * sizeof sum);
  for (const unsigned char byte : sum) {
    out += kHex[byte >> 4];
    out += kHex[byte & 0xf];
  }
  return out;
}

}  // namespace openshell::boundary
