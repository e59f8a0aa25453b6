// One call of the channel (Exchange or Mediate) as the actors see it: a request that is answered once, and what it becomes afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "isolation/boundary/control.hpp"
#include "isolation/boundary/session_token.hpp"
#include "messages/sandbox.hpp"

namespace openshell::sandbox {

/// The stream that an answered call becomes: process I/O, a relay, DNS. Its functions are called by gRPC's threads, one at a time per
/// direction; it answers through the call. Bytes come only on demand: `received` is followed by another only after Call::read, `written`
/// says that another write is welcome. That is the back-pressure in both directions.
class CallStream {
 public:
  virtual ~CallStream() = default;
  virtual void start(std::shared_ptr<Call> call) = 0;  ///< the response is on its way
  virtual void received(std::string bytes) = 0;
  virtual void received_end() = 0;  ///< the peer ended its direction, or the call broke
  virtual void written() = 0;
  virtual void ended() = 0;  ///< the call is over; the last thing that happens, exactly once, only after start
};

struct CallRequest {
  ConnectionNumber connection = 0;
  std::string bearer_fingerprint;  ///< SHA-256 of the token, hex
  boundary::SessionClaims claims;  ///< of the bearer of this call
  bool mediate = false;            ///< came over Mediate
  boundary::RequestEnvelope envelope;
};

struct Answer {
  boundary::Response response;
  std::shared_ptr<CallStream> stream;  ///< null: the call ends with the response
};

/// How a call ends.
enum class CallEnd { done, refused, broken };

/// Thread-safe. All functions do nothing once the call is over.
class Call {
 public:
  virtual ~Call() = default;
  [[nodiscard]] virtual const std::shared_ptr<const CallRequest>& request() const = 0;
  /// Once. Without a stream the call ends when the response was written.
  virtual void respond(const boundary::Response& response, std::shared_ptr<CallStream> stream = nullptr) = 0;
  virtual void read() = 0;                    ///< ask for the next bytes; one outstanding
  virtual void write(std::string bytes) = 0;  ///< at most one until `written`; empty bytes are sent as an empty chunk
  virtual void finish(CallEnd end, const std::string& message = {}) = 0;
  [[nodiscard]] virtual bool over() const = 0;
  /// Runs when the call is over, at once if it is already. On a gRPC thread.
  virtual void on_over(std::function<void()> then) = 0;
};

[[nodiscard]] inline Outcome outcome(boundary::Response response, std::shared_ptr<CallStream> stream = nullptr) {
  return {std::make_shared<Answer>(Answer{std::move(response), std::move(stream)})};
}
[[nodiscard]] inline Outcome refusal(boundary::ErrorKind kind, std::string message) {
  return outcome(boundary::Error{kind, std::move(message)});
}

}  // namespace openshell::sandbox
