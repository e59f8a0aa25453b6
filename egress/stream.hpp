// The one way in which bytes between a workload and the egress pipeline travel, whatever carries them.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace openshell::egress {

/// A bidirectional stream of bytes with half-close, reset and backpressure. Two carriers exist: bytes over the boundary channel (written by
/// whoever owns that channel) and a connected socket (`make_socket_stream`); TLS is a third implementation, laid over either.
///
/// Contract:
/// - At most one `read` and one `write` are outstanding at a time; both may be outstanding together. The caller keeps to that.
/// - A completion runs exactly once, on any thread, also inside the call that asked for it. The pipeline moves to its own thread by itself.
/// - Backpressure is the pull: nothing is read from the carrier (beyond its own flow-control window) unless `read` was called, and `write`
///   completes only when the carrier has taken the bytes. Nobody queues without bound behind either.
/// - After `reset()` every outstanding completion runs with ABORTED, and so does every later call.
/// - The last owner may let go while calls are outstanding: that is a `reset()`. Let go with nothing outstanding after `shutdown_write()`,
///   the stream ends in order and what the peer still sends is thrown away; let go without it, that is a `reset()` too.
class ByteStream {
 public:
  /// OK and 1..kMaxChunk bytes; OK and no bytes: the peer ended this direction (from then on always); an error: the stream is broken.
  using ReadDone = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;
  using WriteDone = absl::AnyInvocable<void(absl::Status)>;

  static constexpr std::size_t kMaxChunk = 64 * 1024;  ///< bytes one read delivers at most

  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  virtual void read(ReadDone done) = 0;
  /// Any size above zero; the implementation splits as its carrier needs. Completes when all of it is taken.
  virtual void write(std::string bytes, WriteDone done) = 0;
  /// What of `write` can be done within this call: OK or an error, and it is done; nullopt: what is left of `bytes` is to be given to
  /// `write`. The same rules as for `write`.
  virtual std::optional<absl::Status> try_write([[maybe_unused]] std::string& bytes) { return std::nullopt; }
  /// Ends this side's direction after what was written; the other direction goes on. Asked once, never while a write is outstanding.
  virtual void shutdown_write() = 0;
  /// Breaks the stream in both directions so that the peer notices (TCP RST, gRPC error). Idempotent, callable from any thread.
  virtual void reset() = 0;
  /// The socket that carries this stream and nothing else, for I/O by a shorter way on the engine's thread; -1: there is none. It stays the
  /// stream's.
  [[nodiscard]] virtual int native_socket() const { return -1; }
};

/// A connected stream socket that the egress threads drive. Takes ownership of `fd`, which is made non-blocking.
/// The engine recognises it, so that a raw relay between two of them can be spliced. Reset sends RST where the socket is TCP.
class Engine;
std::shared_ptr<ByteStream> make_socket_stream(Engine& engine, int fd);
/// The same for users on other threads than the engine's: every call is carried over to it. Never spliced.
std::shared_ptr<ByteStream> make_posted_socket_stream(Engine& engine, int fd);

}  // namespace openshell::egress
