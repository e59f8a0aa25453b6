#include "api/operator/actor_map.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace openshell::api {
namespace {

constexpr std::size_t kMaxGone = 1'024;
constexpr std::size_t kMaxRetiredKinds = 256;
constexpr std::chrono::duration<double> kShortestSpan{1}, kLongestSpan{60};

std::uint64_t millis(std::chrono::steady_clock::duration time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count(), 0));
}

/// Of an actor that does not tell its messages apart.
std::map<std::string, double> overall_rate(std::uint64_t messages, std::chrono::steady_clock::duration since) {
  const auto span = std::clamp(std::chrono::duration<double>{since}, kShortestSpan, kLongestSpan);
  return {{"all", static_cast<double>(messages) / span.count()}};
}

/// Nothing new, but for rates that were worked out here.
bool same(const ActorSnapshot& shown, const ActorSnapshot& reported) {
  if (!reported.rates.empty()) return shown == reported;
  auto without = shown;
  without.rates.clear();
  return without == reported;
}

}  // namespace

std::string_view kind_name(ProcessKind kind) {
  switch (kind) {
    case ProcessKind::gateway:
      return "gateway";
    case ProcessKind::supervisor:
      return "supervisor";
    case ProcessKind::sandbox:
      return "sandbox";
  }
  return "";
}

bool goes_on_waiting(const ActorSnapshot& actor) { return actor.waiting > 0 || (actor.mailbox > 0 && actor.oldest_ms > 0); }

std::uint64_t ShownProcess::stale_ms(std::chrono::steady_clock::time_point now) const {
  return kind == ProcessKind::gateway ? 0 : own_stale_ms + millis(now - heard);
}

ShownProcess* ActorMap::ensure(const std::string& id, ProcessKind kind, const std::string& sandbox, Time now) {
  const auto it = processes_.find(id);
  if (it != processes_.end()) {
    auto& process = it->second;
    if (process.ended || process.sandbox != sandbox) {
      process.ended.reset();
      process.sandbox = sandbox;
      process.heard = now;
      changed(process);
    }
    return &process;
  }
  if (processes_.size() >= kMaxMapProcesses) return nullptr;
  auto& process = processes_[id];
  process.id = id;
  process.kind = kind;
  process.sandbox = sandbox;
  process.heard = now;
  changed(process);
  return &process;
}

void ActorMap::retire(ProcessKind kind, const ActorSnapshot& actor) {
  auto it = retired_.find({kind, actor.kind});
  if (it == retired_.end()) {
    if (retired_.size() >= kMaxRetiredKinds) return;
    it = retired_.emplace(std::pair{kind, actor.kind}, RetiredCounts{}).first;
  }
  it->second.handled += actor.handled;
  it->second.failed += actor.failed;
  it->second.restarts += actor.restarts;
}

void ActorMap::apply(ShownProcess& process, const ActorChanges& changes, Time now) {
  process.heard = now;
  bool different = false;
  std::set<std::string> kept;
  for (const auto& actor : changes.actors) {
    if (changes.whole) kept.insert(actor.id);
    auto [it, fresh] = process.actors.try_emplace(actor.id);
    auto& shown = it->second;
    if (!fresh && same(shown.snapshot, actor)) continue;
    different = true;
    if (!fresh && actor.handled < shown.snapshot.handled) retire(process.kind, shown.snapshot);  // it began anew
    if (!fresh && (actor.failed > shown.snapshot.failed || actor.restarts > shown.snapshot.restarts)) shown.failed = now;
    const auto before = std::exchange(shown.snapshot, actor);
    if (actor.rates.empty() && !fresh && actor.handled > before.handled)
      shown.snapshot.rates = overall_rate(actor.handled - before.handled, now - shown.reported);
    shown.reported = now;
  }
  const auto leave = [&](auto it) {
    retire(process.kind, it->second.snapshot);
    different = true;
    return process.actors.erase(it);
  };
  for (const auto& id : changes.gone) {
    if (const auto it = process.actors.find(id); it != process.actors.end()) leave(it);
  }
  if (changes.whole) {
    for (auto it = process.actors.begin(); it != process.actors.end();) it = kept.contains(it->first) ? std::next(it) : leave(it);
  }
  if (std::exchange(process.stale, false) || different) changed(process);
}

void ActorMap::heard(ShownProcess& process, std::uint64_t own_stale_ms, Time now) {
  process.heard = now;
  process.own_stale_ms = own_stale_ms;
  if (process.stale && process.stale_ms(now) < millis(kProcessStale)) {
    process.stale = false;
    changed(process);
  }
}

void ActorMap::say(ShownProcess& process, const std::string& note, std::uint32_t left_out) {
  if (process.note == note && process.left_out == left_out) return;
  process.note = note;
  process.left_out = left_out;
  changed(process);
}

void ActorMap::ended(const std::string& id, Time now) {
  const auto it = processes_.find(id);
  if (it == processes_.end() || it->second.ended) return;
  it->second.ended = now;
  changed(it->second);
}

void ActorMap::remove(const std::string& id) {
  const auto it = processes_.find(id);
  if (it == processes_.end()) return;
  for (const auto& [name, actor] : it->second.actors) retire(it->second.kind, actor.snapshot);
  processes_.erase(it);
  gone_.push_back({++seq_, id});
  if (gone_.size() <= kMaxGone) return;
  forgotten_before_ = gone_.front().seq;
  gone_.pop_front();
}

void ActorMap::sweep(Time now) {
  std::vector<std::string> over;
  for (auto& [id, process] : processes_) {
    bool different = false;
    for (auto& [name, actor] : process.actors) {
      if (actor.snapshot.rates.empty() || now - actor.reported < kRatesValid) continue;
      actor.snapshot.rates.clear();
      different = true;
    }
    if (process.ended && now - *process.ended >= kProcessForgotten) over.push_back(id);
    const bool stale = process.ended || process.stale_ms(now) >= millis(kProcessStale);
    if (stale != process.stale) {
      process.stale = stale;
      different = true;
    }
    if (different) changed(process);
  }
  for (const auto& id : over) remove(id);
}

std::optional<std::vector<std::string>> ActorMap::gone_since(std::uint64_t since) const {
  if (since < forgotten_before_) return std::nullopt;
  std::vector<std::string> out;
  for (auto it = gone_.rbegin(); it != gone_.rend() && it->seq > since; ++it) {
    if (!processes_.contains(it->id)) out.push_back(it->id);
  }
  return out;
}

}  // namespace openshell::api
