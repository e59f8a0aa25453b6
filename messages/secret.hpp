#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace openshell {

/// Overwrites memory in a way the compiler may not drop.
void wipe(std::string& bytes) noexcept;

/// Text that must never be printed: a token, a key, a credential. Zeroed when it dies; it has no operator<< and no formatter, so printing
/// it does not compile. Whoever needs the bytes says so with `reveal()`, which is easy to search for.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string bytes) : bytes_{std::move(bytes)} {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret& other) {
    if (this != &other) {
      wipe(bytes_);
      bytes_ = other.bytes_;
    }
    return *this;
  }
  Secret(Secret&& other) noexcept : bytes_{std::move(other.bytes_)} { wipe(other.bytes_); }
  Secret& operator=(Secret&& other) noexcept {
    if (this != &other) {
      wipe(bytes_);
      bytes_ = std::move(other.bytes_);
      wipe(other.bytes_);
    }
    return *this;
  }
  ~Secret() { wipe(bytes_); }

  [[nodiscard]] std::string_view reveal() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  /// Compares in time that depends on the lengths only.
  [[nodiscard]] bool equals(std::string_view other) const noexcept;

 private:
  std::string bytes_;
};

}  // namespace openshell
