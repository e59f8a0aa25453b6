#include "programs/supervisor/decided_stream.hpp"

#include <utility>

#include "isolation/boundary/framing.hpp"

namespace openshell::supervisor {

void DecidedStream::decide(boundary::OpenDecision decision) {
  auto frame = boundary::encode_process_frame(boundary::Channel::tcp_decision, boundary::encode_open_decision(decision));
  call_->write(std::move(frame), [self = shared_from_this(), decision](const absl::Status& status) { self->decided(status, decision); });
}

void DecidedStream::decided(const absl::Status& status, boundary::OpenDecision decision) {
  if (!status.ok()) return fail(status);
  if (decision == boundary::OpenDecision::relay_ready) return carry(call_);
  if (decision == boundary::OpenDecision::relay_handover) return watch_call();
  call_->shutdown_write();
  drain();
}

/// The sandbox ends a refused stream; until then it is kept, since letting go would cut it before the decision arrived.
void DecidedStream::drain() {
  call_->read([self = shared_from_this()](const absl::StatusOr<std::string>& bytes) {
    if (bytes.ok() && !bytes->empty()) self->call_->reset();
  });
}

/// The runtime ends the call once it has passed the socket. If it breaks instead, none will come.
void DecidedStream::watch_call() {
  call_->read([self = shared_from_this()](const absl::StatusOr<std::string>& bytes) {
    const bool ended = bytes.ok() && bytes->empty();
    if (!ended) self->fail(bytes.ok() ? absl::InternalError("bytes on the call of a relay that was handed over") : bytes.status());
    self->call_->reset();
  });
}

void DecidedStream::carry(std::shared_ptr<egress::ByteStream> carrier) {
  std::unique_lock lock{mutex_};
  if (!broken_.ok()) {
    lock.unlock();
    return carrier->reset();
  }
  carrier_ = carrier;
  auto read = std::exchange(pending_read_, nullptr);
  auto written = std::exchange(pending_write_, nullptr);
  auto bytes = std::exchange(pending_bytes_, {});
  const bool end = end_;
  lock.unlock();
  if (read) carrier->read(std::move(read));
  if (written) {
    carrier->write(std::move(bytes), std::move(written));
  } else if (end) {
    carrier->shutdown_write();
  }
}

void DecidedStream::fail(const absl::Status& why) {
  std::unique_lock lock{mutex_};
  if (carrier_ != nullptr || !broken_.ok()) return;
  broken_ = why;
  auto read = std::exchange(pending_read_, nullptr);
  auto written = std::exchange(pending_write_, nullptr);
  lock.unlock();
  call_->reset();
  if (read) read(why);
  if (written) written(why);
}

void DecidedStream::read(ReadDone done) {
  std::unique_lock lock{mutex_};
  if (carrier_ == nullptr && broken_.ok()) {
    pending_read_ = std::move(done);
    return;
  }
  const auto carrier = carrier_;
  const auto why = broken_;
  lock.unlock();
  if (carrier == nullptr) return done(why);
  carrier->read(std::move(done));
}

void DecidedStream::write(std::string bytes, WriteDone done) {
  std::unique_lock lock{mutex_};
  if (carrier_ == nullptr && broken_.ok()) {
    pending_bytes_ = std::move(bytes);
    pending_write_ = std::move(done);
    return;
  }
  const auto carrier = carrier_;
  const auto why = broken_;
  lock.unlock();
  if (carrier == nullptr) return done(why);
  carrier->write(std::move(bytes), std::move(done));
}

std::optional<absl::Status> DecidedStream::try_write(std::string& bytes) {
  std::unique_lock lock{mutex_};
  const auto carrier = carrier_;
  lock.unlock();
  return carrier == nullptr ? std::nullopt : carrier->try_write(bytes);
}

void DecidedStream::shutdown_write() {
  std::unique_lock lock{mutex_};
  end_ = true;
  const auto carrier = carrier_;
  lock.unlock();
  if (carrier != nullptr) carrier->shutdown_write();
}

void DecidedStream::reset() {
  std::unique_lock lock{mutex_};
  const auto carrier = carrier_;
  lock.unlock();
  if (carrier != nullptr) {
    carrier->reset();
  } else {
    fail(absl::AbortedError("the stream was reset"));
  }
}

int DecidedStream::native_socket() const {
  const std::lock_guard lock{mutex_};
  return carrier_ == nullptr ? -1 : carrier_->native_socket();
}

}  // namespace openshell::supervisor
