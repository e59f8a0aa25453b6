// What a supervisor says it has installed of the attached providers, and what follows for a receipt. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>

#include "actors/gateway/records.hpp"
#include "actors/gateway/times.hpp"
#include "messages/gateway.hpp"

namespace openshell::gateway {

inline constexpr Millis kObservationLifetime = 15'000;
inline constexpr Millis kReportInterval = 5'000;

class ProviderEvidence {
 public:
  /// A new session begins: nothing is known.
  void reset() { *this = ProviderEvidence{}; }

  /// INVALID_ARGUMENT or FAILED_PRECONDITION; OK also for the exact repetition, which renews nothing.
  absl::Status report(const pb::ReportProviderReadinessRequest& request, const SessionInfo* session, bool ready, Millis now);

  /// The state of a receipt against what the sandbox wants now and what was observed.
  struct Wanted {
    std::string attachment_epoch;
    std::uint64_t provider_env_revision = 0;
    std::uint64_t config_revision = 0;
    std::string policy_hash;
    bool attached = false;  ///< the receipt's provider is attached
    std::string provider_id;
    std::uint64_t provider_version = 0;
  };
  pb::ProviderReadinessStatus evaluate(const records::ReceiptRecord& receipt, const Wanted& wanted, const SessionInfo* session,
                                       Millis now) const;

 private:
  std::optional<pb::ProviderReadinessObservation> observed_;
  Millis observed_at_ = 0;
};

}  // namespace openshell::gateway
