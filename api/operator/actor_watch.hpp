// Keeps the map of actors up to date while somebody looks at it, and asks nobody while nobody does. [ACT-38, ACT-39]
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/operator/actor_feed.hpp"
#include "api/operator/actor_map.hpp"
#include "api/operator/actor_source.hpp"

namespace openshell::api {

/// Lives on the one thread of its executor.
class ActorWatch : public std::enable_shared_from_this<ActorWatch> {
 public:
  static constexpr std::size_t kMaxOpening = 32;  ///< relays asked for and not yet claimed

  struct Times {
    std::chrono::milliseconds pace{1'000};          ///< between looks at the directory and at the sessions
    std::chrono::milliseconds first{2'000};         ///< that a single question waits for first snapshots
    std::chrono::milliseconds linger{10'000};       ///< relays stay so long after the last watcher
    std::chrono::milliseconds after_end{2'000};     ///< before a relay that ended is opened again
    std::chrono::milliseconds after_error{60'000};  ///< before a supervisor whose stream was no such is asked again
  };

  ActorWatch(boost::asio::any_io_executor executor, std::shared_ptr<ActorSource> source, const std::string& gateway_id, Times times);

  /// Somebody looks, until the ticket is gone.
  using Ticket = std::shared_ptr<void>;
  Ticket watch();
  /// Once every session has told something or refused, at most `first` later.
  void when_known(std::function<void()> then);
  /// The gateway's own actors as of now; nothing is asked of supervisors.
  void refresh_own(std::function<void()> then);
  /// One actor, asked itself.
  void inspect(const std::string& process, const std::string& actor, ActorFeed::Then then);

  [[nodiscard]] const ActorMap& map() const { return map_; }
  [[nodiscard]] const std::string& gateway_entry() const { return gateway_entry_; }
  [[nodiscard]] const std::shared_ptr<ActorSource>& source() const { return source_; }
  /// Nothing is asked any more.
  void stop();

 private:
  struct Supervisor {
    std::string session, sandbox;  // sandbox: "<workspace>/<name>", empty: not known yet
    std::shared_ptr<ActorFeed> feed;
    bool naming = false, opening = false;
    bool settled = false;         // told something, or refused
    bool refused = false;         // in this session it is not asked again
    ActorMap::Time not_before{};  // the next attempt
  };

  template <class T>
  std::function<void(absl::StatusOr<T>)> here(std::function<void(absl::StatusOr<T>)> then);
  void start();
  void tick();
  void take_own(absl::StatusOr<ActorChanges> changes);
  void take_sessions(absl::StatusOr<std::map<std::string, std::string>> sessions);
  void open_more();
  void open(const std::string& id);
  void opened(const std::string& id, const std::string& session, absl::StatusOr<std::shared_ptr<gateway::RelayEnd>> relay);
  void feed_ended(const std::string& id, const absl::Status& why);
  void note(const std::string& id, const std::string& text);
  void tell_known();
  [[nodiscard]] bool all_known() const;
  void close_all(const std::string& why);

  const boost::asio::any_io_executor executor_;
  const std::shared_ptr<ActorSource> source_;
  const std::string gateway_entry_;
  const Times times_;
  ActorMap map_;
  boost::asio::steady_timer timer_;
  std::map<std::string, Supervisor> supervisors_;  // by sandbox id
  std::size_t opening_ = 0;
  std::uint64_t own_seq_ = 0;
  std::size_t watchers_ = 0;
  ActorMap::Time last_watcher_{};
  bool running_ = false;
  bool sessions_known_ = false;
  bool stopped_ = false;
  struct Waiter {
    ActorMap::Time until;
    std::function<void()> then;
  };
  std::vector<Waiter> waiters_;
};

}  // namespace openshell::api
