// Files of the workload's root that the sandbox reads or writes: the image's policy and account file, the login shell, trust material,
// provider files. Blocking; used on the launcher's thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <string>

#include "isolation/boundary/control.hpp"

namespace openshell::sandbox {

inline constexpr std::size_t kMaxImagePolicyBytes = 1'048'576;
inline constexpr std::size_t kMaxAccountFileBytes = 1'048'576;
inline constexpr std::size_t kMaxProviderFiles = 64;
inline constexpr std::size_t kMaxProviderFileBytes = 65'536;
inline constexpr std::size_t kMaxProviderFilesBytes = 262'144;  ///< all of them together

/// `root` is "/" outside tests. /etc/openshell/policy.yaml, where that is absent /etc/navigator/policy.yaml. Never fails: what can not be
/// read is `invalid`.
[[nodiscard]] boundary::ImagePolicy discover_image_policy(const std::string& root = "/");

/// The text of /etc/passwd, empty where there is none that may be read.
[[nodiscard]] std::string read_accounts(const std::string& root = "/");

/// First executable of /bin/bash, /usr/bin/bash, /bin/sh; empty: none.
[[nodiscard]] std::string login_shell(const std::string& root = "/");

/// `material/{ca.crt,ca-bundle.crt}` (0444, written beside and renamed) and the distribution bundle `system-bundle.crt` (written in place)
/// below `directory`. FailedPrecondition naming the component that is a link, no directory or not ours to write.
absl::Status install_trust(const std::string& directory, const std::string& certificate, const std::string& bundle);

/// Replaces the provider files below `directory` by these ("<provider>/<name>" or with the directory in front). InvalidArgument for a bad
/// path or too much; Unavailable where the directory can not be written.
absl::Status install_provider_files(const std::string& directory, const std::map<std::string, std::string>& files);
[[nodiscard]] bool provider_files_supported(const std::string& directory);

}  // namespace openshell::sandbox
