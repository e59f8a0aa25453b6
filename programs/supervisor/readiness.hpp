#pragma once

#include <memory>
#include <string>
#include <thread>

namespace openshell::supervisor {

/// The readiness socket: it exists exactly while the supervisor is ready, accepts and closes.
class ReadinessSocket {
 public:
  /// Null, with a log line, where the path cannot be bound.
  static std::unique_ptr<ReadinessSocket> open(const std::string& path);
  ~ReadinessSocket();
  ReadinessSocket(const ReadinessSocket&) = delete;
  ReadinessSocket& operator=(const ReadinessSocket&) = delete;

 private:
  ReadinessSocket(std::string path, int fd);
  std::string path_;
  int fd_;
  std::thread thread_;
};

/// `health --socket PATH`: whether something accepts there.
[[nodiscard]] bool is_ready(const std::string& path);

}  // namespace openshell::supervisor
