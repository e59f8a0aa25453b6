// Names of Unix sockets. unix(7)
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace openshell::isolation {

/// A value for bind(2) and connect(2).
struct UnixAddress {
  sockaddr_un name{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

/// A path, or with '@' in front a name of the abstract namespace. INVALID_ARGUMENT: empty, or more than 107 bytes.
inline absl::StatusOr<UnixAddress> unix_address(std::string_view path) {
  UnixAddress out;
  out.name.sun_family = AF_UNIX;
  const bool abstract = path.starts_with('@');
  if (path.size() < (abstract ? 2 : 1) || path.size() >= sizeof out.name.sun_path)
    return absl::InvalidArgumentError(
        absl::StrCat("socket path '", std::string{path}, "' must have 1 to ", sizeof out.name.sun_path - 1, " bytes"));
  path.copy(out.name.sun_path, path.size());
  if (abstract) out.name.sun_path[0] = '\0';
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  return out;
}

}  // namespace openshell::isolation
