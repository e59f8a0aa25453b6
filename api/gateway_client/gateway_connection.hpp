#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "api/gateway_client/token_slots.hpp"
#include "egress/stream.hpp"
#include "messages/supervisor.hpp"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc
namespace openshell::v1 {
class GetDraftPolicyResponse;
class SubmitPolicyAnalysisRequest;
class SubmitPolicyAnalysisResponse;
class SupervisorHello;
}  // namespace openshell::v1

namespace openshell::api {

/// Every unary call to the gateway ends within this.
inline constexpr std::chrono::seconds kGatewayCallDeadline{10};

struct GatewayOptions {
  std::string endpoint;         ///< https://host:port or http://host:port
  std::string ca_path;          ///< PEM file; required with https, and the only roots that count
  std::string tls_server_name;  ///< overrides the name in the endpoint; empty: none
  std::string sandbox_id;
  std::string sandbox_name;
  std::string instance_id;   ///< of this supervisor process (UUID)
  std::string ssh_host_key;  ///< fingerprint of its SSH server's key, told with each session; empty: it has none
};

/// The one HTTP/2 connection to the gateway, shared by unary calls, the session, relays and logs. Any thread.
class GatewayConnection {
 public:
  /// InvalidArgument for an endpoint of another scheme, FailedPrecondition where the CA is missing or unreadable. Connects with the first
  /// call.
  static absl::StatusOr<std::shared_ptr<GatewayConnection>> make(GatewayOptions options, std::shared_ptr<TokenSlots> tokens);
  ~GatewayConnection();
  GatewayConnection(const GatewayConnection&) = delete;
  GatewayConnection& operator=(const GatewayConnection&) = delete;

  [[nodiscard]] const GatewayOptions& options() const noexcept { return options_; }
  [[nodiscard]] TokenSlots& tokens() const noexcept { return *tokens_; }

  /// Puts the bearer on a call; Unauthenticated when it has expired.
  absl::Status authorise(grpc::ClientContext& context) const;

  // One function an RPC. `done` runs once, on a thread of gRPC or before the call returns.
  template <class T>
  using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;
  using Sent = absl::AnyInvocable<void(absl::Status)>;
  void get_config(Done<supervisor::ConfigSnapshot> done);
  void get_environment(Done<supervisor::ProviderEnvironment> done);
  void report_policy_status(const supervisor::PolicyStatus& status, Sent done);
  void report_admission(const supervisor::AdmissionReport& report, Sent done);
  void report_readiness(const supervisor::ReadinessReport& report, Done<supervisor::ReadinessAccepted> done);
  void report_endpoints(const supervisor::EndpointReport& report, Sent done);
  void submit_policy(const supervisor::PolicyUpload& upload, Sent done);
  void submit_analysis(const supervisor::DenialBatch& batch, Sent done);
  /// What an agent proposes; `request` names no sandbox, it is this one.
  void submit_proposals(v1::SubmitPolicyAnalysisRequest request, Done<v1::SubmitPolicyAnalysisResponse> done);
  /// Every proposal of this sandbox.
  void get_drafts(Done<v1::GetDraftPolicyResponse> done);
  void report_main_exit(int code, Sent done);
  void finalize_main_exit(Sent done);
  /// Renews both tokens and installs them.
  void renew_tokens(Sent done);

  /// RelayStream: its first frame, the channel id, is sent; the stream then carries the relay's bytes.
  std::shared_ptr<egress::ByteStream> open_relay(const std::string& channel_id);

  class Stub;
  [[nodiscard]] Stub& stub() const noexcept { return *stub_; }

 private:
  GatewayConnection(GatewayOptions options, std::shared_ptr<TokenSlots> tokens, std::unique_ptr<Stub> stub);

  GatewayOptions options_;
  std::shared_ptr<TokenSlots> tokens_;
  std::unique_ptr<Stub> stub_;
};

}  // namespace openshell::api
