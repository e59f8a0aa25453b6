// The stream of one open of the workload: first the decision goes to the sandbox runtime over the call, then bytes go wherever they go.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "egress/stream.hpp"
#include "isolation/boundary/control.hpp"

namespace openshell::supervisor {

/// What the engine asks for before a carrier stands waits for it. After a refusal the call is ended in order, so that the workload's
/// connect gets its errno. Any thread; what a socket carries is asked for on the engine's thread only, as its contract says.
class DecidedStream final : public egress::ByteStream, public std::enable_shared_from_this<DecidedStream> {
 public:
  /// `closed` runs when the stream is let go of.
  DecidedStream(std::shared_ptr<egress::ByteStream> call, std::function<void()> closed)
      : call_{std::move(call)}, closed_{std::move(closed)} {}
  ~DecidedStream() override { closed_(); }

  /// Once. relay_ready: the call carries from now on. relay_handover: `carry` or `fail` follows.
  void decide(boundary::OpenDecision decision);
  /// The carrier stands. On the engine's thread.
  void carry(std::shared_ptr<egress::ByteStream> carrier);
  /// There will be none.
  void fail(const absl::Status& why);

  void read(ReadDone done) override;
  void write(std::string bytes, WriteDone done) override;
  std::optional<absl::Status> try_write(std::string& bytes) override;
  void shutdown_write() override;
  void reset() override;
  [[nodiscard]] int native_socket() const override;

 private:
  void decided(const absl::Status& status, boundary::OpenDecision decision);
  void watch_call();
  void drain();

  const std::shared_ptr<egress::ByteStream> call_;
  const std::function<void()> closed_;
  mutable std::mutex mutex_;
  std::shared_ptr<egress::ByteStream> carrier_;  // null until it stands
  absl::Status broken_;
  ReadDone pending_read_;
  std::string pending_bytes_;
  WriteDone pending_write_;
  bool end_ = false;
};

}  // namespace openshell::supervisor
