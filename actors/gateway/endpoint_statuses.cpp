#include "actors/gateway/endpoint_statuses.hpp"

#include <absl/strings/ascii.h>
#include <openssl/sha.h>

#include <algorithm>
#include <map>
#include <set>

#include "observability/text.hpp"
#include "policy/endpoint_inventory.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

constexpr auto kNothingYet = pb::ENDPOINT_RESULT_NO_OBSERVED_EXCHANGE;

/// Endpoints of several rules with the same id are one record; it is credentialed where one of them is.
std::map<std::string, policy::InventoryEndpoint> inventory_of(const openshell::sandbox::v1::SandboxPolicy& effective) {
  std::map<std::string, policy::InventoryEndpoint> out;
  for (auto& endpoint : policy::endpoint_inventory(effective)) {
    const auto [at, fresh] = out.emplace(endpoint.id, endpoint);
    if (!fresh) at->second.provider_credentialed = at->second.provider_credentialed || endpoint.provider_credentialed;
  }
  return out;
}

bool is_word(const std::string& text) {
  return !text.empty() && text.size() <= kMaxFailureWord && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_' ||
           c == '.' || c == '-';
  });
}

bool is_sound(const pb::EndpointFailure& failure) {
  return failure.domain() == pb::ENDPOINT_FAILURE_DOMAIN_TOKEN_GRANT && is_word(failure.code()) && is_word(failure.stage()) &&
         failure.provider().size() <= kMaxFailureProvider && failure.credential_key().size() <= kMaxFailureKey &&
         failure.request_id().size() <= kMaxFailureRequestId &&
         pb::ProviderCredentialRefreshRecoveryAction_IsValid(failure.recovery_action());
}

absl::Status check_observation(const pb::EndpointObservation& seen, const std::map<std::string, policy::InventoryEndpoint>& inventory) {
  if (seen.endpoint_id().empty()) return absl::InvalidArgumentError("endpoint_id is required");
  const auto known = inventory.find(seen.endpoint_id());
  if (known == inventory.end())
    return absl::FailedPreconditionError("tool server endpoint status contains an endpoint_id outside the current policy");
  if (!pb::EndpointResult_IsValid(seen.result())) return absl::InvalidArgumentError("tool server endpoint result is invalid");
  if (seen.result() == pb::ENDPOINT_RESULT_UNSPECIFIED) return absl::InvalidArgumentError("tool server endpoint result is required");
  const bool credential = seen.result() == pb::ENDPOINT_RESULT_CREDENTIAL_UNAVAILABLE;
  if (seen.has_failure() && (!credential || !is_sound(seen.failure())))
    return absl::InvalidArgumentError("tool server endpoint failure is invalid");
  if (credential && !known->second.provider_credentialed)
    return absl::InvalidArgumentError("credential-unavailable requires a credentialed tool server endpoint");
  return absl::OkStatus();
}

/// The marks of a report: which of its results are new.
absl::StatusOr<std::set<std::string>> marks_of(const pb::ReportEndpointStatusRequest& request,
                                               const std::map<std::string, const pb::EndpointObservation*>& seen) {
  std::set<std::string> out;
  for (const auto& id : request.observed_endpoint_ids()) {
    const auto at = seen.find(id);
    if (at == seen.end()) return absl::FailedPreconditionError("observed endpoint_id is outside the current snapshot");
    if (at->second->result() == kNothingYet)
      return absl::InvalidArgumentError("an observed tool server endpoint cannot report no observed exchange");
    if (!out.insert(id).second) return absl::InvalidArgumentError("observed endpoint_ids must be unique");
  }
  return out;
}

pb::EndpointStatus status_of(const policy::InventoryEndpoint& endpoint, const pb::EndpointObservation& seen, bool observed,
                             const pb::EndpointStatus* before, Millis now) {
  pb::EndpointStatus out;
  out.set_endpoint_id(endpoint.id);
  out.set_host(endpoint.host);
  for (const auto port : endpoint.ports) out.add_ports(port);
  out.set_path(endpoint.path);
  out.set_last_result(seen.result());
  if (seen.result() == kNothingYet) return out;
  if (observed) {
    set_millis(out.mutable_last_reported_time(), now);
  } else if (before != nullptr && before->has_last_reported_time()) {
    *out.mutable_last_reported_time() = before->last_reported_time();
  }
  if (seen.has_failure()) *out.mutable_last_failure() = seen.failure();
  return out;
}

