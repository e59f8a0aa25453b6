#include "api/operator/actors_json.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>

#include "observability/text.hpp"

namespace openshell::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kHead = 1'024;  // of a process besides its actors, and of the answer besides its processes

json::object object_of(const ActorSnapshot& actor) {
  json::object rates;
  for (const auto& [name, rate] : actor.rates) rates[name] = std::round(rate * 100) / 100;
  return {{"id", actor.id},
          {"parent", actor.parent},
          {"kind", actor.kind},
          {"summary", actor.summary},
          {"mailbox", actor.mailbox},
          {"waiting", actor.waiting},
          {"handled", actor.handled},
          {"failed", actor.failed},
          {"restarts", actor.restarts},
          {"oldest_ms", actor.oldest_ms},
          {"last_error", actor.last_error},
          {"rates", std::move(rates)}};
}

std::uint64_t millis_since(ActorMap::Time then, ActorMap::Time now) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now - then).count(), 0));
}

/// `room` bytes are left of the answer; what is used is taken off.
std::string process_json(const ShownProcess& process, ActorMap::Time now, std::size_t& room) {
  std::string actors;
  std::uint64_t left_out = process.left_out;
  for (const auto& [id, shown] : process.actors) {
    auto object = object_of(shown.snapshot);
    if (goes_on_waiting(shown.snapshot)) object["oldest_ms"] = shown.snapshot.oldest_ms + millis_since(shown.reported, now);
    if (shown.failed) object["failed_ms"] = millis_since(*shown.failed, now);
    const auto text = json::serialize(object);
    if (text.size() + kHead > room) {
      ++left_out;
      continue;
    }
    room -= text.size() + 1;
    if (!actors.empty()) actors += ',';
    actors += text;
  }
  room -= std::min(room, kHead);
  json::object head{
      {"id", process.id}, {"kind", kind_name(process.kind)}, {"sandbox", process.sandbox}, {"stale_ms", process.stale_ms(now)}};
  if (process.stale) head["stale"] = true;
  if (process.ended) head["ended_ms"] = millis_since(*process.ended, now);
  if (!process.note.empty()) head["note"] = process.note;
  if (left_out > 0) head["left_out"] = left_out;
  auto text = json::serialize(head);
  text.pop_back();
  return cat(text, ",\"actors\":[", actors, "]}");
}

std::string answer(const ActorMap& map, const std::string& epoch, std::uint64_t since, ActorMap::Time now, const std::string& tail) {
  std::size_t room = kMaxActorsJson - kHead;
  std::string processes;
  for (const auto& [id, process] : map.processes()) {
    if (process.seq <= since) continue;
    if (!processes.empty()) processes += ',';
    processes += process_json(process, now, room);
  }
  return cat("{\"epoch\":\"", epoch, "\",\"seq\":", map.seq(), ",\"processes\":[", processes, "]", tail, "}");
}

}  // namespace

std::string actor_json(const ActorSnapshot& actor) { return json::serialize(object_of(actor)); }

std::string actors_json(const ActorMap& map, const std::string& epoch, ActorMap::Time now) { return answer(map, epoch, 0, now, {}); }

std::string changes_json(const ActorMap& map, const std::string& epoch, std::uint64_t since, ActorMap::Time now) {
  const auto gone = map.gone_since(since);
  if (!gone) return {};
  return answer(map, epoch, since, now, cat(",\"gone\":", json::serialize(json::array(gone->begin(), gone->end()))));
}

}  // namespace openshell::api
