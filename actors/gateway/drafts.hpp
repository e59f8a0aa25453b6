// Proposals as they lie in the store: how one begins, is counted again, decided, undone and told. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/draft_evaluation.hpp"
#include "actors/gateway/records.hpp"
#include "actors/gateway/times.hpp"

namespace openshell::gateway {

/// Proposals that wait for a person, per sandbox.
inline constexpr std::size_t kMaxPendingDrafts = 1'000;
/// Rejected proposals that are kept, per sandbox: an agent may propose the same thing without end, each time in place of the one before.
inline constexpr std::size_t kMaxRejectedDrafts = 1'000;
/// Denials that a proposal names.
inline constexpr std::size_t kMaxDenialIds = 20;
/// Observations that one submission adds to a proposal at most.
inline constexpr int kMaxHitsPerSubmission = 100;
/// Pending proposals that are evaluated again after a change, newest first; older ones keep what they have, and approval finds it stale.
inline constexpr std::size_t kMaxRefreshedDrafts = 32;

namespace draft_status {
inline constexpr std::string_view kPending = "pending";
inline constexpr std::string_view kApproved = "approved";
inline constexpr std::string_view kRejected = "rejected";
}  // namespace draft_status

/// A rule that somebody proposes: hosts in lower case, marked as proposed, and nothing in it that only the gateway may say.
void own_proposal(openshell::sandbox::v1::NetworkPolicyRule& rule);
/// A proposal as it came, brought into shape: pending, not evaluated. INVALID_ARGUMENT, naming it, for one that is none.
absl::StatusOr<records::DraftChunkRecord> new_draft(const pb::PolicyChunk& proposed, const std::string& mode, std::uint64_t version,
                                                    std::string id, Millis now);

/// The same thing was observed again. What was counted before, in a submission whose answer was lost, is not counted twice.
void count_again(records::DraftChunkRecord& stored, const records::DraftChunkRecord& seen);

/// Host, port and program of a proposal, its first of each.
std::string draft_key(const pb::PolicyChunk& chunk);

void record_evaluation(records::DraftChunkRecord& draft, const Evaluation& evaluation);
void approve(records::DraftChunkRecord& draft, const std::string& applied_rule, Millis now);
void reject(records::DraftChunkRecord& draft, const std::string& reason, Millis now);
/// Back to pending, as if nobody had decided.
void reopen(records::DraftChunkRecord& draft);

/// As clients see it: security notes recomputed.
pb::PolicyChunk to_public(const records::DraftChunkRecord& draft);
/// Newest first.
std::vector<const records::DraftChunkRecord*> newest_first(const DraftRows& drafts);
/// Ids of the oldest rejected proposals beyond kMaxRejectedDrafts.
std::vector<std::string> surplus_rejected(const DraftRows& drafts);
/// What happened, in the order of time.
pb::GetDraftHistoryResponse history_of(const DraftRows& drafts);

}  // namespace openshell::gateway
