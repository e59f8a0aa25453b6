// Is the gateway able to do its work? A thread asks the database every 5 s; whoever asks the gateway reads the last answer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/http.hpp"
#include "storage/store.hpp"

namespace openshell::gateway {

class Readiness {
 public:
  /// `notes`: what an operator should see beside it, for instance that users are not authenticated.
  Readiness(storage::Store& store, std::string version, std::vector<std::string> notes);
  ~Readiness();
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  void set_draining();
  /// `/healthz` always 200; `/readyz` and `/health` 200 or 503 with JSON. Everything else 404.
  [[nodiscard]] api::HttpAnswer answer(const api::HttpRequest& request) const;
  /// Prometheus text, its part of `/metrics`.
  [[nodiscard]] std::string metrics() const;

 private:
  struct Seen {
    bool healthy = false;
    std::optional<std::int64_t> latency_ms;
    std::string error = "readiness monitor still initializing";
  };
  void watch();
  void record(Seen seen);

  storage::Store& store_;
  std::string version_;
  std::vector<std::string> notes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Seen seen_;
  bool draining_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace openshell::gateway
