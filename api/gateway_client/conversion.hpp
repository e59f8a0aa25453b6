// Between the public messages and the supervisor's values. No I/O.
#pragma once

#include <absl/status/statusor.h>

#include <optional>

#include "api/gateway_client/token_slots.hpp"
#include "messages/supervisor.hpp"

namespace google::protobuf {
class Timestamp;
}
namespace openshell::sandbox::v1 {
class GetSandboxConfigResponse;
}
namespace openshell::v1 {
class GatewayMessage;
class RefreshSandboxTokenResponse;
class ReportEndpointStatusRequest;
class ReportProviderReadinessRequest;
class ReportSandboxConfigurationRequest;
class SandboxLogLine;
class SubmitPolicyAnalysisRequest;
}  // namespace openshell::v1

namespace openshell::api {

/// Takes the policy out of the response instead of copying it.
supervisor::ConfigSnapshot to_snapshot(sandbox::v1::GetSandboxConfigResponse response);

/// InvalidArgument for times out of range; the caller checks the rest by installing it.
absl::StatusOr<TokenPair> to_tokens(const v1::RefreshSandboxTokenResponse& response);

void fill(const supervisor::AdmissionReport& report, const std::string& instance_id, v1::ReportSandboxConfigurationRequest& out);
void fill(const supervisor::ReadinessReport& report, const std::string& instance_id, v1::ReportProviderReadinessRequest& out);
void fill(const supervisor::EndpointReport& report, v1::ReportEndpointStatusRequest& out);
void fill(const supervisor::DenialBatch& batch, v1::SubmitPolicyAnalysisRequest& out);
void fill(const supervisor::LogLine& line, v1::SandboxLogLine& out);

/// What a message of the gateway means to the session; nothing for one that is ignored.
std::optional<supervisor::SessionEvent> to_event(std::uint64_t connection, const v1::GatewayMessage& message);

}  // namespace openshell::api
