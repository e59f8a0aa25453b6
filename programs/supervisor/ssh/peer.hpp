// What a channel of the SSH server talks to, and where it gets that from: seams between libssh's thread and the sandbox.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "isolation/boundary/control.hpp"
#include "programs/supervisor/process_session.hpp"

namespace openshell::supervisor {

/// The next thing that a client of a channel shall see.
struct PeerOutput {
  enum class Kind {
    output,        ///< `bytes`
    error_output,  ///< `bytes`, as extended data
    end,           ///< of the output; input goes on
    exit,          ///< `code`, behind all output; the channel ends
    broken,        ///< the channel ends without a status
  };
  Kind kind = Kind::output;
  std::string bytes;
  int code = 0;
};

/// One process, attachment or connection in the sandbox. Functions return at once; completions run once, on any thread, also inside the
/// call. One read and one write outstanding.
class ChannelPeer {
 public:
  using ReadDone = absl::AnyInvocable<void(PeerOutput)>;
  using WriteDone = absl::AnyInvocable<void(absl::Status)>;

  virtual ~ChannelPeer() = default;
  /// Nothing is taken from the sandbox before it is asked for: a slow client slows the process.
  virtual void read(ReadDone done) = 0;
  virtual void write(std::string bytes, WriteDone done) = 0;
  /// The client sends no more.
  virtual void close_input() = 0;
  virtual void resize(std::uint32_t columns, std::uint32_t rows) = 0;
  virtual void signal(boundary::ProcessSignal signal) = 0;
  /// The channel is gone: so is what belongs to it alone. Idempotent; completions that are outstanding may still come.
  virtual void close() = 0;
};

/// What the SSH server may ask of the sandbox. Any thread.
class SshWorkload {
 public:
  using Opened = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<ChannelPeer>>)>;

  virtual ~SshWorkload() = default;
  /// A process of the exec registry; errors as ProcessSession::open.
  virtual void start(ProcessRequest request, Opened done) = 0;
  /// A connection to `host`:`port` of the sandbox's loopback.
  virtual void connect(const std::string& host, std::uint16_t port, Opened done) = 0;
  /// Main, as `openshell-main` attaches to it. `line_end` ends our own messages. FailedPrecondition with the reason why not.
  virtual absl::StatusOr<std::shared_ptr<ChannelPeer>> attach_main(bool read_only, const std::string& line_end) = 0;
};

}  // namespace openshell::supervisor
