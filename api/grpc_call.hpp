// One gRPC call as handlers see it: reads asked for one at a time, writes queued, one end. Internal to the shell.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "api/service.hpp"

namespace openshell::api {

/// Translates between the two worlds. Operations on the reactor are started by one thread at a time (`pump`), outside the lock, because
/// gRPC may run a completion on the thread that started the operation; nothing is started once Finish was.
class GrpcCall final : public grpc::ServerGenericBidiReactor, public internal::Call, public std::enable_shared_from_this<GrpcCall> {
 public:
  /// Owned by the call itself until gRPC is done with it, and by whoever keeps a handle.
  static std::shared_ptr<GrpcCall> create(grpc::CallbackServerContext& ctx);

  void read(std::shared_ptr<google::protobuf::MessageLite> into, std::function<void(bool)> then) override;
  void write(const google::protobuf::MessageLite& message, std::function<void(bool)> then) override;
  void finish(absl::Status status, const google::protobuf::MessageLite* last) override;
  void on_done(std::function<void()> callback) override;
  std::size_t queued_bytes() const override;
  bool over() const override;
  void mark_replayed() override;

 private:
  struct Outgoing {
    grpc::ByteBuffer bytes;
    std::size_t size = 0;
    std::function<void(bool)> then;
  };
  struct Reading {
    std::shared_ptr<google::protobuf::MessageLite> into;
    std::function<void(bool)> then;
  };
  enum class Step { kNone, kRead, kWrite, kWriteAndFinish, kFinish };

  explicit GrpcCall(grpc::CallbackServerContext& ctx) : ctx_{ctx} {}
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  /// What runs at the end is short and never waits: no thread of another pool has to be woken for it, once for every call.
  bool InternalInlineable() override { return true; }

  void pump();
  Step next_step();                                          // under the lock
  std::vector<std::function<void()>> take_done_callbacks();  // under the lock

  grpc::CallbackServerContext& ctx_;  // gRPC's; there until OnDone
  mutable std::mutex mutex_;
  std::shared_ptr<GrpcCall> self_;
  grpc::ByteBuffer incoming_;
  std::optional<Reading> reading_;
  bool read_started_ = false;
  bool reads_ended_ = false;
  std::deque<Outgoing> writes_;  // the front one is on its way when write_started_
  std::size_t queued_ = 0;
  bool write_started_ = false;
  std::optional<grpc::Status> end_;
  bool last_with_end_ = false;  // the last queued message goes out with the status
  bool finish_started_ = false;
  bool over_ = false;
  bool pumping_ = false;
  std::vector<std::function<void()>> done_callbacks_;
};

/// As gRPC sends it, details in the trailer.
grpc::Status to_grpc(const absl::Status& status);

}  // namespace openshell::api
