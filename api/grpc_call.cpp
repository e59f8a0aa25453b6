#include "api/grpc_call.hpp"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <utility>

#include "api/errors.hpp"

namespace openshell::api {
namespace {

grpc::ByteBuffer serialize(const google::protobuf::MessageLite& message) {
  const std::size_t size = message.ByteSizeLong();
  grpc_slice bytes = grpc_slice_malloc(size);
  message.SerializeWithCachedSizesToArray(GRPC_SLICE_START_PTR(bytes));
  const grpc::Slice slice{bytes, grpc::Slice::STEAL_REF};
  return grpc::ByteBuffer{&slice, 1};
}

bool parse(grpc::ByteBuffer& bytes, google::protobuf::MessageLite& into) {
  grpc::ProtoBufferReader reader{&bytes};
  return reader.status().ok() && into.ParseFromZeroCopyStream(&reader);
}

void run_all(const std::vector<std::function<void()>>& callbacks) {
  for (const auto& callback : callbacks) callback();
}

}  // namespace

grpc::Status to_grpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status{static_cast<grpc::StatusCode>(status.code()), std::string{status.message()}, status_details(status)};
}

std::shared_ptr<GrpcCall> GrpcCall::create(grpc::CallbackServerContext& ctx) {
  std::shared_ptr<GrpcCall> call{new GrpcCall{ctx}};
  call->self_ = call;
  return call;
}

void GrpcCall::read(std::shared_ptr<google::protobuf::MessageLite> into, std::function<void(bool)> then) {
  {
    const std::lock_guard lock{mutex_};
    if (!over_ && !end_ && !reads_ended_ && !reading_) {
      reading_ = Reading{std::move(into), std::move(then)};
      then = nullptr;
    }
  }
  if (then) return then(false);
  pump();
}

void GrpcCall::write(const google::protobuf::MessageLite& message, std::function<void(bool)> then) {
  bool refused = false;
  {
    const std::lock_guard lock{mutex_};
    refused = over_ || end_;
    if (!refused) {
      Outgoing out{serialize(message), message.ByteSizeLong(), std::move(then)};
      queued_ += out.size;
      writes_.push_back(std::move(out));
    }
  }
  if (!refused) return pump();
  if (then) then(false);
}

void GrpcCall::finish(absl::Status status, const google::protobuf::MessageLite* last) {
  {
    const std::lock_guard lock{mutex_};
    if (over_ || end_) return;
    if (status.ok() && last != nullptr) {
      writes_.push_back({serialize(*last), last->ByteSizeLong(), {}});
      queued_ += writes_.back().size;
      last_with_end_ = true;
    }
    end_ = to_grpc(status);
  }
  pump();
}

void GrpcCall::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock{mutex_};
    if (!over_) {
      done_callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

std::size_t GrpcCall::queued_bytes() const {
  const std::lock_guard lock{mutex_};
  return queued_;
}

bool GrpcCall::over() const {
  const std::lock_guard lock{mutex_};
  return over_;
}

void GrpcCall::mark_replayed() {
  const std::lock_guard lock{mutex_};
  if (!over_ && !end_) ctx_.AddInitialMetadata("openshell-replayed", "true");
}

GrpcCall::Step GrpcCall::next_step() {
  if (finish_started_) return Step::kNone;
  if (!write_started_) {
    if (end_ && writes_.empty()) return Step::kFinish;
    if (end_ && writes_.size() == 1 && last_with_end_) return Step::kWriteAndFinish;
    if (!writes_.empty()) return Step::kWrite;
  }
  if (reading_ && !read_started_ && !end_) return Step::kRead;
  return Step::kNone;
}

void GrpcCall::pump() {
  const std::shared_ptr<GrpcCall> keep = shared_from_this();
  std::unique_lock lock{mutex_};
  if (pumping_) return;  // whoever pumps looks again before it stops
  pumping_ = true;
  for (Step step = next_step(); step != Step::kNone; step = next_step()) {
    grpc::ByteBuffer* out = writes_.empty() ? nullptr : &writes_.front().bytes;
    if (step == Step::kRead) read_started_ = true;
    if (step == Step::kWrite || step == Step::kWriteAndFinish) write_started_ = true;
    if (step == Step::kFinish || step == Step::kWriteAndFinish) finish_started_ = true;
    lock.unlock();
    switch (step) {
      case Step::kRead:
        StartRead(&incoming_);
        break;
      case Step::kWrite:
        StartWrite(out);
        break;
      case Step::kWriteAndFinish:
        StartWriteAndFinish(out, grpc::WriteOptions{}, *end_);
        break;
      case Step::kFinish:
        Finish(*end_);
        break;
      case Step::kNone:
        break;
    }
    lock.lock();
  }
  pumping_ = false;
}

void GrpcCall::OnReadDone(bool ok) {
  std::optional<Reading> reading;
  {
    const std::lock_guard lock{mutex_};
    reading = std::exchange(reading_, std::nullopt);
    read_started_ = false;
    if (!ok) reads_ended_ = true;
  }
  if (!reading) return;
  if (ok && !parse(incoming_, *reading->into)) {
    finish(absl::InvalidArgumentError("request message can not be decoded"), nullptr);
    ok = false;
  }
  incoming_.Clear();
  reading->then(ok);
  pump();
}

void GrpcCall::OnWriteDone(bool ok) {
  Outgoing out;
  {
    const std::lock_guard lock{mutex_};
    out = std::move(writes_.front());
    writes_.pop_front();
    queued_ -= out.size;
    write_started_ = false;
  }
  if (out.then) out.then(ok);
  pump();
}

std::vector<std::function<void()>> GrpcCall::take_done_callbacks() {
  over_ = true;
  return std::exchange(done_callbacks_, {});
}

void GrpcCall::OnCancel() {
  std::vector<std::function<void()>> callbacks;
  std::vector<Outgoing> dropped;
  {
    const std::lock_guard lock{mutex_};
    callbacks = take_done_callbacks();
    // What is on its way completes by itself; the rest can reach nobody.
    while (writes_.size() > (write_started_ ? 1U : 0U)) {
      queued_ -= writes_.back().size;
      dropped.push_back(std::move(writes_.back()));
      writes_.pop_back();
    }
    last_with_end_ = false;
    if (!end_) end_ = grpc::Status{grpc::StatusCode::CANCELLED, "cancelled"};
  }
  for (const auto& out : dropped) {
    if (out.then) out.then(false);
  }
  run_all(callbacks);
  pump();
}

void GrpcCall::OnDone() {
  std::shared_ptr<GrpcCall> keep;
  std::vector<std::function<void()>> callbacks;
  std::optional<Reading> reading;
  std::deque<Outgoing> dropped;
  {
    const std::lock_guard lock{mutex_};
    callbacks = take_done_callbacks();
    reading = std::exchange(reading_, std::nullopt);
    dropped = std::exchange(writes_, {});
    queued_ = 0;
    keep = std::move(self_);
  }
  if (reading) reading->then(false);
  for (const auto& out : dropped) {
    if (out.then) out.then(false);
  }
  run_all(callbacks);
}

}  // namespace openshell::api
