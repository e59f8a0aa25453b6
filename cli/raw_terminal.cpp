#include "cli/raw_terminal.hpp"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace openshell::cli {
namespace {

constexpr std::size_t kKeys = 4'096;
constexpr std::array kDeadly{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT};

// Read by signal handlers, so plain memory of the process; written before they are installed.
termios before;
termios raw;
volatile sig_atomic_t active = 0;
int size_pipe[2] = {-1, -1};
struct sigaction previous[NSIG];

void restore() {
  if (active == 0) return;
  active = 0;
  // TCSANOW: what was typed ahead belongs to the shell that comes next, as after ssh. A stopped background job must not be stopped by this.
  sigset_t block, old;
  sigemptyset(&block);
  sigaddset(&block, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &block, &old);
  tcsetattr(STDIN_FILENO, TCSANOW, &before);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void die(int signal) {
  restore();
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
  raise(signal);
}

void changed_size(int) {
  const int saved = errno;
  const char one = 1;
  if (write(size_pipe[1], &one, 1) < 0) errno = saved;  // full: a change is already told
  errno = saved;
}

/// Stopped from outside (the key itself goes to the remote side): the shell gets its terminal back until we are continued.
void stop(int) {
  const int saved = errno;
  tcsetattr(STDIN_FILENO, TCSANOW, &before);
  raise(SIGSTOP);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  changed_size(0);
  errno = saved;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, &previous[signal]);
}

std::optional<WindowSize> size_of(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return std::nullopt;
  return WindowSize{size.ws_col, size.ws_row};
}

}  // namespace

std::optional<WindowSize> window_size() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (auto size = size_of(fd)) return size;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<RawTerminal>> RawTerminal::enter() {
  if (tcgetattr(STDIN_FILENO, &before) != 0) return absl::FailedPreconditionError("stdin is not a terminal");
  if (size_pipe[0] < 0 && pipe2(size_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  raw = before;
  cfmakeraw(&raw);
  static const int at_exit = std::atexit(restore);
  (void)at_exit;
  for (const int signal : kDeadly) handle(signal, die);
  handle(SIGTSTP, stop);
  handle(SIGWINCH, changed_size);
  active = 1;
  if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) {
    const int error = errno;
    active = 0;
    return absl::FailedPreconditionError(absl::StrCat("the terminal cannot be switched to raw mode: ", std::strerror(error)));
  }
  return std::unique_ptr<RawTerminal>{new RawTerminal};
}

RawTerminal::~RawTerminal() {
  restore();
  for (const int signal : kDeadly) sigaction(signal, &previous[signal], nullptr);
  sigaction(SIGTSTP, &previous[SIGTSTP], nullptr);
  sigaction(SIGWINCH, &previous[SIGWINCH], nullptr);
}

absl::StatusOr<TerminalEvent> RawTerminal::next() {
  while (true) {
    pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {size_pipe[0], POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return absl::InternalError(absl::StrCat("cannot wait for keys: ", std::strerror(errno)));
    }
    if (fds[1].revents != 0) {
      char drop[64];
      while (read(size_pipe[0], drop, sizeof drop) > 0) {
      }
      if (auto size = size_of(STDIN_FILENO)) return *size;
    }
    if (fds[0].revents == 0) continue;
    Typed typed{std::string(kKeys, '\0')};
    const auto count = read(STDIN_FILENO, typed.bytes.data(), typed.bytes.size());
    if (count > 0) {
      typed.bytes.resize(static_cast<std::size_t>(count));
      return typed;
    }
    if (count == 0 || errno == EIO || errno == EBADF) return Hangup{};
    if (errno != EINTR && errno != EAGAIN) return absl::InternalError(absl::StrCat("cannot read keys: ", std::strerror(errno)));
  }
}

}  // namespace openshell::cli
