#include "actors/gateway/drafts.hpp"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <cmath>

#include "actors/gateway/admission.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "policy/blocked_destination.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

namespace sb = openshell::sandbox::v1;

bool is_time(const google::protobuf::Timestamp& time) {
  return time.seconds() >= 0 && time.seconds() <= 253'402'300'799 && time.nanos() >= 0 && time.nanos() < 1'000'000'000;
}

/// What an agent may not ask for: access that nobody could look into.
std::string forbidden_to_agents(const sb::NetworkPolicyRule& rule) {
  for (const auto& endpoint : rule.endpoints()) {
    const auto protocol = absl::AsciiStrToLower(endpoint.protocol());
    if (protocol == "tcp" || protocol == "sql") return cat("protocol ", protocol);
    if (endpoint.tls() == sb::NETWORK_TLS_MODE_SKIP) return "tls: skip";
  }
  return {};
}

absl::Status check_proposed(const pb::PolicyChunk& proposed, const std::string& mode) {
  const auto& name = proposed.rule_name();
  if (name.empty()) return absl::InvalidArgumentError("chunk missing rule_name");
  if (name.starts_with(policy::kProviderRulePrefix)) {
    return absl::InvalidArgumentError(cat("chunk '", name, "' uses reserved '_provider_' rule-name prefix"));
  }
  if (!proposed.has_proposed_rule()) return absl::InvalidArgumentError(cat("chunk '", name, "' missing proposed_rule"));
  if (proposed.has_first_seen_time() && !is_time(proposed.first_seen_time()))
    return absl::InvalidArgumentError(cat("chunk '", name, "' has invalid first_seen_time: out of range"));
  if (proposed.has_last_seen_time() && !is_time(proposed.last_seen_time()))
    return absl::InvalidArgumentError(cat("chunk '", name, "' has invalid last_seen_time: out of range"));
  if (mode == "agent_authored") {
    if (const auto what = forbidden_to_agents(proposed.proposed_rule()); !what.empty()) {
      return absl::InvalidArgumentError(
          cat("chunk '", name, "': agent-authored proposals cannot request ", what, "; an administrator must add such access"));
    }
  }
  return absl::OkStatus();
}

void clear_decision(pb::PolicyChunk& chunk) {
  chunk.clear_decided_time();
  chunk.clear_rejection_reason();
}

Millis created(const records::DraftChunkRecord& draft) { return to_millis(draft.chunk().created_time()); }

}  // namespace

std::string draft_key(const pb::PolicyChunk& chunk) {
  const auto& rule = chunk.proposed_rule();
  if (rule.endpoints().empty()) return {};
  const auto& endpoint = rule.endpoints(0);
  const auto port = endpoint.ports_size() > 0 ? endpoint.ports(0) : endpoint.port();
  if (endpoint.host().empty() || port == 0 || chunk.binary().empty()) return {};
  return cat(endpoint.host(), "|", port, "|", chunk.binary());
}

void own_proposal(openshell::sandbox::v1::NetworkPolicyRule& rule) {
  for (auto& endpoint : *rule.mutable_endpoints()) {
    endpoint.set_host(absl::AsciiStrToLower(endpoint.host()));
    endpoint.clear_provider_credentialed();
    endpoint.clear_token_grant_owner();
    endpoint.set_advisor_proposed(true);
  }
}

absl::StatusOr<records::DraftChunkRecord> new_draft(const pb::PolicyChunk& proposed, const std::string& mode, std::uint64_t version,
                                                    std::string id, Millis now) {
  if (auto status = check_proposed(proposed, mode); !status.ok()) return status;
  records::DraftChunkRecord draft;
  draft.set_mode(mode);
  draft.set_draft_version(version);
  auto& chunk = *draft.mutable_chunk();
  chunk = proposed;
  own_proposal(*chunk.mutable_proposed_rule());
  chunk.set_id(std::move(id));
  chunk.set_status(std::string{draft_status::kPending});
  chunk.set_confidence(std::isfinite(proposed.confidence()) ? std::clamp(proposed.confidence(), 0.0F, 1.0F) : 0.0F);
  chunk.set_hit_count(std::clamp(proposed.hit_count(), 1, kMaxHitsPerSubmission));
  clear_decision(chunk);
  chunk.clear_security_notes();
  chunk.clear_supersedes_chunk_id();
  chunk.clear_denial_summary_ids();
  for (const auto& denial : proposed.denial_summary_ids()) {
    if (is_uuid(denial) && static_cast<std::size_t>(chunk.denial_summary_ids_size()) < kMaxDenialIds) chunk.add_denial_summary_ids(denial);
  }
  set_millis(chunk.mutable_created_time(), now);
  if (!chunk.has_first_seen_time()) set_millis(chunk.mutable_first_seen_time(), now);
  if (!chunk.has_last_seen_time()) set_millis(chunk.mutable_last_seen_time(), now);
  const auto& rule = chunk.proposed_rule();
  if (chunk.binary().empty() && rule.binaries_size() > 0) chunk.set_binary(rule.binaries(0).path());
  if (mode == "mechanistic") draft.set_dedup_key(draft_key(chunk));
  *draft.mutable_counted_from() = chunk.first_seen_time();
  draft.set_counted_hits(chunk.hit_count());
  record_evaluation(draft, {});
  return draft;
}

