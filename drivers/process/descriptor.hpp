// Owners of descriptors and the text of errno.
#pragma once

#include <absl/status/status.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace openshell::drivers::process {

/// A descriptor that is closed once.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_{number} {}
  Descriptor(Descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset() noexcept {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }
  int release() noexcept { return std::exchange(number_, -1); }
  [[nodiscard]] int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// What could not be done, and errno's text. Read errno before anything else runs.
inline absl::Status system_error(const std::string& what, int number = errno) {
  char buffer[128];
  const std::string text = what + ": " + strerror_r(number, buffer, sizeof buffer);
  switch (number) {
    case ENOENT:
      return absl::NotFoundError(text);
    case EEXIST:
      return absl::AlreadyExistsError(text);
    case EPERM:
    case EACCES:
      return absl::PermissionDeniedError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace openshell::drivers::process
