#include "drivers/process/directories.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <memory>
#include <vector>

namespace openshell::drivers::process {
namespace {

constexpr int kMaxDepth =
    256;  // levels that remove_tree keeps open at once are one each, so the walk is bounded below the descriptor limit

Descriptor open_below(int parent, const std::string& name, std::uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return Descriptor{static_cast<int>(syscall(SYS_openat2, parent, name.c_str(), &how, sizeof how))};
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream{fdopendir(copy), closedir};
  if (stream == nullptr) {
    close(copy);
    return names;
  }
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

// Empties a tree with a bounded number of open directories: what lies deeper is lifted up to the top and taken from there.
class Remover {
 public:
  explicit Remover(int top) : top_{top} {}

  absl::Status empty(const std::string& path) {
    do {
      lifted_ = false;
      if (auto status = empty_directory(top_, path, 0); !status.ok()) return status;
    } while (lifted_);
    return absl::OkStatus();
  }

 private:
  absl::Status remove_entry(int parent, const std::string& name, const std::string& path, int depth) {
    if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
    if (errno != EISDIR && errno != EPERM) return system_error("removing " + path);
    if (depth >= kMaxDepth) return lift(parent, name, path);
    Descriptor directory = open_below(parent, name, O_RDONLY | O_DIRECTORY);
    if (!directory && errno == EACCES) {  // a mode that its owner took away from itself
      (void)!fchmodat(parent, name.c_str(), 0700, 0);
      directory = open_below(parent, name, O_RDONLY | O_DIRECTORY);
    }
    if (!directory) return system_error("opening " + path);
    if (auto status = empty_directory(directory.get(), path, depth + 1); !status.ok()) return status;
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) return system_error("removing " + path);
    return absl::OkStatus();
  }

  absl::Status lift(int parent, const std::string& name, const std::string& path) {
    const std::string to = ".lifted-" + std::to_string(count_++);
    if (renameat(parent, name.c_str(), top_, to.c_str()) != 0) return system_error("moving " + path);
    lifted_ = true;
    return absl::OkStatus();
  }

  absl::Status empty_directory(int directory, const std::string& path, int depth) {
    for (const std::string& name : names_in(directory)) {
      absl::Status status = remove_entry(directory, name, path + "/" + name, depth);
      if (status.ok()) continue;
      if (!absl::IsPermissionDenied(status)) return status;
      (void)!fchmod(directory, 0700);
      if (status = remove_entry(directory, name, path + "/" + name, depth); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  int top_;
  bool lifted_ = false;
  std::uint64_t count_ = 0;
};

}  // namespace

absl::StatusOr<Descriptor> open_base(const std::string& path, std::uint32_t mode) {
  if (path.empty() || path.front() != '/') return absl::InvalidArgumentError("\"" + path + "\" is no absolute path");
  for (std::size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), mode) == 0) {
      if (chmod(part.c_str(), mode) != 0) return system_error("setting the mode of " + part);
    } else if (errno != EEXIST) {
      return system_error("making " + part);
    }
  }
  Descriptor directory{open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!directory) return system_error("opening " + path);
  return directory;
}

absl::StatusOr<Descriptor> make_directory(int parent, const std::string& name, std::uint32_t mode, Owner owner) {
  const bool made = mkdirat(parent, name.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return system_error("making directory " + name);
  Descriptor directory = open_below(parent, name, O_RDONLY | O_DIRECTORY);
  if (!directory) return absl::FailedPreconditionError(name + " is no directory of its own: " + strerror(errno));
  struct stat info {};
  if (fstat(directory.get(), &info) != 0) return system_error("looking at " + name);
  if (made && (info.st_uid != owner.uid || info.st_gid != owner.gid) && fchown(directory.get(), owner.uid, owner.gid) != 0)
    return system_error("owning " + name);
  if (!made && info.st_uid != owner.uid) {
    return absl::FailedPreconditionError(name + " belongs to uid " + std::to_string(info.st_uid) + " instead of " +
                                         std::to_string(owner.uid));
  }
  if (fchmod(directory.get(), mode) != 0) return system_error("setting the mode of " + name);
  return directory;
}

absl::Status write_file(int directory, const std::string& name, std::string_view content, std::uint32_t mode, Owner owner) {
  const std::string draft = "." + name + ".new";
  (void)unlinkat(directory, draft.c_str(), 0);
  const Descriptor file{openat(directory, draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!file) return system_error("making " + name);
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t n = write(file.get(), content.data() + done, content.size() - done);
    if (n < 0) return system_error("writing " + name);
    done += static_cast<std::size_t>(n);
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return system_error("looking at " + name);
  if ((info.st_uid != owner.uid || info.st_gid != owner.gid) && fchown(file.get(), owner.uid, owner.gid) != 0)
    return system_error("owning " + name);
  if (fchmod(file.get(), mode) != 0) return system_error("setting the mode of " + name);
  if (renameat(directory, draft.c_str(), directory, name.c_str()) != 0) return system_error("placing " + name);
  return absl::OkStatus();
}

absl::StatusOr<std::string> read_file(int directory, const std::string& name, std::size_t max_bytes) {
  const Descriptor file = open_below(directory, name, O_RDONLY);
  if (!file) return system_error("opening " + name);
  std::string content;
  char buffer[4096];
  for (ssize_t got; (got = read(file.get(), buffer, sizeof buffer)) != 0;) {
    if (got < 0) return system_error("reading " + name);
    content.append(buffer, static_cast<std::size_t>(got));
    if (content.size() > max_bytes) return absl::OutOfRangeError(name + " is longer than " + std::to_string(max_bytes) + " bytes");
  }
  return content;
}

absl::StatusOr<bool> remove_tree(int parent, const std::string& name) {
  struct stat info {};
  if (fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return system_error("looking at " + name);
  }
  if (!S_ISDIR(info.st_mode)) {
    if (unlinkat(parent, name.c_str(), 0) != 0) return system_error("removing " + name);
    return true;
  }
  const Descriptor top = open_below(parent, name, O_RDONLY | O_DIRECTORY);
  if (!top) return system_error("opening " + name);
  if (auto status = Remover{top.get()}.empty(name); !status.ok()) return status;
  if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) return system_error("removing " + name);
  return true;
}

absl::Status check_passable(const std::string& path) {
  for (std::size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    struct stat info {};
    if (stat(part.c_str(), &info) != 0) return system_error("looking at " + part);
    if ((info.st_mode & S_IXOTH) == 0) {
      return absl::FailedPreconditionError(path + " can not be used: supervisors run under uids of their own and " + part +
                                           " lets others not pass (chmod o+x " + part + ", or choose another directory)");
    }
  }
  return absl::OkStatus();
}

}  // namespace openshell::drivers::process
