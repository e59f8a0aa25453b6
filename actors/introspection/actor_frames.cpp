#include "actors/introspection/actor_frames.hpp"

#include <algorithm>
#include <cmath>

#include "actors/introspection/shown_text.hpp"

namespace openshell {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kFieldOverhead = 8;  // tag and length of an embedded message
constexpr double kMaxRate = 1e12;

std::uint32_t length_at(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

void fill_actor(const ActorSnapshot& from, actors_wire::Actor& to) {
  to.set_id(shown_text(from.id, kMaxShownId));
  to.set_parent(shown_text(from.parent, kMaxShownId));
  to.set_kind(shown_text(from.kind, kMaxShownKind));
  to.set_summary(shown_text(from.summary));
  to.set_mailbox(from.mailbox);
  to.set_waiting(from.waiting);
  to.set_handled(from.handled);
  to.set_failed(from.failed);
  to.set_restarts(from.restarts);
  to.set_oldest_ms(from.oldest_ms);
  to.set_last_error(shown_text(from.last_error));
  std::size_t shown = 0;
  for (const auto& [name, rate] : from.rates) {
    if (shown++ == kMaxShownRates) break;
    (*to.mutable_rates())[shown_text(name, kMaxRateName)] = rate;
  }
}

ActorSnapshot actor_of(const actors_wire::Actor& from) {
  ActorSnapshot to;
  to.id = shown_text(from.id(), kMaxShownId);
  to.parent = shown_text(from.parent(), kMaxShownId);
  to.kind = shown_text(from.kind(), kMaxShownKind);
  to.summary = shown_text(from.summary());
  to.mailbox = from.mailbox();
  to.waiting = from.waiting();
  to.handled = from.handled();
  to.failed = from.failed();
  to.restarts = from.restarts();
  to.oldest_ms = from.oldest_ms();
  to.last_error = shown_text(from.last_error());
  for (const auto& [name, rate] : from.rates()) {
    if (to.rates.size() == kMaxShownRates) break;
    if (std::isfinite(rate) && rate >= 0) to.rates[shown_text(name, kMaxRateName)] = std::min(rate, kMaxRate);
  }
  return to;
}

std::size_t fill_process(const std::vector<ActorSnapshot>& actors, std::size_t room, actors_wire::Process& out) {
  std::size_t used = 0;
  for (const auto& actor : actors) {
    if (static_cast<std::size_t>(out.actors_size()) < kMaxActorsPerProcess) {
      auto& filled = *out.add_actors();
      fill_actor(actor, filled);
      const auto size = filled.ByteSizeLong() + kFieldOverhead;
      if (used + size <= room) {
        used += size;
        continue;
      }
      out.mutable_actors()->RemoveLast();
    }
    out.set_left_out(out.left_out() + 1);
  }
  return used;
}

std::vector<ActorSnapshot> actors_of(const actors_wire::Process& process) {
  std::vector<ActorSnapshot> out;
  for (const auto& actor : process.actors()) {
    if (out.size() == kMaxActorsPerProcess) break;
    out.push_back(actor_of(actor));
  }
  return out;
}

absl::Status ActorsFrameDecoder::append(std::string_view bytes) {
  buffer_ += bytes;
  return check();
}

absl::Status ActorsFrameDecoder::check() const {
  if (buffer_.size() < kLengthBytes) return absl::OkStatus();
  const auto length = length_at(buffer_);
  if (length == 0) return absl::InvalidArgumentError("an actors message of length 0");
  if (length > limit_) return absl::InvalidArgumentError("an actors message is too long");
  return absl::OkStatus();
}

std::optional<std::string> ActorsFrameDecoder::next() {
  if (buffer_.size() < kLengthBytes || !check().ok()) return std::nullopt;
  const auto length = length_at(buffer_);
  if (buffer_.size() < kLengthBytes + length) return std::nullopt;
  std::string message = buffer_.substr(kLengthBytes, length);
  buffer_.erase(0, kLengthBytes + length);
  return message;
}

}  // namespace openshell
