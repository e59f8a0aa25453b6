// A bidirectional gRPC call as a stream of bytes: relays of the gateway and exchanges of the boundary channel are both read and written
// through it.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "egress/stream.hpp"

namespace openshell::api {

inline absl::Status to_absl(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

/// `Traits` says how bytes stand in a message:
///   static constexpr std::size_t kMaxBytes;                          what one message carries at most
///   static void put(Message&, std::string_view);
///   static std::optional<std::string> take(Message&);                nothing: the message is a protocol error
///
/// A message with no bytes ends the peer's direction, since a server cannot end its own without ending the call; the end of the call with
/// OK means the same. This side ends its direction with WritesDone. Any other end of the call is an error of the stream, never an end of
/// bytes. One read of gRPC is asked for at a time, and only when the owner reads, so that HTTP/2 flow control is what slows the peer.
/// Letting go of it cancels the call, except where both directions have ended.
template <class Message, class Traits>
class GrpcByteStream final : public egress::ByteStream {
 public:
  /// `begin(context, reactor)` starts the call on a callback stub; metadata and deadline are set in it.
  template <class Begin>
  static std::shared_ptr<GrpcByteStream> open(Begin begin) {
    auto call = std::make_shared<Call>();
    begin(&call->context, static_cast<grpc::ClientBidiReactor<Message, Message>*>(call.get()));
    call->begin();
    return std::shared_ptr<GrpcByteStream>{new GrpcByteStream{std::move(call)}};
  }

  ~GrpcByteStream() override { call_->let_go(); }

  void read(ReadDone done) override { call_->read(std::move(done)); }
  void write(std::string bytes, WriteDone done) override { call_->write(std::move(bytes), std::move(done)); }
  void shutdown_write() override { call_->shutdown_write(); }
  void reset() override { call_->release(); }

  /// Bytes that were read too far; the next read returns them. Only while no read is outstanding.
  void unread(std::string bytes) { call_->unread(std::move(bytes)); }
  /// Sends a first message that is not bytes. A write asked for meanwhile follows it.
  void send_first(Message message) { call_->send_first(std::move(message)); }

 private:
  class Call final : public grpc::ClientBidiReactor<Message, Message>, public std::enable_shared_from_this<Call> {
   public:
    grpc::ClientContext context;

    void begin() {
      self_ = this->shared_from_this();  // until OnDone, whatever the owner does
      this->AddHold();                   // operations are started from outside reactions
      this->StartCall();
    }

    void unread(std::string bytes) {
      const std::lock_guard lock{mutex_};
      pushed_back_ = std::move(bytes) + pushed_back_;
    }

    void read(ReadDone done) {
      std::unique_lock lock{mutex_};
      if (released_) return finish(lock, std::move(done), absl::AbortedError("the stream was reset"));
      if (!pushed_back_.empty()) return finish(lock, std::move(done), std::exchange(pushed_back_, {}));
      if (end_of_input_) return finish(lock, std::move(done), std::string{});
      if (outcome_) return finish(lock, std::move(done), end_of_call());
      read_done_ = std::move(done);
      start_read();
    }

    void write(std::string bytes, WriteDone done) {
      std::unique_lock lock{mutex_};
      if (auto broken = why_not_write(); !broken.ok()) return finish(lock, std::move(done), std::move(broken));
      write_done_ = std::move(done);
      pending_ = std::move(bytes);
      offset_ = 0;
      if (!first_in_flight_) start_write();
    }

    void send_first(Message message) {
      const std::lock_guard lock{mutex_};
      if (!why_not_write().ok()) return;
      first_in_flight_ = true;
      out_ = std::move(message);
      this->StartWrite(&out_);
    }

    void shutdown_write() {
      const std::lock_guard lock{mutex_};
      if (released_ || no_more_ || writes_done_) return;
      writes_done_ = true;
      if (!first_in_flight_) this->StartWritesDone();
    }

    void release() {
      std::unique_lock lock{mutex_};
      if (released_) return;
      released_ = true;
      const bool over = outcome_.has_value();
      auto read_done = std::exchange(read_done_, nullptr);
      auto write_done = std::exchange(write_done_, nullptr);
      const bool drop_hold = !std::exchange(hold_dropped_, true);
      const auto keep = self_;
      lock.unlock();
      if (!over) context.TryCancel();
      if (drop_hold) this->RemoveHold();
      if (read_done) read_done(absl::AbortedError("the stream was reset"));
      if (write_done) write_done(absl::AbortedError("the stream was reset"));
    }

    /// The owner is gone. A call that both sides have ended in order is left to end by itself: a cancellation would overtake the last
    /// bytes.
    void let_go() {
      std::unique_lock lock{mutex_};
      const bool in_order = writes_done_ && end_of_input_ && !protocol_error_ && !write_done_ && !first_in_flight_;
      if (released_ || !in_order) {
        lock.unlock();
        return release();
      }
      const bool drop_hold = !std::exchange(hold_dropped_, true);
      const auto keep = self_;
      lock.unlock();
      if (drop_hold) this->RemoveHold();
    }

    void OnReadDone(bool ok) override {
      std::unique_lock lock{mutex_};
      reading_ = false;
      if (!ok) {  // the call is ending: what it says comes with OnDone
        no_more_ = true;
        const bool drop_hold = !std::exchange(hold_dropped_, true);
        const auto keep = self_;
        lock.unlock();
        if (drop_hold) this->RemoveHold();
        return;
      }
      auto bytes = Traits::take(in_);
      if (!bytes || (end_of_input_ && !bytes->empty())) {
        protocol_error_ = true;
        lock.unlock();
        context.TryCancel();
        lock.lock();
        if (!released_) start_read();  // learns of the end
        return;
      }
      if (bytes->empty()) {
        end_of_input_ = true;
        if (!released_) start_read();  // the end of the call is still to be seen
        if (read_done_) finish(lock, std::exchange(read_done_, nullptr), std::string{});
        return;
      }
      if (read_done_) {
        finish(lock, std::exchange(read_done_, nullptr), std::move(*bytes));
      } else {
        pushed_back_ += *bytes;
      }
    }

    void OnWriteDone(bool ok) override {
      std::unique_lock lock{mutex_};
      if (std::exchange(first_in_flight_, false) && ok && !released_ && !no_more_) {
        if (write_done_) return start_write();
        if (writes_done_) this->StartWritesDone();
      }
      if (!write_done_) return;
      if (!ok) return finish(lock, std::exchange(write_done_, nullptr), absl::UnavailableError("the peer ended the stream"));
      if (offset_ < pending_.size() && !released_ && !no_more_) return start_write();
      const bool whole = offset_ >= pending_.size();
      finish(lock, std::exchange(write_done_, nullptr), whole ? absl::OkStatus() : absl::UnavailableError("the peer ended the stream"));
    }

    void OnDone(const grpc::Status& status) override {
      std::unique_lock lock{mutex_};
      outcome_ = protocol_error_ ? absl::InternalError("the peer broke the stream's protocol") : to_absl(status);
      auto read_done = std::exchange(read_done_, nullptr);
      auto write_done = std::exchange(write_done_, nullptr);
      auto end = end_of_call();
      const auto keep = std::exchange(self_, nullptr);
      lock.unlock();
      if (read_done) read_done(std::move(end));
      if (write_done) write_done(absl::UnavailableError("the peer ended the stream"));
    }

   private:
    absl::Status why_not_write() const {
      if (released_) return absl::AbortedError("the stream was reset");
      if (no_more_ || outcome_) return absl::UnavailableError("the peer ended the stream");
      return absl::OkStatus();
    }

    absl::StatusOr<std::string> end_of_call() const {
      if (!outcome_->ok()) return *outcome_;
      return std::string{};
    }

    void start_read() {
      if (reading_ || no_more_) return;
      reading_ = true;
      this->StartRead(&in_);
    }

    void start_write() {
      const auto piece = std::string_view{pending_}.substr(offset_, Traits::kMaxBytes);
      offset_ += piece.size();
      Traits::put(out_, piece);
      this->StartWrite(&out_);
    }

    // A completion runs without the lock, since it may ask for the next operation at once.
    template <class Done, class Value>
    static void finish(std::unique_lock<std::mutex>& lock, Done done, Value value) {
      lock.unlock();
      done(std::move(value));
    }

    std::mutex mutex_;
    std::shared_ptr<Call> self_;
    Message in_, out_;
    ReadDone read_done_;
    WriteDone write_done_;
    std::string pushed_back_;
    std::string pending_;
    std::size_t offset_ = 0;
    std::optional<absl::Status> outcome_;
    bool first_in_flight_ = false;
    bool reading_ = false;
    bool end_of_input_ = false;
    bool writes_done_ = false;
    bool no_more_ = false;  // a read of gRPC failed: nothing may be started any more
    bool released_ = false;
    bool hold_dropped_ = false;
    bool protocol_error_ = false;
  };

  explicit GrpcByteStream(std::shared_ptr<Call> call) : call_{std::move(call)} {}

  std::shared_ptr<Call> call_;
};

}  // namespace openshell::api
