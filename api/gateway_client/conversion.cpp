#include "api/gateway_client/conversion.hpp"

#include <google/protobuf/util/time_util.h>

#include <utility>

#include "openshell.pb.h"
#include "policy/mapper.hpp"

namespace openshell::api {
namespace {

using google::protobuf::Timestamp;

Timestamp to_timestamp(std::chrono::system_clock::time_point at) {
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
  return google::protobuf::util::TimeUtil::NanosecondsToTimestamp(nanos);
}

absl::StatusOr<std::chrono::sys_seconds> to_seconds(bool present, const Timestamp& time, const char* field) {
  constexpr std::int64_t kYear10000 = 253'402'300'800;
  if (!present) return std::chrono::sys_seconds{};
  if (time.nanos() < 0 || time.nanos() > 999'999'999 || time.seconds() < 0 || time.seconds() >= kYear10000) {
    return absl::InvalidArgumentError(std::string{field} + " of the token renewal is out of range");
  }
  return std::chrono::sys_seconds{std::chrono::seconds{time.seconds()}};
}

supervisor::SettingValue to_setting(const sandbox::v1::SettingValue& value) {
  switch (value.value_case()) {
    case sandbox::v1::SettingValue::kBoolValue:
      return value.bool_value();
    case sandbox::v1::SettingValue::kIntValue:
      return value.int_value();
    case sandbox::v1::SettingValue::kBytesValue:
      return supervisor::SettingBytes{value.bytes_value()};
    default:
      return value.string_value();
  }
}

supervisor::PolicySource to_source(sandbox::v1::PolicySource source) {
  switch (source) {
    case sandbox::v1::POLICY_SOURCE_SANDBOX:
      return supervisor::PolicySource::sandbox;
    case sandbox::v1::POLICY_SOURCE_GLOBAL:
      return supervisor::PolicySource::global;
    default:
      return supervisor::PolicySource::none;
  }
}

void fill(const supervisor::DenialSummary& summary, v1::DenialSummary& out) {
  const auto& first = summary.first;
  out.set_host(first.host);
  out.set_port(first.port);
  out.set_binary(first.binary);
  for (const auto& ancestor : first.ancestors) out.add_ancestors(ancestor);
  out.set_deny_reason(first.reason);
  out.set_denial_stage(first.stage);
  *out.mutable_first_seen_time() = to_timestamp(first.at);
  *out.mutable_last_seen_time() = to_timestamp(summary.last_seen);
  out.set_count(summary.count);
  out.set_total_count(summary.count);
  for (const auto& sample : summary.samples) {
    auto& to = *out.add_l7_request_samples();
    to.set_method(sample.method);
    to.set_path(sample.path);
    to.set_decision("deny");
    to.set_count(sample.count);
  }
}

void fill(const supervisor::Proposal& proposal, v1::PolicyChunk& out) {
  out.set_rule_name(proposal.rule_name);
  out.set_rationale(policy::proposal_rationale({proposal.host, proposal.port, proposal.binary, proposal.stage, proposal.count}));
  out.set_confidence(static_cast<float>(proposal.confidence));
  for (const auto& id : proposal.denial_ids) out.add_denial_summary_ids(id);
  out.set_stage(proposal.stage);
  out.set_binary(proposal.binary);
  out.set_hit_count(static_cast<std::int32_t>(std::min<std::uint32_t>(proposal.count, 0x7fffffff)));
  *out.mutable_first_seen_time() = to_timestamp(proposal.first_seen);
  *out.mutable_last_seen_time() = to_timestamp(proposal.last_seen);
  auto& rule = *out.mutable_proposed_rule();
  rule.set_name(proposal.rule_name);
  auto& endpoint = *rule.add_endpoints();
  endpoint.set_host(proposal.host);
  endpoint.set_port(proposal.port);
  endpoint.add_ports(proposal.port);
  endpoint.set_advisor_proposed(true);
  if (proposal.binary != "-") rule.add_binaries()->set_path(proposal.binary);
}

}  // namespace

supervisor::ConfigSnapshot to_snapshot(sandbox::v1::GetSandboxConfigResponse response) {
  supervisor::ConfigSnapshot out;
  if (response.has_policy()) {
    auto policy = std::make_shared<sandbox::v1::SandboxPolicy>();
    policy->Swap(response.mutable_policy());
    out.policy = std::move(policy);
  }
  out.version = Revision{response.version()};
  out.policy_hash = response.policy_hash();
  out.source = to_source(response.policy_source());
  out.config_revision = response.config_revision();
  out.provider_env_revision = response.provider_env_revision();
  out.provider_attachment_epoch = response.provider_attachment_epoch();
  out.workspace = response.workspace();
  out.failure_mode = response.policy_validation_failure_mode() == "retain_last_valid" ? supervisor::FailureMode::retain_last_valid
                                                                                      : supervisor::FailureMode::fail_closed;
  out.admitted = response.configuration_admitted();
  out.configuration_error = response.configuration_error();
  out.instance_id = response.configuration_instance_id();
  for (const auto& [key, setting] : response.settings()) out.settings.emplace(key, to_setting(setting.value()));
  return out;
}

absl::StatusOr<TokenPair> to_tokens(const v1::RefreshSandboxTokenResponse& response) {
  auto gateway = to_seconds(response.has_expiration_time(), response.expiration_time(), "expiration_time");
  if (!gateway.ok()) return gateway.status();
  auto sandbox = to_seconds(response.has_sandbox_expiration_time(), response.sandbox_expiration_time(), "sandbox_expiration_time");
  if (!sandbox.ok()) return sandbox.status();
  return TokenPair{{Secret{response.token()}, *gateway},
                   {Secret{response.sandbox_token()}, *sandbox},
                   response.session_id(),
                   response.credential_epoch()};
}

void fill(const supervisor::AdmissionReport& report, const std::string& instance_id, v1::ReportSandboxConfigurationRequest& out) {
  out.set_expected_instance_id(report.expected_instance_id);
  auto& admission = *out.mutable_admission();
  admission.set_instance_id(instance_id);
  switch (report.state) {
    case supervisor::AdmissionState::pending:
      admission.set_state(v1::CONFIGURATION_ADMISSION_STATE_PENDING);
      break;
    case supervisor::AdmissionState::accepted:
      admission.set_state(v1::CONFIGURATION_ADMISSION_STATE_ACCEPTED);
      break;
    case supervisor::AdmissionState::rejected:
      admission.set_state(v1::CONFIGURATION_ADMISSION_STATE_REJECTED);
      break;
  }
  admission.set_policy_version(static_cast<std::uint32_t>(report.version.value));
  admission.set_policy_hash(report.policy_hash);
  admission.set_config_revision(report.config_revision);
  admission.set_provider_env_revision(report.provider_env_revision);
  admission.set_error(report.error);
}

void fill(const supervisor::ReadinessReport& report, const std::string& instance_id, v1::ReportProviderReadinessRequest& out) {
  auto& observation = *out.mutable_observation();
  observation.set_session_id(report.session_id);
  observation.set_sequence(report.sequence);
  observation.set_attachment_epoch(report.attachment_epoch);
  observation.set_provider_env_revision(report.provider_env_revision);
  observation.set_config_revision(report.config_revision);
  observation.set_policy_hash(report.policy_hash);
  observation.set_credentials_installed(report.credentials_installed);
  observation.set_policy_active(report.policy_active);
  observation.set_launch_environment_installed(report.launch_environment_installed);
  observation.set_process_instance_id(instance_id);
  if (!report.credentials_installed) {
    observation.set_reason(v1::PROVIDER_READINESS_REASON_CREDENTIAL_INSTALL_FAILED);
  } else if (!report.policy_active) {
    observation.set_reason(v1::PROVIDER_READINESS_REASON_POLICY_ACTIVATION_FAILED);
  } else if (!report.launch_environment_installed) {
    observation.set_reason(v1::PROVIDER_READINESS_REASON_PROCESS_INSTALL_FAILED);
  }
}

void fill(const supervisor::EndpointReport& report, v1::ReportEndpointStatusRequest& out) {
  out.set_policy_hash(report.policy_hash);
  out.set_provider_env_revision(report.provider_env_revision);
  out.set_supervisor_session_id(report.session_id);
  out.set_report_sequence(report.sequence);
  for (const auto& observation : report.observations) {
    auto& to = *out.add_observations();
    to.set_endpoint_id(observation.endpoint_id);
    to.set_result(static_cast<v1::EndpointResult>(observation.result));
  }
  for (const auto& id : report.observed) out.add_observed_endpoint_ids(id);
}

void fill(const supervisor::DenialBatch& batch, v1::SubmitPolicyAnalysisRequest& out) {
  out.set_analysis_mode("mechanistic");
  for (const auto& summary : batch.summaries) fill(summary, *out.add_summaries());
  for (const auto& proposal : batch.proposals) fill(proposal, *out.add_proposed_chunks());
}

void fill(const supervisor::LogLine& line, v1::SandboxLogLine& out) {
  *out.mutable_event_time() = to_timestamp(line.at);
  out.set_level(line.level);
  out.set_target(line.target);
  out.set_message(line.message);
  out.set_source("sandbox");
  for (const auto& [key, value] : line.fields) (*out.mutable_fields())[key] = value;
}

std::optional<supervisor::SessionEvent> to_event(std::uint64_t connection, const v1::GatewayMessage& message) {
  using Event = supervisor::SessionEvent;
  Event event{connection, Event::Heartbeat{}};
  switch (message.payload_case()) {
    case v1::GatewayMessage::kSessionAccepted: {
      const auto& accepted = message.session_accepted();
      const auto& interval = accepted.heartbeat_interval();
      event.what =
          Event::Accepted{accepted.session_id(), std::chrono::milliseconds{interval.seconds() * 1000 + interval.nanos() / 1'000'000}};
      return event;
    }
    case v1::GatewayMessage::kSessionRejected:
      event.what = Event::Rejected{message.session_rejected().reason()};
      return event;
    case v1::GatewayMessage::kHeartbeat:
      return event;
    case v1::GatewayMessage::kRelayOpen: {
      const auto& open = message.relay_open();
      supervisor::RelayRequest request{open.channel_id(), open.service_id(), {}, 0, open.has_tcp()};
      if (open.has_tcp()) {
        request.tcp_host = open.tcp().host();
        request.tcp_port = open.tcp().port() <= 65'535 ? static_cast<std::uint16_t>(open.tcp().port()) : 0;
      }
      event.what = Event::RelayOpened{std::move(request)};
      return event;
    }
    case v1::GatewayMessage::kRelayClose:
      event.what = Event::RelayClosed{message.relay_close().channel_id(), message.relay_close().reason()};
      return event;
    case v1::GatewayMessage::kConfigUpdate: {
      const auto& update = message.config_update();
      event.what = Event::ConfigUpdate{update.update_id(), update.has_sandbox_config() || update.has_provider_environment()};
      return event;
    }
    case v1::GatewayMessage::kSessionRedirect:  // switched off on both sides: as good as the end of the stream
      event.what = Event::Ended{static_cast<int>(absl::StatusCode::kUnavailable), "the gateway sent a redirect"};
      return event;
    default:
      return std::nullopt;
  }
}

}  // namespace openshell::api
