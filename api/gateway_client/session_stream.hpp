#pragma once

#include <memory>
#include <mutex>

#include "actors/supervisor/ports.hpp"

namespace openshell::api {

class GatewayConnection;

/// The ConnectSupervisor stream over gRPC. What is to be sent waits in a queue of 64; a full queue ends the stream, since the gateway does
/// not read.
class SessionStream final : public supervisor::SessionTransport {
 public:
  static constexpr std::size_t kMaxQueued = 64;  ///< messages

  explicit SessionStream(std::shared_ptr<GatewayConnection> gateway) : gateway_{std::move(gateway)} {}
  ~SessionStream() override;

  void connect(std::uint64_t connection, Sink sink) override;
  void heartbeat() override;
  void relay_result(const std::string& channel_id, const std::string& error) override;
  void update_result(const std::string& update_id, bool supported) override;
  void disconnect() override;

 private:
  class Call;
  std::shared_ptr<Call> current() const;

  std::shared_ptr<GatewayConnection> gateway_;
  mutable std::mutex mutex_;
  std::shared_ptr<Call> call_;
};

}  // namespace openshell::api
