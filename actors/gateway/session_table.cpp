#include "actors/gateway/session_table.hpp"

namespace openshell::gateway {

absl::StatusOr<std::optional<SessionTable::Session>> SessionTable::connect(SessionOffer offer, std::string session_id, Seconds now) {
  std::optional<Session> replaced;
  const auto it = sessions_.find(offer.sandbox_id);
  if (it != sessions_.end()) {
    const auto& current = it->second.offer;
    if (current.instance_id == offer.instance_id && offer.connection_epoch < current.connection_epoch) {
      return absl::UnavailableError("a newer connection of this supervisor instance is current");
    }
    replaced = std::move(it->second);
    sessions_.erase(it);
  }
  Session session;
  session.session_id = std::move(session_id);
  session.heard = session.beat = now;
  session.nudges = offer.config_push;
  session.offer = std::move(offer);
  const auto id = session.offer.sandbox_id;
  sessions_.emplace(id, std::move(session));
  return replaced;
}

std::optional<SessionTable::Session> SessionTable::end(const std::string& sandbox_id, const std::string& session_id) {
  const auto it = sessions_.find(sandbox_id);
  if (it == sessions_.end() || it->second.session_id != session_id) return std::nullopt;
  auto session = std::move(it->second);
  sessions_.erase(it);
  return session;
}

const SessionTable::Session* SessionTable::find(const std::string& sandbox_id) const {
  const auto it = sessions_.find(sandbox_id);
  return it == sessions_.end() ? nullptr : &it->second;
}

std::map<std::string, std::string> SessionTable::sessions() const {
  std::map<std::string, std::string> out;
  for (const auto& [sandbox, session] : sessions_) out.emplace(sandbox, session.session_id);
  return out;
}

void SessionTable::heard(const std::string& sandbox_id, const std::string& session_id, Seconds now) {
  const auto it = sessions_.find(sandbox_id);
  if (it != sessions_.end() && it->second.session_id == session_id) it->second.heard = now;
}

std::optional<std::string> SessionTable::mark(const std::string& sandbox_id, const std::function<std::string()>& new_id, Seconds now) {
  const auto it = sessions_.find(sandbox_id);
  if (it == sessions_.end() || !it->second.nudges) return std::nullopt;
  auto& session = it->second;
  if (!session.outstanding.empty()) {
    session.dirty = true;
    return std::nullopt;
  }
  session.outstanding = new_id();
  session.outstanding_since = now;
  return session.outstanding;
}

std::optional<std::string> SessionTable::answered(const NudgeAnswer& answer, const std::function<std::string()>& new_id, Seconds now) {
  const auto it = sessions_.find(answer.sandbox_id);
  if (it == sessions_.end() || it->second.session_id != answer.session_id) return std::nullopt;
  auto& session = it->second;
  if (answer.update_id.empty() || session.outstanding != answer.update_id) return std::nullopt;
  session.outstanding.clear();
  if (answer.unsupported) session.nudges = false;
  if (!std::exchange(session.dirty, false)) return std::nullopt;
  return mark(answer.sandbox_id, new_id, now);
}

SessionTable::Due SessionTable::tick(const std::function<std::string()>& new_id, Seconds now) {
  Due due;
  for (auto& [id, session] : sessions_) {
    if (now - session.heard >= kSilence) {
      due.silent.push_back(id);
      continue;
    }
    if (now - session.beat >= kHeartbeat) {
      session.beat = now;
      due.heartbeats.push_back(id);
    }
    if (!session.outstanding.empty() && now - session.outstanding_since >= kNudgePatience) {
      session.outstanding.clear();
      ++due.unanswered;
      if (!std::exchange(session.dirty, false)) continue;
      if (auto next = mark(id, new_id, now)) due.nudges.emplace_back(id, *next);
    }
  }
  return due;
}

}  // namespace openshell::gateway
