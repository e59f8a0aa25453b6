// What a decision was made from and what came out, as one line of JSON without anything that a request carried in its values: query values
// and body parameters stand as their hash. Header fields, bodies and credentials are no input of a decision and never here.
//
//   {"time":"2026-01-02T03:04:05.678Z","generation":7,"policy_hash":"...","input":{...},"decision":"deny"}
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/judgement.hpp"

namespace openshell::policy {

/// One line, its end not counted. A decision whose record would be longer is counted and not kept.
inline constexpr std::size_t kMaxRecordBytes = 16'384;
/// Records that one replay reads.
inline constexpr std::size_t kMaxRecords = 10'000;

using WallTime = std::chrono::system_clock::time_point;

struct DecisionRecord {
  WallTime time;
  std::uint64_t generation = 0;
  std::string policy_hash;
  Question question;
  Decision decision = Decision::deny;
};

/// The line of one decision, values hashed, without a line end. Empty where parse_record would not take it: longer than kMaxRecordBytes, or
/// a request with more items or longer names than a question can have.
[[nodiscard]] std::string record_line(WallTime time, std::uint64_t generation, std::string_view policy_hash, const Destination& destination,
                                      const Request* request, Decision decision);

/// INVALID_ARGUMENT names the member, behind `where` (`FILE:LINE`).
absl::StatusOr<DecisionRecord> parse_record(std::string_view line, const std::string& where);

/// RFC 3339 with milliseconds, UTC.
[[nodiscard]] std::string show_record_time(WallTime time);
absl::StatusOr<WallTime> parse_record_time(const std::string& text);

}  // namespace openshell::policy
