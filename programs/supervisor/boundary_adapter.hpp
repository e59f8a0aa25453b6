// The boundary as the actors see it.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "actors/supervisor/ports.hpp"
#include "programs/supervisor/actors_relay.hpp"
#include "programs/supervisor/boundary_client.hpp"

namespace openshell::supervisor {

inline constexpr std::chrono::seconds kTerminateDeadline{60};  ///< the runtime's own grace is inside

/// Environment publications with their own rising counter, and the end of everything. It outlives the calls of its client.
class BoundaryAdapter final : public BoundaryPort {
 public:
  explicit BoundaryAdapter(std::shared_ptr<BoundaryClient> client) : client_{std::move(client)} {}

  void install(std::uint64_t revision, std::map<std::string, std::string> environment,
               std::function<void(absl::StatusOr<bool>)> done) override;
  void terminate(std::function<void(absl::Status)> done) override;

 private:
  void attempt(std::uint64_t revision, std::map<std::string, std::string> environment, std::function<void(absl::StatusOr<bool>)> done,
               int left);

  const std::shared_ptr<BoundaryClient> client_;
  std::atomic<std::uint64_t> generation_{0};
};

/// What the sandbox says of its actors: untrusted, shown and used for nothing.
[[nodiscard]] absl::StatusOr<ActorSources::Runtime> runtime_actors(const absl::StatusOr<Opened>& answer);

}  // namespace openshell::supervisor
