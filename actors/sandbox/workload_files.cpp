#include "actors/sandbox/workload_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "isolation/file_descriptor.hpp"

namespace openshell::sandbox {

using isolation::FileDescriptor;

namespace {

enum class ReadResult { read, absent, bad };

/// A regular file of at most `limit` bytes; the last component is no link.
ReadResult read_file(const std::string& path, std::size_t limit, std::string& out) {
  const FileDescriptor fd{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
  if (!fd) return errno == ENOENT ? ReadResult::absent : ReadResult::bad;
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return ReadResult::bad;
  char buffer[16'384];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ReadResult::bad;
    if (n == 0) return ReadResult::read;
    out.append(buffer, static_cast<std::size_t>(n));
    if (out.size() > limit) return ReadResult::bad;
  }
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto b = static_cast<unsigned char>(text[i]);
    const std::size_t n = b < 0x80 ? 1 : b >= 0xc2 && b < 0xe0 ? 2 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 0;
    if (n == 0 || i + n > text.size()) return false;
    for (std::size_t k = 1; k < n; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    i += n;
  }
  return true;
}

absl::Status failed(const std::string& what) { return absl::FailedPreconditionError(fmt::format("{}: {}", what, std::strerror(errno))); }

absl::Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : failed(path);
}

/// Beside and renamed: a reader sees the old file or the new one.
absl::Status replace_file(int directory, const std::string& name, std::string_view bytes, mode_t mode) {
  const std::string temporary = name + ".tmp";
  ::unlinkat(directory, temporary.c_str(), 0);
  const FileDescriptor fd{::openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
  if (!fd) return failed(temporary);
  if (auto status = write_all(fd.get(), bytes, temporary); !status.ok()) return status;
  if (::fchmod(fd.get(), mode) != 0 || ::renameat(directory, temporary.c_str(), directory, name.c_str()) != 0) return failed(name);
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> open_directory(int at, const std::string& name, bool create) {
  if (create && ::mkdirat(at, name.c_str(), 0755) != 0 && errno != EEXIST) return failed(name);
  FileDescriptor fd{::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (!fd) return failed(name);
  if (create) ::fchmod(fd.get(), 0755);
  return fd;
}

/// In place, since it may be bound over the distribution's own bundle: what it held before stays in front.
absl::Status install_system_bundle(int directory, const std::string& bundle) {
  const std::string name = "system-bundle.crt";
  const FileDescriptor fd{::openat(directory, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644)};
  if (!fd) return failed(name);
  const off_t end = ::lseek(fd.get(), 0, SEEK_END);
  if (end < 0) return failed(name);
  if (end > 0) {
    char last = '\n';
    if (::pread(fd.get(), &last, 1, end - 1) == 1 && last != '\n') {
      if (auto status = write_all(fd.get(), "\n", name); !status.ok()) return status;
    }
  }
  if (auto status = write_all(fd.get(), bundle, name); !status.ok()) return status;
  return ::fchmod(fd.get(), 0444) == 0 ? absl::OkStatus() : failed(name);
}

bool is_component(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

boundary::ImagePolicy discover_image_policy(const std::string& root) {
  for (const char* place : {"etc/openshell/policy.yaml", "etc/navigator/policy.yaml"}) {
    std::string text;
    switch (read_file(root + "/" + place, kMaxImagePolicyBytes, text)) {
      case ReadResult::absent:
        continue;
      case ReadResult::bad:
        return {std::nullopt, true};
      case ReadResult::read:
        return is_utf8(text) ? boundary::ImagePolicy{std::move(text), false} : boundary::ImagePolicy{std::nullopt, true};
    }
  }
  return {std::nullopt, false};
}

std::string read_accounts(const std::string& root) {
  std::string text;
  return read_file(root + "/etc/passwd", kMaxAccountFileBytes, text) == ReadResult::read ? text : std::string();
}

std::string login_shell(const std::string& root) {
  for (const char* shell : {"/bin/bash", "/usr/bin/bash", "/bin/sh"}) {
    if (::access((root == "/" ? shell : root + shell).c_str(), X_OK) == 0) return shell;
  }
  return {};
}

absl::Status install_trust(const std::string& directory, const std::string& certificate, const std::string& bundle) {
  auto parent = open_directory(AT_FDCWD, directory, false);
  if (!parent.ok()) return parent.status();
  auto material = open_directory(parent->get(), "material", true);
  if (!material.ok()) return material.status();
  if (auto status = replace_file(material->get(), "ca.crt", certificate, 0444); !status.ok()) return status;
  if (auto status = replace_file(material->get(), "ca-bundle.crt", bundle, 0444); !status.ok()) return status;
  return install_system_bundle(parent->get(), bundle);
}

bool provider_files_supported(const std::string& directory) { return ::access(directory.c_str(), W_OK | X_OK) == 0; }

absl::Status install_provider_files(const std::string& directory, const std::map<std::string, std::string>& files) {
  if (files.empty() && !provider_files_supported(directory)) return absl::OkStatus();
  if (files.size() > kMaxProviderFiles) return absl::InvalidArgumentError("more than 64 provider files");
  std::size_t total = 0;
  std::set<std::string> wanted;
  for (const auto& [path, text] : files) {
    std::string_view relative = path;
    if (relative.starts_with(directory + "/")) relative.remove_prefix(directory.size() + 1);
    const std::size_t slash = relative.find('/');
    if (slash == std::string_view::npos || !is_component(relative.substr(0, slash)) || !is_component(relative.substr(slash + 1))) {
      return absl::InvalidArgumentError("a provider file is not <provider>/<name>");
    }
    total += text.size();
    if (text.size() > kMaxProviderFileBytes || total > kMaxProviderFilesBytes)
      return absl::InvalidArgumentError("provider files are too large");
    wanted.insert(std::string(relative));
  }
  if (!provider_files_supported(directory)) return absl::UnavailableError("provider files can not be written here");
  auto root = open_directory(AT_FDCWD, directory, false);
  if (!root.ok()) return root.status();
  for (const auto& [path, text] : files) {
    std::string_view relative = path;
    if (relative.starts_with(directory + "/")) relative.remove_prefix(directory.size() + 1);
    const std::size_t slash = relative.find('/');
    auto provider = open_directory(root->get(), std::string(relative.substr(0, slash)), true);
    if (!provider.ok()) return provider.status();
    if (auto status = replace_file(provider->get(), std::string(relative.substr(slash + 1)), text, 0444); !status.ok()) return status;
  }
  std::error_code ignored;
  for (const auto& provider : std::filesystem::directory_iterator(directory, ignored)) {
    if (!provider.is_directory(ignored) || provider.is_symlink(ignored)) continue;
    for (const auto& file : std::filesystem::directory_iterator(provider.path(), ignored)) {
      const std::string relative = provider.path().filename().string() + "/" + file.path().filename().string();
      if (!wanted.contains(relative)) std::filesystem::remove(file.path(), ignored);
    }
  }
  return absl::OkStatus();
}

}  // namespace openshell::sandbox
