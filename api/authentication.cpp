#include "api/authentication.hpp"

#include <algorithm>
#include <chrono>

#include "observability/text.hpp"

namespace openshell::api {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::string_view kSandboxUnit = "openshell-sandbox";
constexpr std::string_view kOperatorUnit = "operator";

absl::Status unknown_bearer() { return absl::UnauthenticatedError("invalid token: unknown signing key"); }

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool holds(const std::vector<std::string>& all, std::string_view one) { return std::find(all.begin(), all.end(), one) != all.end(); }

Identity local_user() {
  return {"unauthenticated-local-dev",
          "Unauthenticated Local Dev",
          {"openshell-user", "openshell-admin"},
          {"openshell:all"},
          Identity::Source::kLocalDev};
}

}  // namespace

Authenticator::Authenticator(AuthenticationConfig config, const TokenAuthority* tokens, SandboxIdentities* sandboxes, oidc::Issuer* issuer)
    : config_{config}, tokens_{tokens}, sandboxes_{sandboxes}, issuer_{issuer} {}

void Authenticator::authenticate(const CallFacts& facts, std::function<void(absl::StatusOr<Principal>)> then) const {
  if (facts.authorization.empty()) return then(without_bearer(facts));
  if (facts.authorization.size() > 1) return then(absl::UnauthenticatedError("duplicate authorization metadata"));
  const std::string& header = facts.authorization.front();
  if (!header.starts_with(kBearer)) return then(unknown_bearer());
  const std::string_view token = std::string_view{header}.substr(kBearer.size());
  if (tokens_ == nullptr || sandboxes_ == nullptr) return user_by_bearer(token, std::move(then));
  auto claims = tokens_->verify(TokenKind::kGateway, token, unix_now());
  if (absl::IsNotFound(claims.status())) return user_by_bearer(token, std::move(then));
  if (!claims.ok()) return then(claims.status());
  sandbox_session(std::string{facts.method}, *claims, std::move(then));
}

void Authenticator::user_by_bearer(std::string_view token, std::function<void(absl::StatusOr<Principal>)> then) const {
  if (issuer_ == nullptr) return then(unknown_bearer());
  issuer_->identify(token, [then = std::move(then)](absl::StatusOr<Identity> who) {
    if (!who.ok()) return then(who.status());
    then(Principal{User{*std::move(who)}});
  });
}

absl::StatusOr<Principal> Authenticator::without_bearer(const CallFacts& facts) const {
  if (!facts.certificate_pem.empty()) {
    const auto holder = certificates_->holder_of(facts.certificate_pem);
    if (!holder.ok()) return holder.status();
    const Identity& who = holder->identity;
    // A supervisor's own certificate never makes it a user, so that one that drops its bearer is nobody.
    const bool supervisor = holds(who.roles, kSandboxUnit);
    if (config_.operators && !supervisor && holds(who.roles, kOperatorUnit)) return Operator{who, holder->sha256};
    if (config_.mtls_users && !supervisor) return User{who};
  }
  if (config_.allow_unauthenticated_users) return User{local_user()};
  if (config_.mtls_users && issuer_ == nullptr) return absl::UnauthenticatedError("missing client certificate");
  if (!config_.mtls_users && issuer_ == nullptr) return User{local_user()};
  return absl::UnauthenticatedError("missing authorization header");
}

void Authenticator::sandbox_session(const std::string& method, const TokenClaims& claims,
                                    std::function<void(absl::StatusOr<Principal>)> then) const {
  sandboxes_->find(claims.sandbox, [method, claims, then = std::move(then)](absl::StatusOr<SandboxIdentity> record) {
    if (absl::IsNotFound(record.status())) return then(absl::UnauthenticatedError("sandbox identity does not exist"));
    if (!record.ok()) return then(record.status());
    if (!record->active) return then(absl::FailedPreconditionError("sandbox runtime identity is not active"));
    // A refresh may be repeated with the token that it replaced: its handler decides.
    const bool refreshing = method == "RefreshSandboxToken" && record->replay && record->replay->previous_token_id == claims.token_id;
    const bool current = record->gateway_token_id == claims.token_id || refreshing;
    if (record->generation != claims.generation || record->auth_epoch != claims.auth_epoch || !current) {
      return then(absl::UnauthenticatedError("gateway token does not match the active sandbox identity"));
    }
    SandboxCaller caller;
    caller.id = claims.sandbox;
    caller.generation = claims.generation;
    caller.auth_epoch = claims.auth_epoch;
    caller.token_id = claims.token_id;
    then(Principal{std::move(caller)});
  });
}

}  // namespace openshell::api
