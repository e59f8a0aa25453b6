#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "egress/stream.hpp"
#include "isolation/boundary/control.hpp"
#include "isolation/boundary/launch_material.hpp"
#include "messages/secret.hpp"

namespace openshell::supervisor {

/// The answer to one request, and the stream that the request opened (of interest where the answer says so).
struct Opened {
  boundary::Response response;
  std::shared_ptr<egress::ByteStream> stream;
};

/// Calls of the channel end within this, but for attach and discover_policy (image pull, boot) and those that may wait for ever.
inline constexpr std::chrono::seconds kCallDeadline{30};
inline constexpr std::chrono::seconds kSlowCallDeadline{300};
inline constexpr std::chrono::seconds kProbeDeadline{5};

/// One connection to the sandbox runtime: gRPC over mutual TLS. It is never repaired: a broken one is dropped and another made, since the
/// runtime knows connections, not channels. Any thread.
class BoundaryChannel {
 public:
  using Bearer = std::function<absl::StatusOr<Secret>()>;  ///< the value of the `authorization` header
  using Done = absl::AnyInvocable<void(absl::StatusOr<Opened>)>;

  /// Unimplemented for a transport that is not built (vsock), InvalidArgument for bad TLS material. Connects with the first call.
  static absl::StatusOr<std::shared_ptr<BoundaryChannel>> make(const boundary::Descriptor& descriptor, Bearer bearer);
  ~BoundaryChannel();
  BoundaryChannel(const BoundaryChannel&) = delete;
  BoundaryChannel& operator=(const BoundaryChannel&) = delete;

  /// One Exchange (or Mediate, for open_mediation). `done` runs once. A status is a failure of the transport; a refusal is an answer
  /// (boundary::Error). `deadline` ends the whole call and is for requests that open no stream; nullopt: none.
  void request(const std::string& request_id, const boundary::Request& request, std::optional<std::chrono::milliseconds> deadline,
               Done done);

 private:
  class Stub;
  BoundaryChannel(std::unique_ptr<Stub> stub, Bearer bearer);
  std::unique_ptr<Stub> stub_;
  Bearer bearer_;
};

/// A version 4 UUID in canonical form.
std::string make_uuid();

}  // namespace openshell::supervisor
