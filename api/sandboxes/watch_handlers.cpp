// Watching a sandbox, its log lines, and the supervisor that pushes them.
#include <atomic>

#include "actors/gateway/watch_sink.hpp"
#include "api/sandboxes/plane.hpp"

namespace openshell::api {
namespace {

using WatchStream = Stream<Nothing, pb::SandboxStreamEvent>;

/// Counts what the transport has not taken; the bus is told when that is too much.
class StreamSink : public gateway::WatchSink {
 public:
  explicit StreamSink(WatchStream stream) : stream_{std::move(stream)} {}
  bool closed() const override { return stream_.over(); }
  bool push(const pb::SandboxStreamEvent& event) override {
    if (*queued_ >= gateway::kMaxQueuedToWatcher) return false;
    ++*queued_;
    stream_.write(event, [queued = queued_](bool) { --*queued; });
    return true;
  }
  void close(const absl::Status& status) override { stream_.finish(status); }

 private:
  WatchStream stream_;
  std::shared_ptr<std::atomic<int>> queued_ = std::make_shared<std::atomic<int>>(0);
};

void watch(const PlanePtr& plane, const Context& ctx, pb::WatchSandboxRequest request, const WatchStream& stream) {
  auto shared = std::make_shared<const pb::WatchSandboxRequest>(std::move(request));
  with_sandbox(
      plane, ctx, shared->workspace_scope(), shared->sandbox(), "sandbox", WorkspaceRole::kUser,
      [=](const std::shared_ptr<SandboxHandle>& found) {
        std::shared_ptr<gateway::WatchSink> sink = std::make_shared<StreamSink>(stream);
        ask<gateway::Outcome>(
            plane->system, plane->actors.bus,
            [stream](const gateway::Outcome& subscribed) {
              if (!subscribed.status.ok()) stream.finish(subscribed.status);
            },
            Ask<pb::WatchSandboxRequest>{shared, caller_of(*ctx)}, found->sandbox_id, sink);
      },
      [stream](const absl::Status& status) { stream.finish(status); });
}

/// One stream of pushed lines. The first batch says whose they are.
class LogPush : public std::enable_shared_from_this<LogPush> {
 public:
  using In = Stream<pb::PushSandboxLogsRequest, pb::PushSandboxLogsResponse>;
  LogPush(PlanePtr plane, Context ctx, In stream) : plane_{std::move(plane)}, ctx_{std::move(ctx)}, stream_{std::move(stream)} {}

  void next() {
    stream_.read([self = shared_from_this()](std::optional<pb::PushSandboxLogsRequest> batch) {
      batch ? self->take(std::make_shared<const pb::PushSandboxLogsRequest>(std::move(*batch)))
            : self->stream_.finish_with(pb::PushSandboxLogsResponse{});
    });
  }

 private:
  void take(std::shared_ptr<const pb::PushSandboxLogsRequest> batch) {
    if (batch->sandbox_id().empty()) return next();
    if (!sandbox_.empty()) {
      if (batch->sandbox_id() != sandbox_)
        return stream_.finish(absl::PermissionDeniedError("log stream sandbox_id changed after validation"));
      return publish(std::move(batch));
    }
    with_own_sandbox(
        plane_, ctx_, batch->sandbox_id(),
        [self = shared_from_this(), batch](const std::shared_ptr<SandboxHandle>& found) {
          self->sandbox_ = found->sandbox_id;
          self->publish(batch);
        },
        [self = shared_from_this()](const absl::Status& status) { self->stream_.finish(status); });
  }
  void publish(std::shared_ptr<const pb::PushSandboxLogsRequest> batch) {
    caf::anon_send(plane_->actors.bus, Ask<pb::PushSandboxLogsRequest>{std::move(batch), caller_of(*ctx_)});
    next();
  }

  PlanePtr plane_;
  Context ctx_;
  In stream_;
  std::string sandbox_;
};

}  // namespace

void add_watch_handlers(Router& router, const PlanePtr& plane) {
  router.server_stream<pb::WatchSandboxRequest, pb::SandboxStreamEvent>(
      "WatchSandbox",
      [=](Context ctx, pb::WatchSandboxRequest request, const WatchStream& stream) { watch(plane, ctx, std::move(request), stream); });
  router.client_stream<pb::PushSandboxLogsRequest, pb::PushSandboxLogsResponse>("PushSandboxLogs", [=](Context ctx, LogPush::In stream) {
    std::make_shared<LogPush>(plane, std::move(ctx), std::move(stream))->next();
  });
  router.unary<pb::GetSandboxLogsRequest, pb::GetSandboxLogsResponse>(
      "GetSandboxLogs", [=](Context ctx, pb::GetSandboxLogsRequest request, const Reply<pb::GetSandboxLogsResponse>& reply) {
        auto shared = std::make_shared<const pb::GetSandboxLogsRequest>(std::move(request));
        with_sandbox(
            plane, ctx, shared->workspace_scope(), shared->sandbox(), "sandbox", WorkspaceRole::kUser,
            [=](const std::shared_ptr<SandboxHandle>& found) {
              ask<gateway::Reply<pb::GetSandboxLogsResponse>>(
                  plane->system, plane->actors.bus,
                  [reply](gateway::Reply<pb::GetSandboxLogsResponse> answer) {
                    answer.value.ok() ? reply.ok(**answer.value) : reply.fail(answer.value.status());
                  },
                  Ask<pb::GetSandboxLogsRequest>{shared, caller_of(*ctx)}, found->sandbox_id);
            },
            [reply](const absl::Status& status) { reply.fail(status); });
      });
}

}  // namespace openshell::api
