// The actors of one supervisor and of its sandbox, as they come over its relay. [ACT-39]
#pragma once

#include <absl/status/statusor.h>

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/introspection/actor_frames.hpp"
#include "api/operator/actor_map.hpp"

namespace openshell::gateway {
class RelayEnd;
}

namespace openshell::api {

/// Lives on one thread, that of its executor; what the relay calls back elsewhere is posted there. What it shows as whose comes from the
/// session it belongs to, never from a message.
class ActorFeed : public std::enable_shared_from_this<ActorFeed> {
 public:
  using Then = std::function<void(absl::StatusOr<ActorSnapshot>)>;

  ActorFeed(boost::asio::any_io_executor executor, std::shared_ptr<gateway::RelayEnd> relay, ActorMap& map, std::string sandbox_id,
            std::string sandbox, std::function<void(absl::Status)> ended)
      : executor_{std::move(executor)},
        relay_{std::move(relay)},
        map_{map},
        sandbox_id_{std::move(sandbox_id)},
        sandbox_{std::move(sandbox)},
        ended_{std::move(ended)} {}

  void run();
  /// Ends it; `ended` is not called.
  void close(const std::string& why);
  /// One actor of the supervisor, asked itself. One question at a time.
  void inspect(const std::string& actor, Then then);
  void sweep(ActorMap::Time now);

 private:
  void read();
  void received(const std::string& bytes);
  bool take(const actors_wire::ToGateway& message, ActorMap::Time now);
  void show(const actors_wire::Process& from, ProcessKind kind, std::uint64_t epoch, ActorMap::Time now);
  void end(absl::Status why);
  void answer(absl::StatusOr<ActorSnapshot> result);

  const boost::asio::any_io_executor executor_;
  const std::shared_ptr<gateway::RelayEnd> relay_;
  ActorMap& map_;
  const std::string sandbox_id_, sandbox_;
  std::function<void(absl::Status)> ended_;
  ActorsFrameDecoder in_{kMaxActorsMessage};
  std::uint64_t epoch_ = 0;
  std::uint64_t request_ = 0;  // the last question
  Then asked_;
  ActorMap::Time asked_at_{};
  bool over_ = false;
};

/// Ids of the map's entries.
[[nodiscard]] std::string supervisor_entry(const std::string& sandbox_id);
[[nodiscard]] std::string sandbox_entry(const std::string& sandbox_id);

}  // namespace openshell::api