void forget(pb::EndpointStatus& status) {
  status.set_last_result(kNothingYet);
  status.clear_last_reported_time();
  status.clear_last_failure();
}

}  // namespace

EndpointCursor cursor_of(const pb::ReportEndpointStatusRequest& request) {
  const auto bytes = request.SerializeAsString();
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return {request.report_sequence(), std::move(digest)};
}

absl::StatusOr<bool> advance(const EndpointCursor& cursor, const pb::ReportEndpointStatusRequest& request) {
  if (request.report_sequence() > cursor.sequence) return true;
  if (request.report_sequence() < cursor.sequence)
    return absl::FailedPreconditionError("tool server endpoint report sequence is older than the current session cursor");
  if (cursor_of(request).digest == cursor.digest) return false;
  return absl::InvalidArgumentError("a tool server endpoint report sequence must reuse the identical request");
}

absl::Status apply_endpoints(pb::SandboxStatus& status, const pb::ReportEndpointStatusRequest& request,
                             const openshell::sandbox::v1::SandboxPolicy& effective, Millis now) {
  const auto inventory = inventory_of(effective);
  std::map<std::string, const pb::EndpointObservation*> seen;
  for (const auto& observation : request.observations()) {
    if (auto checked = check_observation(observation, inventory); !checked.ok()) return checked;
    if (!seen.emplace(observation.endpoint_id(), &observation).second) return absl::InvalidArgumentError("endpoint_ids must be unique");
  }
  if (seen.size() != inventory.size())
    return absl::FailedPreconditionError("tool server endpoint status must contain the complete current endpoint set");
  auto marks = marks_of(request, seen);
  if (!marks.ok()) return marks.status();
  const auto& grant = request.token_grant_status();
  if (grant.has_last_failure() && !is_sound(grant.last_failure().failure()))
    return absl::InvalidArgumentError("tool server endpoint failure is invalid");

  std::map<std::string, const pb::EndpointStatus*> before;
  for (const auto& one : status.endpoint_statuses()) before[one.endpoint_id()] = &one;
  google::protobuf::RepeatedPtrField<pb::EndpointStatus> after;
  for (const auto& [id, endpoint] : inventory) {
    const auto& observation = *seen.at(id);
    const auto known = before.find(id);
    const auto* old = known == before.end() ? nullptr : known->second;
    const bool same = observation.result() == kNothingYet || (old != nullptr && old->last_result() == observation.result());
    if (!same && !marks->contains(id)) return absl::InvalidArgumentError("a new tool server endpoint result must be marked as observed");
    *after.Add() = status_of(endpoint, observation, marks->contains(id), old, now);
  }
  *status.mutable_endpoint_statuses() = std::move(after);
  if (request.has_token_grant_status()) {
    status.clear_last_token_grant_failure();
    if (grant.has_last_failure()) *status.mutable_last_token_grant_failure() = grant.last_failure();
  }
  return absl::OkStatus();
}

bool forget_results(pb::SandboxStatus& status) {
  bool changed = false;
  for (auto& one : *status.mutable_endpoint_statuses()) {
    if (one.last_result() == kNothingYet && !one.has_last_failure()) continue;
    forget(one);
    changed = true;
  }
  return changed;
}

bool forget_credentialed(pb::SandboxStatus& status, const openshell::sandbox::v1::SandboxPolicy& effective) {
  const auto inventory = inventory_of(effective);
  bool changed = status.has_last_token_grant_failure();
  status.clear_last_token_grant_failure();
  for (auto& one : *status.mutable_endpoint_statuses()) {
    const auto known = inventory.find(one.endpoint_id());
    const bool depends = known == inventory.end() || known->second.provider_credentialed;
    if (!depends || (one.last_result() == kNothingYet && !one.has_last_failure())) continue;
    forget(one);
    changed = true;
  }
  return changed;
}

}  // namespace openshell::gateway
