// What the boundary may be asked, by which connection, and what a lost or new connection means. Decisions only: no actor, no clock, no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/sandbox/call.hpp"
#include "isolation/boundary/control.hpp"

namespace openshell::sandbox {

/// Results by request id, so that a repeated request has its effect once. The oldest finished result goes first.
class ReplayLedger {
 public:
  static constexpr std::size_t kMaxEntries = 4'096;
  explicit ReplayLedger(std::size_t capacity = kMaxEntries) : capacity_{capacity} {}

  enum class Known { fresh, running, finished, reused };
  /// Reserves a fresh id. `reused`: same id with another payload.
  Known begin(const std::string& id, const std::string& digest);
  [[nodiscard]] const boundary::Response* result(const std::string& id) const;
  void finish(const std::string& id, boundary::Response response);
  /// Forgets a reserved id that had no effect, so that it may be tried again.
  void abandon(const std::string& id);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string digest;
    std::optional<boundary::Response> result;
  };
  void evict();
  std::size_t capacity_;
  std::map<std::string, Entry> entries_;
  std::deque<std::string> order_;
};

class BoundaryMachine {
 public:
  enum class Stage : std::uint8_t { awaiting_attach, bound, ready, running };
  enum class Link : std::uint8_t { awaiting_confirmation, connected, frozen, terminating, terminal };

  struct Options {
    std::string boundary_id;
    boundary::Claims claims;
    boundary::WorkloadIdentity identity;
    /// uid of an account name in the image; nullopt where it has none.
    std::function<std::optional<std::uint32_t>(const std::string&)> account_uid;
  };

  explicit BoundaryMachine(Options options) : options_{std::move(options)} {}

  /// What to do with a request. `answer`: it is answered already. `execute`: the actor performs it and calls finished().
  /// `join`: the same request is being performed; its result is this one's too.
  enum class Action : std::uint8_t { answer, execute, join };
  struct Verdict {
    Action action = Action::answer;
    boundary::Response response{};             ///< with answer
    std::vector<ConnectionNumber> close{};     ///< connections that this request ended
    std::optional<ConnectionNumber> staged{};  ///< newly staged: it has 30 s to confirm
  };
  Verdict admit(const CallRequest& request);

  /// The result of an executed request. Returns what the caller answers (a confirm of a connection that has closed meanwhile is refused).
  struct Settled {
    boundary::Response response;
    std::vector<ConnectionNumber> close{};  ///< without freezing: their successor is confirmed
    bool recovered = false;                 ///< a confirm ended Frozen or AwaitingConfirmation
  };
  Settled finished(const CallRequest& request, boundary::Response response);

  void opened(ConnectionNumber connection) { open_.insert(connection); }
  /// True: the active connection is gone, freeze now.
  [[nodiscard]] bool closed(ConnectionNumber connection);
  /// A staged connection did not confirm in time: the one to close, if it is still staged.
  [[nodiscard]] bool staged_expired(ConnectionNumber connection) const { return staged_ == connection && staged_ != active_; }
  /// When the newest bearer of the connection ends (Unix seconds, 0: never); nullopt for an unknown connection.
  [[nodiscard]] std::optional<std::int64_t> bearer_expiry(ConnectionNumber connection) const;

  void terminating() {
    if (link_ != Link::terminal) link_ = Link::terminating;
  }
  void terminal() { link_ = Link::terminal; }

  [[nodiscard]] Stage stage() const { return stage_; }
  [[nodiscard]] Link link() const { return link_; }
  [[nodiscard]] const std::string& supervisor() const { return supervisor_; }
  [[nodiscard]] ConnectionNumber active() const { return active_; }
  [[nodiscard]] std::string summary() const;

 private:
  Verdict attach(const CallRequest& request, const boundary::Attach& attach);
  Verdict confirm(const CallRequest& request);
  Verdict start_agent(const CallRequest& request, const boundary::StartAgent& start);
  Verdict replayed(const CallRequest& request);
  [[nodiscard]] std::optional<boundary::Error> check_attach(const boundary::Attach& attach) const;
  [[nodiscard]] std::optional<boundary::Error> too_early(const boundary::Request& request) const;

  Options options_;
  Stage stage_ = Stage::awaiting_attach;
  Link link_ = Link::awaiting_confirmation;
  std::string supervisor_;  // pinned instance id
  boundary::BoundaryPolicy policy_;
  std::optional<boundary::StartAgent> agent_;
  std::set<ConnectionNumber> open_;
  ConnectionNumber active_ = 0;
  ConnectionNumber staged_ = 0;
  std::uint64_t active_epoch_ = 0;  // of the newest confirmed connection
  std::map<ConnectionNumber, std::uint64_t> epochs_;
  std::map<ConnectionNumber, std::int64_t> expiries_;
  ReplayLedger ledger_;
};

}  // namespace openshell::sandbox
