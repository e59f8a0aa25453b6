// Files with certificates that an operator trusts besides the platform's roots.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace openshell::gateway {

constexpr std::size_t kMaxCaBundleBytes = 1U << 20;

/// The PEM text of `path`: at most 1 MiB, a regular file, at least one certificate and nothing else (a key in it would be a mistake worth
/// stopping for). INVALID_ARGUMENT names the file, never what is in it.
absl::StatusOr<std::string> read_ca_bundle(const std::string& path);

}  // namespace openshell::gateway
