#include "cli/ssh/remote.hpp"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cli/ssh/ssh_program.hpp"

namespace openshell::cli {
namespace {

class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) == 0) read_ = ends[0], write_ = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int read_end() const { return read_; }
  [[nodiscard]] int write_end() const { return write_; }
  void close_read() { close(read_); }
  void close_write() { close(write_); }

 private:
  static void close(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  int read_ = -1, write_ = -1;
};

absl::StatusOr<SshRun> command_for(const SshSession& session, const std::string& command) {
  return ssh_for(session, {"-T", "sandbox", command});
}

}  // namespace

absl::StatusOr<RemoteResult> run_remote(const SshSession& session, const std::string& command) {
  RemoteResult result;
  auto code = read_remote(session, command, [&result](int fd) {
    std::array<char, 4'096> buffer{};
    while (true) {
      const auto count = ::read(fd, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return absl::OkStatus();
      if (result.output.size() + static_cast<std::size_t>(count) > kMaxCapture)
        return absl::ResourceExhaustedError("the sandbox answers with more than 64 KiB");
      result.output.append(buffer.data(), static_cast<std::size_t>(count));
    }
  });
  if (!code.ok()) return code.status();
  result.code = *code;
  return result;
}

absl::StatusOr<int> feed_remote(const SshSession& session, const std::string& command, const std::function<absl::Status(int fd)>& write) {
  auto run = command_for(session, command);
  if (!run.ok()) return run.status();
  Pipe pipe;
  run->input = pipe.read_end();
  auto child = start_ssh(*run);
  if (!child.ok()) return child.status();
  pipe.close_read();
  const auto written = write(pipe.write_end());
  if (!written.ok() && !absl::IsAborted(written)) ::kill(*child, SIGTERM);  // Aborted: ssh stopped reading, its code says why
  pipe.close_write();
  const int code = wait_for(*child);
  if (!written.ok() && !absl::IsAborted(written)) return written;
  return code;
}

absl::StatusOr<int> read_remote(const SshSession& session, const std::string& command, const std::function<absl::Status(int fd)>& read) {
  auto run = command_for(session, command);
  if (!run.ok()) return run.status();
  Pipe pipe;
  run->output = pipe.write_end();
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  run->input = nothing;
  auto child = start_ssh(*run);
  ::close(nothing);
  if (!child.ok()) return child.status();
  pipe.close_write();
  const auto status = read(pipe.read_end());
  if (!status.ok()) ::kill(*child, SIGTERM);
  pipe.close_read();
  const int code = wait_for(*child);
  if (!status.ok()) return status;
  return code;
}

bool is_canonical(const std::string& path) {
  if (path.empty() || path.front() != '/' || (path.size() > 1 && path.back() == '/')) return false;
  for (std::size_t at = 1; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

absl::StatusOr<std::string> remote_workspace(const SshSession& session) {
  auto answer = run_remote(session, "pwd -P");
  if (!answer.ok()) return answer.status();
  if (answer->code != 0) return absl::UnavailableError(absl::StrCat("`pwd -P` in the sandbox exited with status ", answer->code));
  auto path = answer->output;
  while (path.ends_with('\n')) path.pop_back();
  if (!is_canonical(path) || path == "/")
    return absl::FailedPreconditionError("the sandbox's workspace is not an absolute, canonical path below `/`");
  return path;
}

}  // namespace openshell::cli
