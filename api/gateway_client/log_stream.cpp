#include "api/gateway_client/log_stream.hpp"

#include <utility>

#include "api/gateway_client/conversion.hpp"
#include "api/gateway_client/gateway_connection.hpp"
#include "api/gateway_client/gateway_stub.hpp"

namespace openshell::api {

class LogStream::Call final : public grpc::ClientWriteReactor<v1::PushSandboxLogsRequest>, public std::enable_shared_from_this<Call> {
 public:
  explicit Call(std::function<void(int)> ended) : ended_{std::move(ended)} {}

  void begin(GatewayConnection& gateway) {
    if (auto status = gateway.authorise(context_); !status.ok()) {
      over_ = true;
      return ended_(static_cast<int>(status.code()));
    }
    self_ = shared_from_this();
    gateway.stub().rpc->async()->PushSandboxLogs(&context_, &response_, this);
    AddHold();
    StartCall();
  }

  void send(v1::PushSandboxLogsRequest request, std::function<void(bool)> done) {
    std::unique_lock lock{mutex_};
    if (over_ || done_) {
      lock.unlock();
      return done(false);
    }
    out_ = std::move(request);
    done_ = std::move(done);
    StartWrite(&out_);
  }

  void finish() {
    const std::lock_guard lock{mutex_};
    if (over_) return;
    over_ = true;
    if (!done_) StartWritesDone();
    RemoveHold();
  }

  void cancel() {
    std::unique_lock lock{mutex_};
    const bool drop = !std::exchange(over_, true);
    const auto keep = self_;
    lock.unlock();
    if (!keep) return;
    context_.TryCancel();
    if (drop) RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    std::unique_lock lock{mutex_};
    const auto done = std::exchange(done_, nullptr);
    const bool drop = !ok && !std::exchange(over_, true);  // the stream is gone: let it say why
    lock.unlock();
    if (done) done(ok);
    if (drop) RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    std::unique_lock lock{mutex_};
    const auto keep = std::exchange(self_, nullptr);  // cancel() may be looking at it
    over_ = true;
    lock.unlock();
    ended_(static_cast<int>(status.error_code()));
  }

 private:
  const std::function<void(int)> ended_;
  grpc::ClientContext context_;
  v1::PushSandboxLogsRequest out_;
  v1::PushSandboxLogsResponse response_;
  std::mutex mutex_;
  std::function<void(bool)> done_;
  std::shared_ptr<Call> self_;
  bool over_ = false;
};

LogStream::~LogStream() {
  if (auto call = current()) call->cancel();
}

std::shared_ptr<LogStream::Call> LogStream::current() const {
  const std::lock_guard lock{mutex_};
  return call_;
}

void LogStream::connect(std::function<void(int code)> ended) {
  auto call = std::make_shared<Call>(std::move(ended));
  std::shared_ptr<Call> old;
  {
    const std::lock_guard lock{mutex_};
    old = std::exchange(call_, call);
  }
  if (old) old->cancel();
  call->begin(*gateway_);
}

void LogStream::send(std::vector<supervisor::LogLine> lines, std::function<void(bool sent)> done) {
  const auto call = current();
  if (!call) return done(false);
  v1::PushSandboxLogsRequest request;
  request.set_sandbox_id(gateway_->options().sandbox_id);
  for (const auto& line : lines) {
    auto& to = *request.add_logs();
    to.set_sandbox_id(gateway_->options().sandbox_id);
    fill(line, to);
  }
  call->send(std::move(request), std::move(done));
}

void LogStream::finish() {
  if (auto call = current()) call->finish();
}

}  // namespace openshell::api
