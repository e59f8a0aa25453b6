#include "egress/relay/splice.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace openshell::egress {
namespace {

constexpr std::size_t kPiecesPerTurn = 8;  // then others have theirs: a fast stream is always ready
constexpr unsigned kFlags = SPLICE_F_NONBLOCK | SPLICE_F_MOVE;
thread_local std::size_t under_way = 0;

}  // namespace

struct Splice::Parts {
  explicit Parts(asio::io_context& context) : io{context}, from{context}, to{context} { ++under_way; }
  ~Parts() {
    --under_way;
    for (const int fd : pipe) {
      if (fd >= 0) ::close(fd);
    }
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  asio::io_context& io;
  asio::posix::stream_descriptor from, to;
  std::array<int, 2> pipe{-1, -1};
};

std::unique_ptr<Splice> Splice::make(asio::io_context& io, int from, int to) {
  if (from < 0 || to < 0 || under_way >= kMaxAtOnce) return nullptr;
  auto parts = std::make_unique<Parts>(io);
  if (::pipe2(parts->pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) return nullptr;
  ::fcntl(parts->pipe[1], F_SETPIPE_SZ, kPipeBytes);  // a smaller one only takes more calls
  const auto hold = [](asio::posix::stream_descriptor& descriptor, int fd) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    boost::system::error_code error;
    if (copy >= 0) descriptor.assign(copy, error);
    if (copy >= 0 && error) ::close(copy);
    return copy >= 0 && !error;
  };
  if (!hold(parts->from, from) || !hold(parts->to, to)) return nullptr;
  return std::unique_ptr<Splice>{new Splice{std::move(parts)}};
}

Splice::Splice(std::unique_ptr<Parts> parts) : parts_{std::move(parts)} {}
Splice::~Splice() = default;

void Splice::close() {
  boost::system::error_code ignored;
  parts_->from.close(ignored);
  parts_->to.close(ignored);
}

Task<SpliceEnd> Splice::run(std::function<void(std::size_t)> moved) {
  auto& parts = *parts_;
  boost::system::error_code error;
  for (std::size_t piece = 1; parts.from.is_open(); ++piece) {
    if (piece % kPiecesPerTurn == 0) {
      co_await asio::post(parts.io, asio::use_awaitable);
      if (!parts.from.is_open()) break;
    }
    const auto taken = ::splice(parts.from.native_handle(), nullptr, parts.pipe[1], nullptr, kPipeBytes, kFlags);
    if (taken == 0) co_return SpliceEnd::kSourceEnded;
    if (taken < 0 && errno != EAGAIN && errno != EINTR) co_return SpliceEnd::kBroken;
    if (taken < 0) {
      co_await parts.from.async_wait(asio::posix::stream_descriptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return SpliceEnd::kBroken;
      continue;
    }
    for (auto left = taken; left > 0;) {
      if (!parts.to.is_open()) co_return SpliceEnd::kBroken;
      const auto given = ::splice(parts.pipe[0], nullptr, parts.to.native_handle(), nullptr, static_cast<std::size_t>(left), kFlags);
      if (given > 0) {
        left -= given;
        moved(static_cast<std::size_t>(given));
        continue;
      }
      if (given == 0 || (errno != EAGAIN && errno != EINTR)) co_return SpliceEnd::kBroken;
      co_await parts.to.async_wait(asio::posix::stream_descriptor::wait_write, asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return SpliceEnd::kBroken;
    }
  }
  co_return SpliceEnd::kBroken;
}

}  // namespace openshell::egress
