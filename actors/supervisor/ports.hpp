// What the supervisor's actors need from the outside, as interfaces: they know no socket, no gRPC and no engine. The program wires real
// ones, the tests fakes.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// The ConnectSupervisor stream. Functions return at once; events come through `sink` on foreign threads.
class SessionTransport {
 public:
  using Sink = std::function<void(SessionEvent)>;
  virtual ~SessionTransport() = default;
  /// Opens stream number `connection` with a hello; ends the one before. `Ended` comes exactly once for each.
  virtual void connect(std::uint64_t connection, Sink sink) = 0;
  virtual void heartbeat() = 0;
  /// Empty `error`: the target is open.
  virtual void relay_result(const std::string& channel_id, const std::string& error) = 0;
  virtual void update_result(const std::string& update_id, bool supported) = 0;
  virtual void disconnect() = 0;
};

/// Serves the relays that the gateway opens. Functions return at once.
class RelayHost {
 public:
  virtual ~RelayHost() = default;
  /// `opened` runs once, on any thread: with an empty text when the target is open, right before the relay's own stream is begun; else with
  /// what failed.
  virtual void open(RelayRequest request, std::function<void(std::string error)> opened) = 0;
  virtual void abort(const std::string& channel_id, const std::string& reason) = 0;
};

/// PushSandboxLogs. `sent` says whether the batch was handed to the stream; `ended` comes once for each connect.
class LogTransport {
 public:
  virtual ~LogTransport() = default;
  virtual void connect(std::function<void(int code)> ended) = 0;
  virtual void send(std::vector<LogLine> lines, std::function<void(bool sent)> done) = 0;
  virtual void finish() = 0;  ///< half-closes; the gateway then ends the stream
};

/// A runtime that was built and is not in force. Opaque to the actors.
class PreparedRuntime {
 public:
  virtual ~PreparedRuntime() = default;
};

/// Builds and swaps what decides the traffic. Called by RuntimePublisher only, on its thread; may take milliseconds.
class RuntimeHost {
 public:
  virtual ~RuntimeHost() = default;
  /// Builds policy and credentials of a candidate and changes nothing. An error is the construction error.
  virtual absl::StatusOr<std::unique_ptr<PreparedRuntime>> prepare(const Candidate& candidate) = 0;
  /// In one step: old guards invalid, new credentials visible, policy swapped. `done` runs on any thread when every live relay was judged
  /// anew.
  virtual void publish(std::unique_ptr<PreparedRuntime> prepared, std::function<void()> done) = 0;
  /// Denies everything until the next publish.
  virtual void quarantine(const std::string& reason) = 0;
  /// Ids of the endpoints that have a status, for what was published last; each once.
  virtual std::vector<std::string> observed_endpoints() const { return {}; }
  /// Which publication that is; results of its endpoints carry the same number.
  virtual std::uint64_t inventory() const { return 0; }
  /// The environment of new processes for what was published last: placeholders, never secrets.
  virtual std::map<std::string, std::string> child_environment() const = 0;
};

/// The sandbox runtime behind the channel. Functions return at once and answer on foreign threads.
class BoundaryPort {
 public:
  virtual ~BoundaryPort() = default;
  /// True in `done` when the runtime applied it (or holds it already).
  virtual void install(std::uint64_t revision, std::map<std::string, std::string> environment,
                       std::function<void(absl::StatusOr<bool>)> done) = 0;
  virtual void terminate(std::function<void(absl::Status)> done) = 0;
};

}  // namespace openshell::supervisor
