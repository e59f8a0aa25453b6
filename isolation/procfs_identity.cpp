#include "isolation/procfs_identity.hpp"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "isolation/file_descriptor.hpp"

namespace openshell::isolation {

namespace {

constexpr char kDeletedSuffix[] = " (deleted)";
constexpr std::size_t kReadChunk = 256 * 1024;

/// What makes a file the same file with the same content, as far as a kernel can tell.
using FileKey = std::tuple<dev_t, ino_t, off_t, time_t, long, time_t, long>;
FileKey key_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

absl::Status unreadable(pid_t pid, const char* what) {
  return absl::UnavailableError(absl::StrCat("identity of process ", pid, ": ", what));
}

absl::StatusOr<std::string> hash_file(int fd) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
  std::vector<char> buffer(kReadChunk);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) return absl::InternalError("SHA-256 is not available");
  off_t offset = 0;
  for (;;) {
    const ssize_t size = ::pread(fd, buffer.data(), buffer.size(), offset);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return absl::UnavailableError("executable can not be read");
    if (size == 0) break;
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(size));
    offset += size;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  if (EVP_DigestFinal_ex(context.get(), digest, &length) != 1) return absl::InternalError("SHA-256 failed");
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", digest[i]);
    text += hex;
  }
  return text;
}

void add_command_paths(pid_t pid, std::vector<std::string>& paths) {
  const FileDescriptor file{::open(absl::StrCat("/proc/", pid, "/cmdline").c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text(kMaxCommandLineBytes, '\0');
  const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
  if (size <= 0) return;
  text.resize(static_cast<std::size_t>(size));
  for (std::size_t begin = 0; begin < text.size() && paths.size() < kMaxCommandLinePaths;) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    if (end > begin && end - begin < PATH_MAX && text[begin] == '/') paths.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

absl::StatusOr<TaskIds> read_task_ids(pid_t tid) {
  const FileDescriptor file{::open(absl::StrCat("/proc/", tid, "/status").c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text(4096, '\0');
  const ssize_t size = file ? ::read(file.get(), text.data(), text.size() - 1) : -1;
  if (size <= 0) return absl::NotFoundError(absl::StrCat("task ", tid, " is gone"));
  const auto field = [&text](const char* name) -> int {
    const char* at = std::strstr(text.c_str(), name);
    return at == nullptr ? 0 : std::atoi(at + std::strlen(name));
  };
  // The name in the first line may hold anything but a newline, so every field is looked up at the start of a line.
  TaskIds ids{field("\nTgid:"), field("\nPPid:"), field("\nThreads:")};
  if (ids.tgid <= 0) return absl::NotFoundError(absl::StrCat("task ", tid, " is gone"));
  return ids;
}

struct IdentityReader::Cache {
  std::mutex mutex;
  std::map<FileKey, std::string> digests;
  std::deque<FileKey> order;

  std::optional<std::string> find(const FileKey& key) {
    const std::lock_guard lock{mutex};
    const auto it = digests.find(key);
    return it == digests.end() ? std::nullopt : std::optional{it->second};
  }
  void put(const FileKey& key, const std::string& digest) {
    const std::lock_guard lock{mutex};
    if (digests.insert_or_assign(key, digest).second) order.push_back(key);
    while (digests.size() > kMaxHashCacheEntries) {
      digests.erase(order.front());
      order.pop_front();
    }
  }
};

IdentityReader::IdentityReader(pid_t sandbox) : sandbox_{sandbox}, cache_{std::make_unique<Cache>()} {}
IdentityReader::~IdentityReader() = default;

absl::StatusOr<Executable> IdentityReader::read_executable(pid_t pid, bool may_hash, bool& would_hash) {
  const std::string link = absl::StrCat("/proc/", pid, "/exe");
  const FileDescriptor file{::open(link.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file) return unreadable(pid, errno == ENOENT ? "the process is gone" : "its executable can not be opened");
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length <= 0 || length >= PATH_MAX) return unreadable(pid, "its executable has no readable path");
  path.resize(static_cast<std::size_t>(length));
  if (path.ends_with(kDeletedSuffix) || path[0] != '/') return unreadable(pid, "its executable was deleted");
  struct stat before {
  }, after{};
  if (::fstat(file.get(), &before) != 0 || !S_ISREG(before.st_mode)) return unreadable(pid, "its executable is no regular file");
  if (static_cast<std::uint64_t>(before.st_size) > kMaxHashedBytes) return unreadable(pid, "its executable is too large");
  if (auto known = cache_->find(key_of(before))) return Executable{std::move(path), std::move(*known)};
  if (!may_hash) {
    would_hash = true;
    return unreadable(pid, "its executable is not hashed yet");
  }
  auto digest = hash_file(file.get());
  if (!digest.ok()) return digest.status();
  if (::fstat(file.get(), &after) != 0 || key_of(after) != key_of(before))
    return unreadable(pid, "its executable changed while it was read");
  cache_->put(key_of(before), *digest);
  return Executable{std::move(path), std::move(*digest)};
}

absl::StatusOr<BinaryIdentity> IdentityReader::collect(pid_t tid, bool may_hash, bool& would_hash) {
  auto ids = read_task_ids(tid);
  if (!ids.ok()) return unreadable(tid, "the task is gone");
  BinaryIdentity identity;
  identity.pid = ids->tgid;
  auto executable = read_executable(tid, may_hash, would_hash);
  if (!executable.ok()) return executable.status();
  identity.executable = std::move(*executable);
  add_command_paths(ids->tgid, identity.command_paths);
  for (pid_t parent = ids->ppid; parent != sandbox_;) {
    if (parent <= 0) return unreadable(tid, "its ancestors do not lead to the sandbox");
    if (identity.ancestors.size() >= kMaxAncestors) return unreadable(tid, "it has too many ancestors");
    auto next = read_task_ids(parent);
    if (!next.ok()) return unreadable(parent, "an ancestor is gone");
    auto ancestor = read_executable(parent, may_hash, would_hash);
    if (!ancestor.ok()) return ancestor.status();
    identity.ancestors.push_back(std::move(*ancestor));
    add_command_paths(parent, identity.command_paths);
    parent = next->ppid;
  }
  return identity;
}

absl::StatusOr<BinaryIdentity> IdentityReader::read(pid_t tid) {
  bool would_hash = false;
  return collect(tid, true, would_hash);
}

std::optional<absl::StatusOr<BinaryIdentity>> IdentityReader::read_cached(pid_t tid) {
  bool would_hash = false;
  auto identity = collect(tid, false, would_hash);
  if (would_hash) return std::nullopt;
  return identity;
}

}  // namespace openshell::isolation
