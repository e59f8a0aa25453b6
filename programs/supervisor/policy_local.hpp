#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "egress/local_api.hpp"
#include "programs/supervisor/denial_lines.hpp"
#include "programs/supervisor/timer_thread.hpp"

namespace openshell::v1 {
class GetDraftPolicyResponse;
class PolicyChunk;
class SubmitPolicyAnalysisRequest;
class SubmitPolicyAnalysisResponse;
}  // namespace openshell::v1

namespace openshell::supervisor {

/// What an agent finds at http://policy.local: the policy it works under, what was denied lately, and a way to propose a rule and to wait
/// for the person who decides. It can approve nothing. Off, every route answers 404, unless `agent_policy_proposals_enabled` is set; read
/// anew for each request.
///
///   GET  /v1/policy/current               GET  /v1/denials?last=N
///   POST /v1/proposals                    GET  /v1/proposals/ID          GET /v1/proposals/ID/wait?timeout=S
class PolicyLocal final : public egress::LocalApi, public std::enable_shared_from_this<PolicyLocal> {
 public:
  /// The gateway, as far as proposals go. Callbacks come on any thread, once.
  struct Gateway {
    std::function<void(v1::SubmitPolicyAnalysisRequest, std::function<void(absl::StatusOr<v1::SubmitPolicyAnalysisResponse>)>)> submit;
    std::function<void(std::function<void(absl::StatusOr<v1::GetDraftPolicyResponse>)>)> drafts;
  };
  struct Limits {
    std::chrono::seconds default_wait{60}, longest_wait{300};
    std::chrono::milliseconds ask_every{1'000};  ///< the gateway, while somebody waits for a decision
    std::chrono::milliseconds look_every{200};   ///< at the policy in force, once it was approved
    std::chrono::milliseconds last_look{500};    ///< after a late approval
  };

  PolicyLocal(Gateway gateway, std::shared_ptr<const DenialLines> denials, std::shared_ptr<TimerThread> timers, Limits limits)
      : gateway_{std::move(gateway)}, denials_{std::move(denials)}, timers_{std::move(timers)}, limits_{limits} {}

  void published(std::shared_ptr<const egress::Generation> generation) override;
  void handle(egress::LocalRequest request, std::weak_ptr<const void> caller,
              absl::AnyInvocable<void(egress::LocalResponse)> done) override;

 private:
  using Done = std::shared_ptr<absl::AnyInvocable<void(egress::LocalResponse)>>;
  struct Wait;

  [[nodiscard]] std::shared_ptr<const egress::Generation> current() const;
  void propose(const egress::LocalRequest& request, const Done& done);
  void proposal(const std::string& rest, const egress::LocalRequest& request, std::weak_ptr<const void> caller, const Done& done);
  void look_up(const std::string& id, std::function<void(absl::StatusOr<v1::PolicyChunk>)> found);
  void ask(const std::shared_ptr<Wait>& wait);
  void asked(const std::shared_ptr<Wait>& wait, absl::StatusOr<v1::PolicyChunk> chunk);
  void await_reload(const std::shared_ptr<Wait>& wait);

  const Gateway gateway_;
  const std::shared_ptr<const DenialLines> denials_;
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::shared_ptr<const egress::Generation> generation_;
};

}  // namespace openshell::supervisor
