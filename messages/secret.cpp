#include "messages/secret.hpp"

#include <cstring>

namespace openshell {

void wipe(std::string& bytes) noexcept {
  // Growing to the capacity first reaches what an earlier, longer text left behind; a small string lives inside the object and is reached
  // too.
  bytes.resize(bytes.capacity());
  explicit_bzero(bytes.data(), bytes.size());
  bytes.clear();
}

bool Secret::equals(std::string_view other) const noexcept {
  if (bytes_.size() != other.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < other.size(); ++i) difference |= static_cast<unsigned char>(bytes_[i] ^ other[i]);
  return difference == 0;
}

}  // namespace openshell
