// Decision records: from a file, or from the supervisor of a running sandbox.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.hpp"
#include "policy/decision_record.hpp"

namespace openshell::cli {

/// A file or stream of records, all of it. Bytes.
inline constexpr std::size_t kMaxDecisionBytes = 64UL * 1024 * 1024;

struct Decisions {
  std::vector<std::string> lines;  ///< as read
  std::vector<policy::DecisionRecord> records;
  std::uint64_t dropped = 0;  ///< that the supervisor did not keep
};

struct DecisionFilter {
  std::optional<std::chrono::system_clock::time_point> since;
  std::size_t limit = policy::kMaxRecords;  ///< the newest
};

/// INVALID_ARGUMENT names file, line and member. A last line `{"end": true, "dropped": n}` may be there.
absl::StatusOr<Decisions> read_decisions(const std::string& text, const std::string& name, const DecisionFilter& filter);

/// DATA_LOSS where the stream ended before its last line: then nothing of it counts.
absl::StatusOr<Decisions> fetch_decisions(Context& context, const std::string& sandbox, const DecisionFilter& filter);

/// An absolute time as RFC 3339 writes it, or `15m`, `2h`, `30s`, `1d` back from `now`.
absl::StatusOr<std::chrono::system_clock::time_point> parse_since(const std::string& word, std::chrono::system_clock::time_point now);

}  // namespace openshell::cli
