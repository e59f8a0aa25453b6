#include "actors/sandbox/link_resolver.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace openshell::sandbox {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel's own path walk, path_resolution(7)

void push_front(std::deque<std::string>& parts, std::string_view path) {
  std::vector<std::string> split;
  for (std::size_t at = 0; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    if (end > at) split.emplace_back(path.substr(at, end - at));
    at = end + 1;
  }
  parts.insert(parts.begin(), split.begin(), split.end());
}

/// The workload can not change what lies in `directory`: it may not write to it, and is not its owner, who could allow himself to; or
/// nobody may, since the mount is read-only. False too where the answer is not known. The workload has this process's uid.
bool is_out_of_reach(const std::string& directory) {
  struct statvfs mount {};
  if (::statvfs(directory.c_str(), &mount) == 0 && (mount.f_flag & ST_RDONLY) != 0) return true;
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK, AT_EACCESS) == 0) return false;
  if (errno == EROFS) return true;
  struct stat found {};
  return (errno == EACCES || errno == EPERM) && ::stat(directory.c_str(), &found) == 0 && found.st_uid != ::geteuid();
}

/// A mount can be neither renamed nor removed, whoever owns the directory that it lies in.
bool is_mount(const std::string& path) {
  struct statx found {};
  constexpr auto kFlags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
  return ::statx(AT_FDCWD, path.c_str(), kFlags, 0, &found) == 0 &&
         (found.stx_attributes & found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
}

}  // namespace

absl::StatusOr<std::string> real_program(const std::string& path) {
  if (path.empty() || path.front() != '/' || path.size() >= PATH_MAX) return absl::InvalidArgumentError("it is no absolute path");
  std::deque<std::string> left;
  push_front(left, path);
  std::string here;  // "" is the root
  struct stat found {};
  int links = 0;
  while (!left.empty()) {
    const auto part = std::move(left.front());
    left.pop_front();
    if (part == ".") continue;
    if (part == "..") {
      here.resize(here.empty() ? 0 : here.rfind('/'));
      continue;
    }
    const auto directory = here.empty() ? std::string{"/"} : here;
    const auto next = here + '/' + part;
    if (::lstat(next.c_str(), &found) != 0) return absl::NotFoundError(fmt::format("{} does not exist", next));
    if (!is_out_of_reach(directory) && !is_mount(next))
      return absl::FailedPreconditionError(fmt::format("the workload can write to {}", directory));
    if (!S_ISLNK(found.st_mode)) {
      here = next;
      continue;
    }
    if (++links > kMaxLinks) return absl::InvalidArgumentError("it has too many links");
    std::array<char, PATH_MAX> target{};
    const auto length = ::readlink(next.c_str(), target.data(), target.size());
    if (length <= 0 || length == static_cast<ssize_t>(target.size())) return absl::NotFoundError(fmt::format("{} can not be read", next));
    const std::string_view text{target.data(), static_cast<std::size_t>(length)};
    if (text.front() == '/') here.clear();
    push_front(left, text);
  }
  if (here.empty() || ::lstat(here.c_str(), &found) != 0 || !S_ISREG(found.st_mode))
    return absl::InvalidArgumentError("it does not end at a regular file");
  return here;
}

boundary::LinksResolved resolve_links(const boundary::ResolveLinks& request) {
  boundary::LinksResolved out;
  for (const auto& path : request.paths) {
    const auto real = real_program(path);
    if (real.ok()) {
      if (*real != path) out.targets.emplace(path, *real);
      continue;
    }
    // What is no link needs no target: its own path counts, wherever it lies and whether it exists already.
    struct stat found {};
    std::array<char, PATH_MAX> whole{};
    if (::lstat(path.c_str(), &found) != 0 ||
        (!S_ISLNK(found.st_mode) && ::realpath(path.c_str(), whole.data()) != nullptr && path == whole.data()))
      continue;
    out.refused.emplace(path, std::string{real.status().message()});
  }
  return out;
}

}  // namespace openshell::sandbox