void count_again(records::DraftChunkRecord& stored, const records::DraftChunkRecord& seen) {
  auto& chunk = *stored.mutable_chunk();
  const auto& from = seen.counted_from();
  const bool repeated = from.seconds() == stored.counted_from().seconds() && from.nanos() == stored.counted_from().nanos();
  const int fresh = seen.counted_hits() - (repeated ? stored.counted_hits() : 0);
  if (fresh > 0) {
    chunk.set_hit_count(chunk.hit_count() + fresh);
    stored.set_counted_hits(seen.counted_hits());
  }
  *stored.mutable_counted_from() = from;
  if (to_millis(seen.chunk().last_seen_time()) > to_millis(chunk.last_seen_time()))
    *chunk.mutable_last_seen_time() = seen.chunk().last_seen_time();
}

void record_evaluation(records::DraftChunkRecord& draft, const Evaluation& evaluation) {
  auto& chunk = *draft.mutable_chunk();
  chunk.set_validation_result(evaluation.verdict);
  chunk.set_application_error(evaluation.error);
  chunk.set_review_token(evaluation.token);
  chunk.set_current_effective_policy_hash(evaluation.current_hash);
  chunk.set_candidate_effective_policy_hash(evaluation.candidate_hash);
  chunk.clear_current_effective_policy();  // whole policies are composed when somebody looks, not kept with every proposal
  chunk.clear_candidate_effective_policy();
}

void approve(records::DraftChunkRecord& draft, const std::string& applied_rule, Millis now) {
  auto& chunk = *draft.mutable_chunk();
  clear_decision(chunk);
  chunk.set_status(std::string{draft_status::kApproved});
  set_millis(chunk.mutable_decided_time(), now);
  draft.set_applied_rule_name(applied_rule);
}

void reject(records::DraftChunkRecord& draft, const std::string& reason, Millis now) {
  auto& chunk = *draft.mutable_chunk();
  clear_decision(chunk);
  chunk.set_status(std::string{draft_status::kRejected});
  chunk.set_rejection_reason(reason);
  set_millis(chunk.mutable_decided_time(), now);
  draft.clear_applied_rule_name();
}

void reopen(records::DraftChunkRecord& draft) {
  clear_decision(*draft.mutable_chunk());
  draft.mutable_chunk()->set_status(std::string{draft_status::kPending});
  draft.clear_applied_rule_name();
}

pb::PolicyChunk to_public(const records::DraftChunkRecord& draft) {
  auto chunk = draft.chunk();
  chunk.set_security_notes(policy::security_notes(chunk.proposed_rule()));
  return chunk;
}

std::vector<const records::DraftChunkRecord*> newest_first(const DraftRows& drafts) {
  std::vector<const records::DraftChunkRecord*> out;
  for (const auto& [id, draft] : drafts) out.push_back(&draft);
  std::stable_sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return created(*a) > created(*b); });
  return out;
}

std::vector<std::string> surplus_rejected(const DraftRows& drafts) {
  std::vector<std::string> out;
  std::size_t kept = 0;
  for (const auto* draft : newest_first(drafts)) {
    if (draft->chunk().status() == draft_status::kRejected && ++kept > kMaxRejectedDrafts) out.push_back(draft->chunk().id());
  }
  return out;
}

pb::GetDraftHistoryResponse history_of(const DraftRows& drafts) {
  pb::GetDraftHistoryResponse out;
  const auto add = [&](const google::protobuf::Timestamp& time, const std::string& type, const std::string& text, const std::string& id) {
    auto& entry = *out.add_entries();
    *entry.mutable_event_time() = time;
    entry.set_event_type(type);
    entry.set_description(text);
    entry.set_chunk_id(id);
  };
  for (const auto& [id, draft] : drafts) {
    const auto& chunk = draft.chunk();
    const auto percent = std::lround(static_cast<double>(chunk.confidence()) * 100);
    add(chunk.created_time(), "proposed", cat("Rule '", chunk.rule_name(), "' proposed (confidence: ", percent, "%)"), id);
    if (chunk.has_decided_time()) add(chunk.decided_time(), chunk.status(), cat("Rule '", chunk.rule_name(), "' ", chunk.status()), id);
  }
  std::stable_sort(out.mutable_entries()->begin(), out.mutable_entries()->end(), [](const auto& a, const auto& b) {
    return std::pair{a.event_time().seconds(), a.event_time().nanos()} < std::pair{b.event_time().seconds(), b.event_time().nanos()};
  });
  return out;
}

}  // namespace openshell::gateway
