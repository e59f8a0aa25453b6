// Bytes from one socket to another without a copy into this process: splice(2) through a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "egress/io/streams.hpp"

namespace openshell::egress {

enum class SpliceEnd : std::uint8_t { kSourceEnded, kBroken };

/// One direction between two sockets, of which it holds duplicates, and a pipe. I/O thread.
class Splice {
 public:
  static constexpr int kPipeBytes = 256 * 1024;
  static constexpr std::size_t kMaxAtOnce = 64;  ///< directions, of all relays: each holds four descriptors

  /// Null where there is no room, or no descriptor left: the caller copies as before.
  static std::unique_ptr<Splice> make(asio::io_context& io, int from, int to);
  ~Splice();
  Splice(const Splice&) = delete;
  Splice& operator=(const Splice&) = delete;

  /// Until `from` ends or something breaks. `moved` runs with every piece.
  Task<SpliceEnd> run(std::function<void(std::size_t)> moved);
  /// Ends `run` with kBroken and lets go of the sockets.
  void close();

 private:
  struct Parts;
  explicit Splice(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace openshell::egress
