// A workspace with a size: a file system of its own (ext4) in a sparse file, mounted through a loop device. Needs root, since the kernel
// lets nobody else mount a disk file system. loop(4), mke2fs(8).
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "drivers/process/descriptor.hpp"
#include "drivers/process/directories.hpp"
#include "drivers/process/sandbox_files.hpp"

namespace openshell::drivers::process {

/// Where the image of a sandbox lies; it is there or not for the life of the workspace.
inline std::string workspace_image_path(const SandboxPaths& paths) { return paths.state + "/driver/workspace.img"; }

/// The smallest size that a file system is made for.
inline constexpr std::uint64_t kMinWorkspaceBytes = 8ULL << 20U;

/// FAILED_PRECONDITION where this host has no mke2fs.
absl::Status check_workspace_maker();
/// Makes the file, mode 0600, and in it an empty file system whose root belongs to `owner`. Nothing where the file is there already: a
/// workspace keeps its size for its life. FAILED_PRECONDITION without mke2fs.
absl::Status make_workspace_image(const std::string& path, std::uint64_t bytes, const Owner& owner);

/// The file system as a mount that is attached nowhere yet, nosuid and nodev. It and its loop device are gone with the last reference.
absl::StatusOr<Descriptor> mount_workspace_image(const std::string& path, std::uint64_t attributes);

}  // namespace openshell::drivers::process
