#include "actors/outbox/journal_record.hpp"

#include <boost/crc.hpp>

#include <chrono>

#include "outbox.pb.h"

namespace openshell::supervisor {
namespace {

namespace pb = openshell::internal::outbox::v1;

constexpr std::string_view kMagic = "OSOUTBX1";
constexpr char kStatus = 1;
constexpr char kDone = 2;

template <class Number>
void put(std::string& out, Number value) {
  for (int shift = static_cast<int>(sizeof(Number)) * 8 - 8; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

template <class Number>
Number get(std::string_view bytes) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) value = static_cast<Number>(value << 8 | static_cast<std::uint8_t>(bytes[i]));
  return value;
}

std::uint32_t checksum(std::string_view length, std::string_view kind_and_body) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;  // Castagnoli
  crc.process_bytes(length.data(), length.size());
  crc.process_bytes(kind_and_body.data(), kind_and_body.size());
  return crc.checksum();
}

std::string record(char kind, const std::string& body) {
  std::string out;
  out.reserve(kJournalFrameBytes + body.size());
  put(out, static_cast<std::uint32_t>(body.size()));
  const auto content = kind + body;
  put(out, checksum(out, content));
  return out + content;
}

pb::Why to_wire(Acknowledgement why) {
  switch (why) {
    case Acknowledgement::initial:
      return pb::WHY_INITIAL;
    case Acknowledgement::unchanged:
      return pb::WHY_UNCHANGED;
    case Acknowledgement::reloaded:
      break;
  }
  return pb::WHY_RELOADED;
}

Acknowledgement from_wire(pb::Why why) {
  if (why == pb::WHY_INITIAL) return Acknowledgement::initial;
  return why == pb::WHY_UNCHANGED ? Acknowledgement::unchanged : Acknowledgement::reloaded;
}

bool take_status(JournalContent& out, std::string_view body) {
  pb::Status wire;
  if (!wire.ParseFromArray(body.data(), static_cast<int>(body.size()))) return false;
  const auto newest = out.statuses.empty() ? out.first_seq : out.statuses.back().seq + 1;
  const bool known = wire.status() == pb::OUTCOME_LOADED || wire.status() == pb::OUTCOME_FAILED;
  if (wire.seq() < newest || wire.seq() > kMaxJournalSequence || !known) return false;
  const auto outcome = wire.status() == pb::OUTCOME_LOADED ? PolicyOutcome::loaded : PolicyOutcome::failed;
  out.statuses.push_back({wire.seq(),
                          std::move(*wire.mutable_sandbox_id()),
                          std::move(*wire.mutable_generation()),
                          {Revision{wire.version()}, outcome, std::move(*wire.mutable_load_error()), from_wire(wire.why())}});
  return true;
}

bool take_done(JournalContent& out, std::string_view body) {
  pb::Done wire;
  if (!wire.ParseFromArray(body.data(), static_cast<int>(body.size()))) return false;
  out.done.push_back({wire.seq(), wire.outcome() != pb::SETTLEMENT_DISCARDED});
  return true;
}

/// One record at the front of `bytes`; its size, or 0 where it cannot be trusted.
std::size_t take_record(JournalContent& out, std::string_view bytes) {
  if (bytes.size() < kJournalFrameBytes) return 0;
  const auto length = get<std::uint32_t>(bytes);
  if (length == 0 || length > kMaxJournalBodyBytes || bytes.size() - kJournalFrameBytes < length) return 0;
  const auto content = bytes.substr(kJournalFrameBytes - 1, length + 1);
  if (checksum(bytes.substr(0, 4), content) != get<std::uint32_t>(bytes.substr(4))) return 0;
  const auto body = content.substr(1);
  if (content[0] == kStatus && !take_status(out, body)) return 0;
  if (content[0] == kDone && !take_done(out, body)) return 0;
  return kJournalFrameBytes + length;
}

}  // namespace

std::string journal_head(std::uint64_t first_seq) {
  std::string out{kMagic};
  put(out, first_seq);
  return out;
}

std::string journal_record(const JournalStatus& status) {
  pb::Status wire;
  wire.set_seq(status.seq);
  wire.set_sandbox_id(status.sandbox_id);
  wire.set_version(status.status.revision.value);
  wire.set_status(status.status.outcome == PolicyOutcome::loaded ? pb::OUTCOME_LOADED : pb::OUTCOME_FAILED);
  wire.set_load_error(status.status.error.substr(0, kMaxJournalErrorBytes));
  wire.set_generation(status.generation);
  wire.set_why(to_wire(status.status.why));
  return record(kStatus, wire.SerializeAsString());
}

std::string journal_record(const JournalDone& done) {
  pb::Done wire;
  wire.set_seq(done.seq);
  wire.set_outcome(done.delivered ? pb::SETTLEMENT_DELIVERED : pb::SETTLEMENT_DISCARDED);
  return record(kDone, wire.SerializeAsString());
}

JournalContent read_journal(std::string_view bytes) {
  JournalContent out;
  if (bytes.size() < kJournalHeadBytes || !bytes.starts_with(kMagic)) return out;
  out.has_head = true;
  out.first_seq = get<std::uint64_t>(bytes.substr(kMagic.size()));
  out.good_bytes = kJournalHeadBytes;
  while (const auto size = take_record(out, bytes.substr(out.good_bytes))) out.good_bytes += size;
  return out;
}

}  // namespace openshell::supervisor
