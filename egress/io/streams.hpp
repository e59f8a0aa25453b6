// Byte streams as coroutines see them. Everything here belongs to the engine's I/O thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "egress/stream.hpp"

namespace openshell::egress {

namespace asio = boost::asio;
template <class T>
using Task = asio::awaitable<T>;

/// ByteStream with the same contract, awaited. One read and one write at a time.
class AsyncStream {
 public:
  AsyncStream() = default;
  AsyncStream(const AsyncStream&) = delete;
  AsyncStream& operator=(const AsyncStream&) = delete;
  virtual ~AsyncStream() = default;
  virtual Task<absl::StatusOr<std::string>> read() = 0;
  virtual Task<absl::Status> write(std::string bytes) = 0;
  virtual Task<void> shutdown_write() = 0;
  virtual void reset() = 0;
};

/// Brings completions, which come on any thread, to the I/O thread. Keeps the context alive for completions that outlive the engine.
class CarrierStream final : public AsyncStream {
 public:
  CarrierStream(std::shared_ptr<asio::io_context> io, std::shared_ptr<ByteStream> carrier)
      : io_{std::move(io)}, carrier_{std::move(carrier)} {}
  Task<absl::StatusOr<std::string>> read() override;
  Task<absl::Status> write(std::string bytes) override;
  Task<void> shutdown_write() override;
  void reset() override { carrier_->reset(); }

 private:
  std::shared_ptr<asio::io_context> io_;
  std::shared_ptr<ByteStream> carrier_;
};

/// `fd` is a connected stream socket; it is owned and made non-blocking.
std::shared_ptr<ByteStream> make_socket_stream(const std::shared_ptr<asio::io_context>& io, int fd);
/// May be used, and let go, on any thread.
std::shared_ptr<ByteStream> make_posted_socket_stream(const std::shared_ptr<asio::io_context>& io, int fd);

/// Bytes that were read but not used yet, in front of a stream.
class Reader {
 public:
  explicit Reader(AsyncStream& stream) : stream_{&stream} {}
  [[nodiscard]] std::string_view buffered() const noexcept { return std::string_view{buffer_}.substr(at_); }
  void consume(std::size_t count) noexcept;
  /// All that is buffered.
  std::string take();
  /// Puts bytes in front of what is read next.
  void put_back(std::string bytes);
  /// Reads once more. False: the peer ended its direction.
  Task<absl::StatusOr<bool>> fill();

  /// Reads once in the background while nobody else does, so that a peer that goes away is noticed at once. `on_end` runs where the
  /// stream broke or the peer ended its direction (true: broken). The bytes, if any, are what the next `fill` finds.
  void read_ahead(asio::io_context& io, std::function<void(bool)> on_end);
  /// A background read is under way; the stream must not be read otherwise, nor destroyed.
  [[nodiscard]] bool reading_ahead() const noexcept;
  Task<void> settle();

 private:
  struct Ahead;
  Task<absl::StatusOr<bool>> fill_now();
  Task<void> run_ahead(std::shared_ptr<Ahead> ahead, std::function<void(bool)> on_end);

  AsyncStream* stream_;
  std::shared_ptr<Ahead> ahead_;
  std::string buffer_;
  std::size_t at_ = 0;
};

/// Resets a stream when time is up, so that whoever waits on it wakes with an error. Dies with its scope.
class Watchdog {
 public:
  Watchdog(asio::io_context& io, AsyncStream& stream) : Watchdog{io, [&stream] { stream.reset(); }} {}
  Watchdog(asio::io_context& io, std::function<void()> on_time_up) : timer_{io}, on_time_up_{std::move(on_time_up)} {}
  ~Watchdog() { disarm(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  void arm(std::chrono::milliseconds after);
  void disarm() noexcept;
  [[nodiscard]] bool fired() const noexcept { return *fired_; }

 private:
  asio::steady_timer timer_;
  std::function<void()> on_time_up_;
  std::shared_ptr<bool> fired_ = std::make_shared<bool>(false);
  std::shared_ptr<bool> alive_;
};

/// A door that opens once; coroutines wait before it, and go on in their own turn. It outlives them.
class Gate {
 public:
  explicit Gate(asio::io_context& io) : io_{io} {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open();
  Task<void> wait();

 private:
  Task<void> pass();

  asio::io_context& io_;
  std::vector<absl::AnyInvocable<void()>> waiting_;
  bool open_ = false;
};

}  // namespace openshell::egress
