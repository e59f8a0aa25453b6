#include "actors/outbox/posix_journal_disk.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace openshell::supervisor {
namespace {

class JournalFd {
 public:
  explicit JournalFd(int fd = -1) noexcept : fd_{fd} {}
  JournalFd(JournalFd&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  JournalFd& operator=(JournalFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~JournalFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

class PosixJournalDisk final : public JournalDisk {
 public:
  explicit PosixJournalDisk(std::string path) : path_{std::move(path)} {}

  absl::Status open() override {
    if (lock_) return absl::OkStatus();
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) return failed("make the directory", "");
    JournalFd directory{::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!directory) return failed("open the directory", "");
    struct stat found {};
    if (::fstat(directory.get(), &found) != 0) return failed("look at the directory", "");
    if (found.st_uid != ::geteuid() || (found.st_mode & 077) != 0)
      return absl::PermissionDeniedError("the journal '" + path_ + "' does not belong to this user alone");
    JournalFd lock{::openat(directory.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (!lock) return failed("open", "lock");
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return failed("lock", "lock");
    // The directory itself is to be there after a crash of the machine, or what is synced in it is not. A parent that may not be read is
    // another's, and was there before.
    JournalFd parent{::openat(directory.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (parent && ::fsync(parent.get()) != 0) return failed("sync the parent of", "");
    directory_ = std::move(directory);
    lock_ = std::move(lock);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> list() override {
    const int fd = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* entries = fd < 0 ? nullptr : ::fdopendir(fd);
    if (entries == nullptr) {
      auto error = failed("list", "");
      if (fd >= 0) ::close(fd);
      return error;
    }
    std::vector<std::string> names;
    while (const auto* entry = ::readdir(entries)) names.emplace_back(entry->d_name);
    ::closedir(entries);
    return names;
  }

  absl::StatusOr<std::string> read(const std::string& name, std::size_t limit) override {
    auto file = open_file(name, O_RDONLY);
    if (!file.ok()) return file.status();
    std::string out;
    char piece[65'536];
    while (true) {
      const auto count = ::read(file->get(), piece, sizeof piece);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return failed("read", name);
      if (count == 0) return out;
      out.append(piece, static_cast<std::size_t>(count));
      if (out.size() > limit) return absl::ResourceExhaustedError("'" + name + "' in '" + path_ + "' is longer than a journal file");
    }
  }

  absl::Status create(const std::string& name, std::string_view bytes) override {
    auto file = open_file(name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL);
    if (!file.ok()) return file.status();
    if (auto status = write(*file, name, bytes, true); !status.ok()) return status;
    if (auto status = sync_directory(); !status.ok()) return status;
    current_ = *std::move(file);
    current_name_ = name;
    return absl::OkStatus();
  }

  absl::Status append(const std::string& name, std::string_view bytes, bool durable) override {
    if (name != current_name_) {
      auto file = open_file(name, O_WRONLY | O_APPEND);
      if (!file.ok()) return file.status();
      current_ = *std::move(file);
      current_name_ = name;
    }
    return write(current_, name, bytes, durable);
  }

  absl::Status cut(const std::string& name, std::size_t size) override {
    auto file = open_file(name, O_WRONLY);
    if (!file.ok()) return file.status();
    if (::ftruncate(file->get(), static_cast<off_t>(size)) != 0 || ::fdatasync(file->get()) != 0) return failed("cut", name);
    return absl::OkStatus();
  }

  absl::Status copy(const std::string& from, const std::string& to) override {
    auto bytes = read(from, kMaxCopyBytes);
    if (!bytes.ok()) return bytes.status();
    auto file = open_file(to, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.ok()) return file.status();
    return write(*file, to, *bytes, true);
  }

  absl::Status rename(const std::string& from, const std::string& to) override {
    forget(from);
    if (::renameat(directory_.get(), from.c_str(), directory_.get(), to.c_str()) != 0) return failed("rename", from);
    return sync_directory();
  }

  absl::Status remove(const std::string& name) override {
    forget(name);
    if (::unlinkat(directory_.get(), name.c_str(), 0) != 0) return failed("remove", name);
    return sync_directory();
  }

 private:
  static constexpr std::size_t kMaxCopyBytes = 16U << 20;

  absl::Status failed(const char* what, const std::string& name) const {
    const auto text = std::string{"cannot "} + what + " '" + path_ + (name.empty() ? "" : "/") + name + "': " + std::strerror(errno);
    return errno == EWOULDBLOCK ? absl::UnavailableError(text) : absl::InternalError(text);
  }

  absl::StatusOr<JournalFd> open_file(const std::string& name, int flags) const {
    JournalFd file{::openat(directory_.get(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600)};
    if (!file) return failed("open", name);
    struct stat found {};
    if (::fstat(file.get(), &found) != 0) return failed("look at", name);
    if (!S_ISREG(found.st_mode) || found.st_uid != ::geteuid())
      return absl::PermissionDeniedError("'" + name + "' in '" + path_ + "' is no file of this user");
    return file;
  }

  absl::Status write(const JournalFd& file, const std::string& name, std::string_view bytes, bool durable) const {
    while (!bytes.empty()) {
      const auto count = ::write(file.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return failed("write", name);
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    if (durable && ::fdatasync(file.get()) != 0) return failed("sync", name);
    return absl::OkStatus();
  }

  absl::Status sync_directory() const { return ::fsync(directory_.get()) == 0 ? absl::OkStatus() : failed("sync", ""); }

  void forget(const std::string& name) {
    if (name != current_name_) return;
    current_ = JournalFd{};
    current_name_.clear();
  }

  const std::string path_;
  JournalFd directory_;
  JournalFd lock_;
  JournalFd current_;  // the file that was appended to last
  std::string current_name_;
};

}  // namespace

std::unique_ptr<JournalDisk> posix_journal_disk(std::string path) { return std::make_unique<PosixJournalDisk>(std::move(path)); }

}  // namespace openshell::supervisor
