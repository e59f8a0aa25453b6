#include "programs/gateway/readiness.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>

#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr auto kPingInterval = 5s;
constexpr auto kPingTimeout = 2s;

/// The answer of one ping, which may come after nobody waits any more.
struct Ping {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<absl::Status> status;
};

}  // namespace

Readiness::Readiness(storage::Store& store, std::string version, std::vector<std::string> notes)
    : store_{store}, version_{std::move(version)}, notes_{std::move(notes)}, thread_{[this] { watch(); }} {}

Readiness::~Readiness() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void Readiness::set_draining() {
  const std::lock_guard lock{mutex_};
  draining_ = true;
}

void Readiness::record(Seen seen) {
  const std::lock_guard lock{mutex_};
  seen_ = std::move(seen);
}

void Readiness::watch() {
  while (true) {
    const auto started = std::chrono::steady_clock::now();
    auto ping = std::make_shared<Ping>();
    store_.ping([ping](absl::Status status) {
      const std::lock_guard lock{ping->mutex};
      ping->status = std::move(status);
      ping->done.notify_all();
    });
    Seen seen;
    {
      std::unique_lock lock{ping->mutex};
      if (!ping->done.wait_for(lock, kPingTimeout, [&] { return ping->status.has_value(); })) {
        seen.error = "database health check timed out";
      } else {
        seen.healthy = ping->status->ok();
        seen.error = seen.healthy ? "" : "database unavailable";
        seen.latency_ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started).count();
      }
    }
    record(std::move(seen));
    std::unique_lock lock{mutex_};
    if (wake_.wait_until(lock, started + kPingInterval, [&] { return stopping_; })) return;
  }
}

api::HttpAnswer Readiness::answer(const api::HttpRequest& request) const {
  const std::string path = request.target.substr(0, request.target.find('?'));
  if (request.method != "GET" && request.method != "HEAD") return {405, {}, {}};
  if (path == "/healthz") return {200, {}, {}};
  if (path != "/readyz" && path != "/health") return {404, {}, {}};
  const std::lock_guard lock{mutex_};
  json::object database{{"status", seen_.healthy ? "healthy" : "unhealthy"}};
  if (seen_.latency_ms) database["latency_ms"] = *seen_.latency_ms;
  if (!seen_.error.empty()) database["error"] = seen_.error;
  json::object body{{"status", draining_       ? "draining"
                               : seen_.healthy ? "healthy"
                                               : "unhealthy"},
                    {"version", version_},
                    {"checks", json::object{{"database", database}}}};
  if (!notes_.empty()) body["notes"] = json::array(notes_.begin(), notes_.end());
  return {seen_.healthy && !draining_ ? 200 : 503, "application/json", json::serialize(body)};
}

std::string Readiness::metrics() const {
  const std::lock_guard lock{mutex_};
  return cat("# TYPE openshell_server_readiness_database_healthy gauge\nopenshell_server_readiness_database_healthy ",
             seen_.healthy ? 1 : 0, "\n# TYPE openshell_server_draining gauge\nopenshell_server_draining ", draining_ ? 1 : 0, "\n");
}

}  // namespace openshell::gateway
