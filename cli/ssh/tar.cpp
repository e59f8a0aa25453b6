#include "cli/ssh/tar.hpp"

#include <absl/strings/str_cat.h>
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = 65'536;
constexpr mode_t kModes = 0777;

struct FreeWriter {
  void operator()(archive* a) const { archive_write_free(a); }
};
struct FreeReader {
  void operator()(archive* a) const { archive_read_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};
struct CloseFd {
  ~CloseFd() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
};
using Writer = std::unique_ptr<archive, FreeWriter>;
using Reader = std::unique_ptr<archive, FreeReader>;
using Entry = std::unique_ptr<archive_entry, FreeEntry>;

absl::Status errno_status(const std::string& what, const fs::path& path) {
  return absl::InternalError(absl::StrCat(what, " ", path.string(), ": ", std::strerror(errno)));
}

absl::Status add(const fs::path& path, const std::string& name, std::vector<TarEntry>& out) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno_status("cannot read", path);
  if (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) {
    out.push_back({name, path});
    return absl::OkStatus();
  }
  if (!S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat("unsupported file type for upload: ", path.string()));
  if (!name.empty()) out.push_back({name + "/", path});
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& each : fs::directory_iterator{path, error}) names.push_back(each.path().filename().string());
  if (error) return absl::InternalError(absl::StrCat("cannot read ", path.string(), ": ", error.message()));
  std::sort(names.begin(), names.end());
  for (const auto& each : names) {
    if (auto status = add(path / each, name.empty() ? each : absl::StrCat(name, "/", each), out); !status.ok()) return status;
  }
  return absl::OkStatus();
}

/// A reader that went away is not our failure: what it ended with says more.
absl::Status written(archive* a, int code) {
  if (code >= ARCHIVE_WARN) return absl::OkStatus();
  if (archive_errno(a) == EPIPE) return absl::AbortedError("the sandbox takes no more");
  const char* why = archive_error_string(a);
  return absl::InternalError(absl::StrCat("cannot write the archive: ", why == nullptr ? "unknown" : why));
}

absl::Status write_content(archive* a, int fd, std::int64_t size) {
  std::array<char, kPiece> buffer{};
  while (size > 0) {
    const auto want = static_cast<std::size_t>(std::min<std::int64_t>(size, kPiece));
    auto count = ::read(fd, buffer.data(), want);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {  // shrunk meanwhile
      std::fill(buffer.begin(), buffer.end(), '\0');
      count = static_cast<ssize_t>(want);
    }
    const auto done = archive_write_data(a, buffer.data(), static_cast<std::size_t>(count));
    if (done < 0) return written(a, static_cast<int>(done));
    size -= count;
  }
  return absl::OkStatus();
}

