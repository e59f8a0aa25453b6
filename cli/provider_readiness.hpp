// What became of a change of providers, per sandbox: the document that attach, detach, status and update print, and the wait for it.
#pragma once

#include <absl/status/statusor.h>

#include <boost/json/value.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "cli/context.hpp"
#include "openshell.pb.h"

namespace openshell::cli {

enum class WaitOutcome { not_requested, complete, timed_out, terminal, observation_error };

/// One sandbox's part of a change.
struct ReadinessTarget {
  v1::ProviderMutationReceipt receipt;
  v1::ProviderReadinessStatus status;  ///< state PERSISTED until somebody asked
  WaitOutcome outcome = WaitOutcome::not_requested;
};

struct ReadinessOptions {
  bool wait = false;
  int timeout_seconds = 30;
  Format format = Format::table;
};

ReadinessTarget target_of(const v1::ProviderMutationReceipt& receipt);

/// Where asked for, polls each target until it is ready or revoked, or cannot become so. Prints the document in every case. Error: a target
/// did not complete.
absl::StatusOr<int> report_readiness(GatewayClient& client, const std::string& mutation_id, std::vector<ReadinessTarget> targets,
                                     const ReadinessOptions& options);

/// The document.
boost::json::object readiness_document(const std::string& mutation_id, const std::vector<ReadinessTarget>& targets);

}  // namespace openshell::cli
