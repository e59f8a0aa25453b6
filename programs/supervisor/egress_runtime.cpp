#include "programs/supervisor/egress_runtime.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "actors/supervisor/settings.hpp"
#include "openshell.pb.h"
#include "policy/matcher.hpp"
#include "policy/validate.hpp"

namespace openshell::supervisor {
namespace {

/// Where the profile of a static credential puts it. The interface has no field of its own for that: it comes as the profile's credential
/// under the key, in the map of those that are granted at run time, and without a grant.
egress::CredentialPlacement placement_of(const v1::GetSandboxProviderEnvironmentResponse& response, const std::string& key) {
  const auto found = response.dynamic_credentials().find(key);
  if (found == response.dynamic_credentials().end() || found->second.has_token_grant()) return {};
  const auto& credential = found->second;
  std::string style = credential.auth_style();
  std::transform(style.begin(), style.end(), style.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (style == "query") return {{}, credential.query_param(), {}};
  if (style == "path") return {{}, {}, credential.path_template()};
  return {credential.header_name(), {}, {}};
}

egress::ProviderEnvironment to_environment(const v1::GetSandboxProviderEnvironmentResponse& response) {
  egress::ProviderEnvironment out;
  out.revision = response.provider_env_revision();
  for (const auto& [key, value] : response.environment()) out.values.emplace(key, Secret{value});
  for (const auto& [key, time] : response.credential_expiration_times()) {
    out.expires.emplace(key, std::chrono::system_clock::time_point{std::chrono::seconds{time.seconds()}});
  }
  for (const auto& [key, binding] : response.static_credential_bindings()) {
    egress::CredentialBinding to{{}, binding.credential_identity(), binding.workload_credential_handle(), placement_of(response, key)};
    for (const auto& endpoint : binding.endpoints()) to.endpoints.push_back({endpoint.host(), endpoint.port(), endpoint.path()});
    out.bindings.emplace(key, std::move(to));
  }
  out.non_secret.assign(response.non_secret_environment_keys().begin(), response.non_secret_environment_keys().end());
  return out;
}

policy::MatcherOptions options_with(const std::map<std::string, std::string>& links) {
  policy::MatcherOptions options;
  options.symlink_targets.assign(links.begin(), links.end());
  return options;
}

constexpr std::size_t kMaxWarned = 1'024;

/// The programs that rules name by a whole path. What could be a link among them has to be asked.
std::vector<std::string> literal_programs(const policy::Matcher& matcher) {
  std::set<std::string> out;
  for (const auto& [key, rule] : matcher.policy().network_policies()) {
    for (const auto& binary : rule.binaries()) {
      if (binary.path().starts_with('/') && binary.path().find('*') == std::string::npos) out.insert(binary.path());
      if (out.size() == boundary::ResolveLinks::kMaxPaths) return {out.begin(), out.end()};
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace

struct EgressRuntime::Prepared final : PreparedRuntime {
  std::shared_ptr<egress::Generation> generation = std::make_shared<egress::Generation>();
  egress::CredentialLedger::Candidate credentials;
  std::optional<std::vector<policy::InventoryEndpoint>> endpoints;  // none: those of before
  Links links;                                                      // that the matcher knows
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
    auto matcher = policy::Matcher::compile(policy, options_with(links_));
    if (!matcher.ok()) return matcher.status();
    generation.matcher = *std::move(matcher);
    prepared->links = links_;
    prepared->endpoints = policy::endpoint_inventory(policy);
  } else {
    generation.matcher = matcher_;
    prepared->links = matcher_links_;
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
  std::unique_lock lock{mutex_};
  if (closed_) return done();  // it was prepared before that
  ready.generation->number = ++number_;
  matcher_ = ready.generation->matcher;
  matcher_links_ = std::move(ready.links);
  credentials_ = ready.credentials;
  if (ready.endpoints) endpoints_ = std::move(*ready.endpoints);
  ++inventory_;
  install_endpoints();
  generation_ = ready.generation;
  quarantined_ = false;
  engine_.publish(std::move(ready.generation), [this, done = std::move(done)](const egress::PublishReport&) { ask_for_links(done); });
  ledger_.commit(credentials_);
}

void EgressRuntime::install_endpoints() {
  std::map<EndpointBox::Place, std::string> ids;
  for (const auto& endpoint : endpoints_) ids.emplace(EndpointBox::Place{endpoint.policy, endpoint.index}, endpoint.id);
  box_->install(number_, inventory_, std::move(ids));
}

std::vector<std::string> EgressRuntime::paths_to_ask() const {
  return resolver_ && matcher_ && !closed_ ? literal_programs(*matcher_) : std::vector<std::string>{};
}

void EgressRuntime::ask_for_links(std::function<void()> done) {
  std::vector<std::string> paths;
  std::uint64_t asked = 0;
  {
    const std::lock_guard lock{mutex_};
    asked = ++asked_;
    paths = paths_to_ask();
  }
  if (paths.empty()) return done();
  resolver_(Asking::once, std::move(paths), [this, asked, done = std::move(done)](absl::StatusOr<boundary::LinksResolved> answer) {
    const bool lost = !answer.ok();
    links_known(asked, std::move(answer));
    done();
    if (lost) ask_again();
  });
}

/// For the policy that is in force when it is asked; one such question at a time.
void EgressRuntime::ask_again() {
  std::vector<std::string> paths;
  std::uint64_t asked = 0;
  {
    const std::lock_guard lock{mutex_};
    paths = paths_to_ask();
    if (paths.empty() || std::exchange(asking_again_, true)) return;
    asked = asked_;
  }
  resolver_(Asking::until_lost, std::move(paths), [this, asked](absl::StatusOr<boundary::LinksResolved> answer) {
    bool newer = false;
    {
      const std::lock_guard lock{mutex_};
      asking_again_ = false;
      newer = answer.ok() && asked_ != asked;
    }
    links_known(asked, std::move(answer));
    if (newer) ask_again();  // for a policy that came meanwhile, whose own question may have been lost too
  });
}

/// The workload cannot change these links, so they change with the root only: most answers say what is known.
void EgressRuntime::links_known(std::uint64_t asked, absl::StatusOr<boundary::LinksResolved> answer) {
  if (!answer.ok()) {
    spdlog::warn("links among the programs of the policy are not known: {}", std::string{answer.status().message()});
    return;
  }
  const std::lock_guard lock{mutex_};
  for (const auto& [path, why] : answer->refused) {
    if (warned_.size() < kMaxWarned && warned_.insert(path).second)
      spdlog::warn("the policy names {}, a symbolic link that is not followed: {}", path, why);
  }
  if (asked < answered_ || closed_) return;  // of an older policy than what is known
  answered_ = asked;
  links_ = std::move(answer->targets);
  // Not what was known before: a policy may have been compiled before that came, and published after.
  if (links_ == matcher_links_ || !matcher_ || !generation_) return;
  auto matcher = policy::Matcher::compile(matcher_->policy(), options_with(links_));
  if (!matcher.ok()) return;  // it compiled without them
  matcher_ = *std::move(matcher);
  matcher_links_ = links_;
  if (quarantined_) return;
  auto next = std::make_shared<egress::Generation>(*generation_);
  next->matcher = matcher_;
  next->number = ++number_;
  generation_ = next;
  install_endpoints();
  engine_.publish(std::move(next));
}

void EgressRuntime::quarantine(const std::string& reason) {
  auto generation = std::make_shared<egress::Generation>();
  const std::lock_guard lock{mutex_};
  generation->number = ++number_;
  quarantined_ = true;
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

std::uint64_t EgressRuntime::inventory() const {
  const std::lock_guard lock{mutex_};
  return inventory_;
}

std::map<std::string, std::string> EgressRuntime::child_environment() const {
  const std::lock_guard lock{mutex_};
  return credentials_.child_env;
}

std::map<std::string, std::string> EgressRuntime::child_environment_of(const PreparedRuntime& prepared) {
  return static_cast<const Prepared&>(prepared).credentials.child_env;
}

}  // namespace openshell::supervisor