absl::Status write_one(archive* a, const TarEntry& from) {
  CloseFd file{::open(from.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
  struct stat info {};
  const bool opened = file.fd >= 0;
  if (opened ? ::fstat(file.fd, &info) != 0 : ::lstat(from.path.c_str(), &info) != 0) return errno_status("cannot read", from.path);
  if (!opened && !S_ISLNK(info.st_mode)) return errno_status("cannot read", from.path);
  Entry entry{archive_entry_new()};
  archive_entry_set_pathname(entry.get(), from.name.c_str());
  archive_entry_set_mtime(entry.get(), info.st_mtime, 0);
  archive_entry_set_perm(entry.get(), info.st_mode & kModes);
  if (S_ISLNK(info.st_mode)) {
    std::error_code error;
    const auto target = fs::read_symlink(from.path, error);
    if (error) return absl::InternalError(absl::StrCat("cannot read ", from.path.string(), ": ", error.message()));
    archive_entry_set_filetype(entry.get(), AE_IFLNK);
    archive_entry_set_symlink(entry.get(), target.c_str());
  } else if (S_ISDIR(info.st_mode)) {
    archive_entry_set_filetype(entry.get(), AE_IFDIR);
  } else if (S_ISREG(info.st_mode)) {
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_size(entry.get(), info.st_size);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unsupported file type for upload: ", from.path.string()));
  }
  if (auto status = written(a, archive_write_header(a, entry.get())); !status.ok()) return status;
  return S_ISREG(info.st_mode) ? write_content(a, file.fd, info.st_size) : absl::OkStatus();
}

absl::Status unreadable(archive* a) {
  const char* why = archive_error_string(a);
  return absl::DataLossError(absl::StrCat("the archive of the sandbox cannot be read: ", why == nullptr ? "unknown" : why));
}

absl::StatusOr<Reader> open_reader(int fd) {
  Reader a{archive_read_new()};
  archive_read_support_format_tar(a.get());
  archive_read_support_format_gnutar(a.get());
  archive_read_support_format_empty(a.get());
  if (archive_read_open_fd(a.get(), fd, kPiece) != ARCHIVE_OK) return unreadable(a.get());
  return a;
}

/// nullptr at the end.
absl::StatusOr<archive_entry*> next_entry(archive* a) {
  archive_entry* entry = nullptr;
  const int code = archive_read_next_header(a, &entry);
  if (code == ARCHIVE_EOF) return static_cast<archive_entry*>(nullptr);
  if (code < ARCHIVE_WARN) return unreadable(a);
  return entry;
}

/// A name of the archive below the directory: no `..`, nothing absolute; "" for the directory itself.
absl::StatusOr<std::string> inner_name(const char* raw) {
  std::string name = raw == nullptr ? "" : raw, out;
  const auto bad = [&] { return absl::DataLossError(absl::StrCat("the archive names '", name, "', which is outside the target")); };
  if (name.empty() || name.front() == '/') return bad();
  for (std::size_t at = 0; at < name.size();) {
    const auto end = std::min(name.find('/', at), name.size());
    const auto part = name.substr(at, end - at);
    if (part == "..") return bad();
    if (!part.empty() && part != ".") absl::StrAppend(&out, out.empty() ? "" : "/", part);
    at = end + 1;
  }
  return out;
}

absl::Status copy_data(archive* from, archive* to) {
  const void* block = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  while (true) {
    const int code = archive_read_data_block(from, &block, &size, &offset);
    if (code == ARCHIVE_EOF) return absl::OkStatus();
    if (code < ARCHIVE_WARN) return unreadable(from);
    if (archive_write_data_block(to, block, size, offset) < ARCHIVE_WARN)
      return absl::InternalError(absl::StrCat("cannot write: ", archive_error_string(to)));
  }
}

}  // namespace

absl::StatusOr<std::vector<TarEntry>> entries_of(const fs::path& path, const std::string& name) {
  std::vector<TarEntry> out;
  if (auto status = add(path, name, out); !status.ok()) return status;
  return out;
}

absl::Status write_tar(int fd, const std::vector<TarEntry>& entries) {
  Writer a{archive_write_new()};
  archive_write_set_format_gnutar(a.get());
  archive_write_set_bytes_per_block(a.get(), 0);
  if (auto status = written(a.get(), archive_write_open_fd(a.get(), fd)); !status.ok()) return status;
  for (const auto& entry : entries) {
    if (auto status = write_one(a.get(), entry); !status.ok()) {
      archive_write_fail(a.get());  // no end: the other side must not take it for whole
      return status;
    }
  }
  return written(a.get(), archive_write_close(a.get()));
}

absl::Status extract_tree(int fd, const fs::path& directory) {
  auto in = open_reader(fd);
  if (!in.ok()) return in.status();
  Writer out{archive_write_disk_new()};
  archive_write_disk_set_options(
      out.get(), ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_UNLINK);
  // libarchive follows a link that is part of the path it is given, so it is given names below the directory only, from inside it.
  CloseFd here{::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (::chdir(directory.c_str()) != 0) return errno_status("cannot enter", directory);
  absl::Status status;
  while (status.ok()) {
    auto entry = next_entry(in->get());
    if (!entry.ok() || *entry == nullptr) {
      status = entry.status();
      break;
    }
    auto name = inner_name(archive_entry_pathname(*entry));
    if (!name.ok()) {
      status = name.status();
      break;
    }
    if (name->empty()) continue;
    const auto type = archive_entry_filetype(*entry);
    const char* hard = archive_entry_hardlink(*entry);
    auto linked = hard == nullptr ? absl::StatusOr<std::string>{std::string{}} : inner_name(hard);
    if (!linked.ok()) {
      status = linked.status();
      break;
    }
    if (hard == nullptr && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK) continue;
    archive_entry_set_pathname(*entry, name->c_str());
    if (hard != nullptr) archive_entry_set_hardlink(*entry, linked->c_str());
    archive_entry_set_perm(*entry, archive_entry_perm(*entry) & kModes);
    if (archive_write_header(out.get(), *entry) < ARCHIVE_WARN) {
      status = absl::InternalError(absl::StrCat("cannot write ", *name, ": ", archive_error_string(out.get())));
    } else if (hard == nullptr && type == AE_IFREG) {
      status = copy_data(in->get(), out.get());
    }
    if (status.ok() && archive_write_finish_entry(out.get()) < ARCHIVE_WARN)
      status = absl::InternalError(absl::StrCat("cannot write ", *name, ": ", archive_error_string(out.get())));
  }
  if (status.ok() && archive_write_close(out.get()) < ARCHIVE_WARN) status = absl::InternalError(archive_error_string(out.get()));
  if (here.fd >= 0 && ::fchdir(here.fd) != 0 && status.ok()) status = errno_status("cannot go back from", directory);
  return status;
}

absl::Status extract_file(int fd, const fs::path& target) {
  auto in = open_reader(fd);
  if (!in.ok()) return in.status();
  auto entry = next_entry(in->get());
  if (!entry.ok()) return entry.status();
  if (*entry == nullptr || archive_entry_filetype(*entry) != AE_IFREG || archive_entry_hardlink(*entry) != nullptr)
    return absl::DataLossError("the archive of the sandbox does not hold the file");
  auto beside = absl::StrCat((target.has_parent_path() ? target.parent_path() : fs::path{"."}).string(), "/.openshell-download-XXXXXX");
  CloseFd file{::mkostemp(beside.data(), O_CLOEXEC)};
  if (file.fd < 0) return errno_status("cannot write", beside);
  const auto mode = archive_entry_perm(*entry) & kModes;
  auto status = archive_read_data_into_fd(in->get(), file.fd) < ARCHIVE_WARN ? unreadable(in->get()) : absl::OkStatus();
  if (status.ok() && archive_errno(in->get()) != 0) status = unreadable(in->get());
  if (status.ok() && ::fchmod(file.fd, mode) != 0) status = errno_status("cannot write", beside);
  if (status.ok() && ::fsync(file.fd) != 0) status = errno_status("cannot write", beside);
  if (status.ok() && ::rename(beside.c_str(), target.c_str()) != 0) status = errno_status("cannot write", target);
  if (!status.ok()) ::unlink(beside.c_str());
  return status;
}

}  // namespace openshell::cli
