#include "actors/gateway/event_log.hpp"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <cstdio>

namespace openshell::gateway {
namespace {

/// -1: unknown.
int level_number(const std::string& level) {
  const auto name = absl::AsciiStrToUpper(level);
  if (name == "ERROR") return 0;
  if (name == "WARN" || name == "WARNING") return 1;
  if (name == "INFO" || name == "OCSF") return 2;
  if (name == "DEBUG") return 3;
  if (name == "TRACE") return 4;
  return -1;
}

std::string cut(const std::string& text, std::size_t max) {
  if (text.size() <= max) return text;
  auto end = max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // never in the middle of a character
  return text.substr(0, end);
}

std::string hex16(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

bool LineFilter::passes(const openshell::v1::SandboxLogLine& line) const {
  if (since && line.has_event_time() && to_millis(line.event_time()) < *since) return false;
  const std::string source = line.source().empty() ? "gateway" : line.source();
  if (!sources.empty() && std::find(sources.begin(), sources.end(), source) == sources.end()) return false;
  if (min_level.empty()) return true;
  const int have = level_number(line.level());
  const int wanted = level_number(min_level);
  return have < 0 || wanted < 0 || have <= wanted;
}

const EventLog::Event& EventLog::keep(Event event) {
  event.set_cursor(hex16(static_cast<std::uint64_t>(epoch_)) + hex16(next_++));
  events_.push_back(std::move(event));
  if (events_.size() > kMaxEvents) events_.pop_front();
  return events_.back();
}

const EventLog::Event& EventLog::add(openshell::v1::SandboxLogLine line) {
  Event event;
  *event.mutable_log() = std::move(line);
  return keep(std::move(event));
}

const EventLog::Event& EventLog::add(const openshell::v1::PlatformEvent& platform) {
  Event event;
  *event.mutable_event() = platform;
  return keep(std::move(event));
}

std::vector<EventLog::Event> EventLog::tail(std::size_t count, const std::function<bool(const Event&)>& wanted) const {
  std::vector<Event> out;
  for (auto it = events_.rbegin(); it != events_.rend() && out.size() < count; ++it) {
    if (wanted(*it)) out.push_back(*it);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

absl::StatusOr<std::vector<EventLog::Event>> EventLog::after(const std::string& cursor,
                                                             const std::function<bool(const Event&)>& wanted) const {
  const bool hex = cursor.size() == 32 &&
                   std::all_of(cursor.begin(), cursor.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (!hex) return absl::InvalidArgumentError("resume_after_cursor is not a cursor of this interface");
  const auto newest = hex16(static_cast<std::uint64_t>(epoch_)) + hex16(next_ - 1);
  if (cursor.substr(0, 16) != newest.substr(0, 16))
    return absl::OutOfRangeError("resume_after_cursor is of an earlier start of the gateway; start afresh without it");
  if (cursor > newest) return absl::InvalidArgumentError("resume_after_cursor was not made for this sandbox");
  if (cursor < newest && (events_.empty() || cursor < events_.front().cursor())) {
    // The event itself may just have been dropped: what follows it must still be here.
    const auto first = events_.empty() ? next_ : next_ - events_.size();
    if (cursor != hex16(static_cast<std::uint64_t>(epoch_)) + hex16(first - 1)) {
      return absl::OutOfRangeError("resume_after_cursor is older than the oldest retained event; start afresh without it");
    }
  }
  std::vector<Event> out;
  for (const auto& event : events_) {
    if (event.cursor() > cursor && wanted(event)) out.push_back(event);
  }
  return out;
}

openshell::v1::SandboxLogLine clean_line(const openshell::v1::SandboxLogLine& line, const std::string& sandbox_id) {
  openshell::v1::SandboxLogLine out = line;
  out.set_sandbox_id(sandbox_id);
  out.set_source("sandbox");
  out.clear_fields();
  // In the order of the keys, so that what is cut does not depend on the order of a hash map.
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.fields()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  for (std::size_t i = 0; i < keys.size() && i < kMaxLineFields; ++i) {
    (*out.mutable_fields())[cut(keys[i], kMaxFieldKey)] = cut(line.fields().at(keys[i]), kMaxFieldValue);
  }
  return out;
}

}  // namespace openshell::gateway
