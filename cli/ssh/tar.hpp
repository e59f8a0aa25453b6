// Tar streams of file transfer: written from local files, read into a local directory. What comes out of a sandbox is hostile.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace openshell::cli {

struct TarEntry {
  std::string name;            ///< in the archive; a directory's ends with `/`
  std::filesystem::path path;  ///< here
};

/// `path` under `name`; a directory with everything in it, sorted by name, links as links. INVALID_ARGUMENT `unsupported file type for
/// upload: <p>` for what is neither file, directory nor link. `name` empty: the contents of the directory, flat.
absl::StatusOr<std::vector<TarEntry>> entries_of(const std::filesystem::path& path, const std::string& name);

/// Writes the archive to `fd`: modes and times of the files, nobody's ids. A file that shrinks while it is read is padded, one that grows
/// is cut. Aborted when the reader went away.
absl::Status write_tar(int fd, const std::vector<TarEntry>& entries);

/// Extracts an archive from `fd` into `directory`, which exists: regular files, directories and links; nothing outside of it is touched,
/// whatever links the archive holds; no set-id bits, no owners, no devices.
absl::Status extract_tree(int fd, const std::filesystem::path& directory);
/// The one regular file of the archive to `target`, which is written beside it and renamed.
absl::Status extract_file(int fd, const std::filesystem::path& target);

}  // namespace openshell::cli
