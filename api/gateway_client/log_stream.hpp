#pragma once

#include <memory>
#include <mutex>

#include "actors/supervisor/ports.hpp"

namespace openshell::api {

class GatewayConnection;

/// The PushSandboxLogs stream over gRPC. One request is being written at a time; the caller waits for `done`.
class LogStream final : public supervisor::LogTransport {
 public:
  explicit LogStream(std::shared_ptr<GatewayConnection> gateway) : gateway_{std::move(gateway)} {}
  ~LogStream() override;

  void connect(std::function<void(int code)> ended) override;
  void send(std::vector<supervisor::LogLine> lines, std::function<void(bool sent)> done) override;
  void finish() override;

 private:
  class Call;
  std::shared_ptr<Call> current() const;

  std::shared_ptr<GatewayConnection> gateway_;
  mutable std::mutex mutex_;
  std::shared_ptr<Call> call_;
};

}  // namespace openshell::api
