#include "programs/supervisor/egress_runtime.hpp"

#include <spdlog/spdlog.h>

#include <set>
#include <utility>

#include "actors/supervisor/settings.hpp"
#include "openshell.pb.h"
#include "policy/matcher.hpp"
#include "policy/validate.hpp"

namespace openshell::supervisor {
namespace {

egress::ProviderEnvironment to_environment(const v1::GetSandboxProviderEnvironmentResponse& response) {
  egress::ProviderEnvironment out;
  out.revision = response.provider_env_revision();
  for (const auto& [key, value] : response.environment()) out.values.emplace(key, Secret{value});
  for (const auto& [key, time] : response.credential_expiration_times()) {
    out.expires.emplace(key, std::chrono::system_clock::time_point{std::chrono::seconds{time.seconds()}});
  }
  for (const auto& [key, binding] : response.static_credential_bindings()) {
    egress::CredentialBinding to{{}, binding.credential_identity(), binding.workload_credential_handle()};
    for (const auto& endpoint : binding.endpoints()) to.endpoints.push_back({endpoint.host(), endpoint.port(), endpoint.path()});
    out.bindings.emplace(key, std::move(to));
  }
  out.non_secret.assign(response.non_secret_environment_keys().begin(), response.non_secret_environment_keys().end());
  return out;
}

}  // namespace

struct EgressRuntime::Prepared final : PreparedRuntime {
  std::shared_ptr<egress::Generation> generation = std::make_shared<egress::Generation>();
  egress::CredentialLedger::Candidate credentials;
  std::optional<std::vector<policy::InventoryEndpoint>> endpoints;  // none: those of before
};

absl::StatusOr<std::unique_ptr<PreparedRuntime>> EgressRuntime::prepare(const Candidate& candidate) {
  auto prepared = std::make_unique<Prepared>();
  auto& generation = *prepared->generation;
  const std::lock_guard lock{mutex_};
  if (closed_) return absl::FailedPreconditionError("the supervisor ends");

  if (candidate.reload_policy || !matcher_) {
    if (!candidate.snapshot.policy) return absl::FailedPreconditionError("the configuration holds no policy");
    auto policy = *candidate.snapshot.policy;
    if (auto status = policy::admit_effective(policy); !status.ok()) return status;
    auto matcher = policy::Matcher::compile(policy);
    if (!matcher.ok()) return matcher.status();
    generation.matcher = *std::move(matcher);
    prepared->endpoints = policy::endpoint_inventory(policy);
  } else {
    generation.matcher = matcher_;
  }

  if (candidate.environment_changed || !credentials_.table) {
    auto credentials = candidate.environment.content ? ledger_.prepare(to_environment(*candidate.environment.content)) : ledger_.revoked();
    if (!credentials.ok()) {  // the policy may be in force without its credentials, never the other way round
      spdlog::error("the provider environment was refused, no credential resolves: {}", std::string{credentials.status().message()});
      credentials = ledger_.revoked();
    }
    for (const auto& warning : credentials->warnings) spdlog::warn("provider environment: {}", warning);
    prepared->credentials = *std::move(credentials);
  } else {
    prepared->credentials = credentials_;
  }
  generation.credentials = prepared->credentials.table;

  const auto settings = read_settings(candidate.snapshot.settings);
  generation.denied_http = settings.explain_denied_http ? egress::DeniedHttp::kExplain : egress::DeniedHttp::kRefuse;
  generation.agent_proposals = settings.agent_proposals;
  generation.revision = candidate.snapshot.version;
  generation.hash = PolicyHash{candidate.snapshot.policy_hash};
  generation.host_gateway_ip = host_gateway_ip_;
  return prepared;
}

void EgressRuntime::publish(std::unique_ptr<PreparedRuntime> prepared, std::function<void()> done) {
  auto& ready = static_cast<Prepared&>(*prepared);
  const std::lock_guard lock{mutex_};
  if (closed_) return done();  // it was prepared before that
  ready.generation->number = ++number_;
  matcher_ = ready.generation->matcher;
  credentials_ = ready.credentials;
  if (ready.endpoints) endpoints_ = std::move(*ready.endpoints);
  std::map<EndpointBox::Place, std::string> ids;
  for (const auto& endpoint : endpoints_) ids.emplace(EndpointBox::Place{endpoint.policy, endpoint.index}, endpoint.id);
  box_->install(number_, std::move(ids));
  engine_.publish(std::move(ready.generation), [done = std::move(done)](const egress::PublishReport&) { done(); });
  ledger_.commit(credentials_);
}

void EgressRuntime::quarantine(const std::string& reason) {
  auto generation = std::make_shared<egress::Generation>();
  const std::lock_guard lock{mutex_};
  generation->number = ++number_;
  generation->quarantine_reason = reason;
  generation->host_gateway_ip = host_gateway_ip_;
  engine_.publish(std::move(generation));
}

void EgressRuntime::close(const std::string& reason) {
  {
    const std::lock_guard lock{mutex_};
    closed_ = true;
  }
  quarantine(reason);
}

std::vector<std::string> EgressRuntime::observed_endpoints() const {
  const std::lock_guard lock{mutex_};
  std::set<std::string> ids;
  for (const auto& endpoint : endpoints_) ids.insert(endpoint.id);
  return {ids.begin(), ids.end()};
}

std::map<std::string, std::string> EgressRuntime::child_environment() const {
  const std::lock_guard lock{mutex_};
  return credentials_.child_env;
}

std::map<std::string, std::string> EgressRuntime::child_environment_of(const PreparedRuntime& prepared) {
  return static_cast<const Prepared&>(prepared).credentials.child_env;
}

}  // namespace openshell::supervisor
