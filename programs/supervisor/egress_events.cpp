#include "programs/supervisor/egress_events.hpp"

#include "openshell.pb.h"

namespace openshell::supervisor {
namespace {

/// As openshell.v1.EndpointResult numbers them.
int wire_result(egress::EndpointResult result) {
  switch (result) {
    case egress::EndpointResult::kHttpResponseReceived:
      return v1::ENDPOINT_RESULT_HTTP_RESPONSE_RECEIVED;
    case egress::EndpointResult::kPolicyDenied:
      return v1::ENDPOINT_RESULT_POLICY_DENIED;
    case egress::EndpointResult::kCredentialUnavailable:
      return v1::ENDPOINT_RESULT_CREDENTIAL_UNAVAILABLE;
    case egress::EndpointResult::kTlsFailed:
      return v1::ENDPOINT_RESULT_TLS_FAILED;
    case egress::EndpointResult::kTransportFailed:
      return v1::ENDPOINT_RESULT_TRANSPORT_FAILED;
    case egress::EndpointResult::kUpstreamRejected:
      return v1::ENDPOINT_RESULT_UPSTREAM_REJECTED;
  }
  return v1::ENDPOINT_RESULT_UNSPECIFIED;
}

}  // namespace

void EgressEvents::emit(egress::Event event) noexcept {
  try {
    if (const auto* denial = std::get_if<egress::DenialEvent>(&event)) {
      denials_->push({denial->id.str(),
                      denial->host,
                      denial->port.value,
                      denial->binary,
                      denial->ancestors,
                      denial->reason,
                      denial->stage,
                      {},
                      {},
                      denial->at});
    } else if (auto* activity = std::get_if<egress::ActivityEvent>(&event)) {
      if (activity->disposition == egress::Disposition::kDenied) lines_->push(*activity);
      log_->push(std::move(*activity));
    } else if (const auto* seen = std::get_if<egress::EndpointObservation>(&event)) {
      endpoints_->observe(seen->generation, {seen->policy, seen->endpoint_index}, wire_result(seen->result));
    }
  } catch (...) {  // out of memory for a log line: the line is lost, the traffic is not
  }
}

}  // namespace openshell::supervisor
