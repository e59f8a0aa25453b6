#include "api/gateway_client/session_stream.hpp"

#include <deque>
#include <utility>

#include "api/gateway_client/conversion.hpp"
#include "api/gateway_client/gateway_connection.hpp"
#include "api/gateway_client/gateway_stub.hpp"

namespace openshell::api {

class SessionStream::Call final : public grpc::ClientBidiReactor<v1::SupervisorMessage, v1::GatewayMessage>,
                                  public std::enable_shared_from_this<Call> {
 public:
  Call(std::uint64_t connection, Sink sink) : connection_{connection}, sink_{std::move(sink)} {}

  void begin(GatewayConnection& gateway) {
    if (auto status = gateway.authorise(context_); !status.ok()) {
      over_ = true;
      sink_({connection_, supervisor::SessionEvent::Ended{static_cast<int>(status.code()), std::string{status.message()}}});
      return;
    }
    if (const auto& key = gateway.options().ssh_host_key; !key.empty()) context_.AddMetadata("openshell-ssh-host-key", key);
    self_ = shared_from_this();
    gateway.stub().rpc->async()->ConnectSupervisor(&context_, this);
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  void send(v1::SupervisorMessage message) {
    std::unique_lock lock{mutex_};
    if (over_) return;
    if (queue_.size() >= kMaxQueued) {
      lock.unlock();
      return context_.TryCancel();
    }
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void cancel() {
    const std::lock_guard lock{mutex_};
    if (!over_) context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      if (auto event = to_event(connection_, in_)) sink_(*std::move(event));
      return StartRead(&in_);
    }
    {
      const std::lock_guard lock{mutex_};
      over_ = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock{mutex_};
    queue_.pop_front();
    if (ok && !over_ && !queue_.empty()) StartWrite(&queue_.front());
  }

  void OnDone(const grpc::Status& status) override {
    const auto keep = std::exchange(self_, nullptr);
    sink_({connection_, supervisor::SessionEvent::Ended{static_cast<int>(status.error_code()), status.error_message()}});
  }

 private:
  const std::uint64_t connection_;
  const Sink sink_;
  grpc::ClientContext context_;
  v1::GatewayMessage in_;
  std::mutex mutex_;
  std::deque<v1::SupervisorMessage> queue_;  // the front is being written
  std::shared_ptr<Call> self_;
  bool over_ = false;
};

SessionStream::~SessionStream() { disconnect(); }

std::shared_ptr<SessionStream::Call> SessionStream::current() const {
  const std::lock_guard lock{mutex_};
  return call_;
}

void SessionStream::connect(std::uint64_t connection, Sink sink) {
  auto call = std::make_shared<Call>(connection, std::move(sink));
  v1::SupervisorMessage message;
  auto& hello = *message.mutable_hello();
  hello.set_sandbox_id(gateway_->options().sandbox_id);
  hello.set_instance_id(gateway_->options().instance_id);
  hello.set_connection_epoch(connection);
  hello.set_supports_provider_readiness(true);
  hello.set_supports_config_push(true);
  std::shared_ptr<Call> old;
  {
    const std::lock_guard lock{mutex_};
    old = std::exchange(call_, call);
  }
  if (old) old->cancel();
  call->begin(*gateway_);
  call->send(std::move(message));
}

void SessionStream::heartbeat() {
  v1::SupervisorMessage message;
  message.mutable_heartbeat();
  if (auto call = current()) call->send(std::move(message));
}

void SessionStream::relay_result(const std::string& channel_id, const std::string& error) {
  v1::SupervisorMessage message;
  auto& result = *message.mutable_relay_open_result();
  result.set_channel_id(channel_id);
  result.set_success(error.empty());
  result.set_error(error);
  if (auto call = current()) call->send(std::move(message));
}

void SessionStream::update_result(const std::string& update_id, bool supported) {
  v1::SupervisorMessage message;
  auto& result = *message.mutable_config_update_result();
  result.set_update_id(update_id);
  result.set_outcome(supported ? v1::CONFIG_APPLY_OUTCOME_APPLIED : v1::CONFIG_APPLY_OUTCOME_UNSUPPORTED);
  if (auto call = current()) call->send(std::move(message));
}

void SessionStream::disconnect() {
  std::shared_ptr<Call> call;
  {
    const std::lock_guard lock{mutex_};
    call = std::exchange(call_, nullptr);
  }
  if (call) call->cancel();
}

}  // namespace openshell::api
