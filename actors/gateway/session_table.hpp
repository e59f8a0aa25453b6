// The current session of every sandbox, and the nudge. Pure: the caller gives the time and sends what comes out.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "messages/gateway.hpp"

namespace openshell::gateway {

class SessionTable {
 public:
  using Seconds = std::int64_t;  ///< of a clock that only goes forward

  static constexpr Seconds kHeartbeat = 15;
  static constexpr Seconds kSilence = 45;  ///< without any message of the supervisor
  static constexpr Seconds kNudgePatience = 60;

  struct Session {
    SessionOffer offer;
    std::string session_id;
    Seconds heard = 0, beat = 0;
    std::string outstanding;  ///< update_id of the nudge that was not answered yet
    Seconds outstanding_since = 0;
    bool dirty = false;   ///< something changed since that nudge
    bool nudges = false;  ///< announced support, and did not take it back
  };

  /// The new session is current; the one it replaced, if any, is returned. UNAVAILABLE: an older connection of the instance that is
  /// connected.
  absl::StatusOr<std::optional<Session>> connect(SessionOffer offer, std::string session_id, Seconds now);
  /// Removes it only if it is still this one.
  std::optional<Session> end(const std::string& sandbox_id, const std::string& session_id);
  [[nodiscard]] const Session* find(const std::string& sandbox_id) const;
  /// Session by sandbox.
  [[nodiscard]] std::map<std::string, std::string> sessions() const;
  void heard(const std::string& sandbox_id, const std::string& session_id, Seconds now);

  /// Something that the sandbox's configuration depends on was committed. The update id to send now, if one is to be sent: at most one is
  /// outstanding.
  [[nodiscard]] std::optional<std::string> mark(const std::string& sandbox_id, const std::function<std::string()>& new_id, Seconds now);
  /// The answer to a nudge; the next one, where something changed meanwhile.
  [[nodiscard]] std::optional<std::string> answered(const NudgeAnswer& answer, const std::function<std::string()>& new_id, Seconds now);

  /// What time brings.
  struct Due {
    std::vector<std::string> heartbeats;                      ///< sandboxes
    std::vector<std::string> silent;                          ///< sandboxes whose session is to be closed
    std::vector<std::pair<std::string, std::string>> nudges;  ///< (sandbox, update id)
    std::size_t unanswered = 0;                               ///< nudges given up
  };
  [[nodiscard]] Due tick(const std::function<std::string()>& new_id, Seconds now);

  [[nodiscard]] std::size_t size() const { return sessions_.size(); }

 private:
  std::unordered_map<std::string, Session> sessions_;
};

}  // namespace openshell::gateway
