#include <absl/strings/escaping.h>
#include <openssl/sha.h>

#include <array>
#include <chrono>
#include <set>

#include "api/handlers.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::api {

using namespace openshell::v1;

namespace {

constexpr std::int64_t kReplaySeconds = 30;
constexpr int kMaxExtensionNames = 64;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string hex_sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

/// The same rotation always gives the same ids, so that a repeated request gets the same tokens without anything secret being stored.
std::string token_id(const std::string& rotation_id, std::string_view label) {
  std::string text = "openshell-refresh-token-v1";
  text += '\0';
  text += rotation_id;
  text += label;
  const std::string hex = hex_sha256(text).substr(0, 32);
  return cat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-", hex.substr(16, 4), "-", hex.substr(20));
}

std::string request_hash(const RefreshSandboxTokenRequest& request) {
  std::string text = "openshell-refresh-v1";
  text += '\0';
  for (const auto& name : request.extension_service_names()) {
    for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(name.size() >> shift);
    text += name;
  }
  return hex_sha256(text);
}

absl::Status check_names(const RefreshSandboxTokenRequest& request) {
  if (request.extension_service_names_size() > kMaxExtensionNames)
    return absl::InvalidArgumentError(cat("at most ", kMaxExtensionNames, " extension credentials may be requested"));
  std::set<std::string> seen;
  for (const auto& name : request.extension_service_names()) {
    if (name.empty()) return absl::InvalidArgumentError("extension service names must not be empty");
    if (!seen.insert(name).second) return absl::InvalidArgumentError(cat("duplicate extension service name '", name, "'"));
  }
  // No sandbox policy can select a service yet, so none is ever selected.
  if (!seen.empty())
    return absl::PermissionDeniedError(cat("extension service '", *seen.begin(), "' is not selected by the sandbox policy"));
  return absl::OkStatus();
}

RefreshSandboxTokenResponse tokens_of(const TokenAuthority& tokens, const SandboxIdentity& record, const RefreshReplay& rotation) {
  TokenClaims claims{record.id,          record.generation,
                     record.auth_epoch,  token_id(rotation.rotation_id, "gateway"),
                     rotation.issued_at, tokens.expiry(rotation.issued_at)};
  RefreshSandboxTokenResponse response;
  response.set_token(std::string{tokens.sign(TokenKind::kGateway, claims).reveal()});
  claims.token_id = token_id(rotation.rotation_id, "sandbox");
  response.set_sandbox_token(std::string{tokens.sign(TokenKind::kBoundary, claims).reveal()});
  if (claims.expires_at != 0) {
    response.mutable_expiration_time()->set_seconds(claims.expires_at);
    response.mutable_sandbox_expiration_time()->set_seconds(claims.expires_at);
  }
  response.set_session_id(record.generation.str());
  response.set_credential_epoch(record.auth_epoch);
  return response;
}

void refresh(const TokenAuthority& tokens, SandboxIdentities& sandboxes, const SandboxCaller& caller, const std::string& hash,
             const SandboxIdentity& record, const Reply<RefreshSandboxTokenResponse>& reply) {
  const std::int64_t now = unix_now();
  if (record.gateway_token_id != caller.token_id) {
    const bool repeats = record.replay && record.replay->previous_token_id == caller.token_id && record.replay->request_hash == hash &&
                         now <= record.replay->replay_until;
    if (!repeats) return reply.fail(absl::UnauthenticatedError("gateway refresh retry does not match the active lineage"));
    return reply.ok(tokens_of(tokens, record, *record.replay));
  }
  const RefreshReplay rotation{caller.token_id, hash, storage::new_uuid(), now, now + kReplaySeconds};
  sandboxes.rotate(caller.id, caller.token_id, token_id(rotation.rotation_id, "gateway"), rotation,
                   [&tokens, record, rotation, reply](const absl::Status& rotated) {
                     if (!rotated.ok()) return reply.fail(absl::AbortedError(cat("rotate gateway token: ", rotated.message())));
                     reply.ok(tokens_of(tokens, record, rotation));
                   });
}

}  // namespace

void add_token_handlers(Router& router, const TokenAuthority* tokens, SandboxIdentities* sandboxes) {
  router.unary<IssueSandboxTokenRequest, IssueSandboxTokenResponse>(
      "IssueSandboxToken",
      [tokens, sandboxes](const Context& ctx, const IssueSandboxTokenRequest&, const Reply<IssueSandboxTokenResponse>& reply) {
        const SandboxCaller* caller = ctx->sandbox();
        if (caller == nullptr) return reply.fail(absl::PermissionDeniedError("IssueSandboxToken requires a sandbox principal"));
        if (!caller->by_driver)
          return reply.fail(absl::PermissionDeniedError("this principal cannot mint a sandbox token; use RefreshSandboxToken"));
        if (tokens == nullptr || sandboxes == nullptr)
          return reply.fail(absl::UnavailableError("sandbox session minting is not configured on this gateway"));
        sandboxes->find(caller->id, [tokens, caller = *caller, reply](absl::StatusOr<SandboxIdentity> record) {
          if (absl::IsNotFound(record.status())) return reply.fail(absl::NotFoundError("sandbox not found"));
          if (!record.ok()) return reply.fail(record.status());
          if (record->runtime_identity.empty()) return reply.fail(absl::PermissionDeniedError("sandbox runtime identity is invalid"));
          if (record->driver_name != caller.driver_name || record->runtime_identity != caller.runtime_identity) {
            return reply.fail(absl::PermissionDeniedError("compute runtime identity does not match the sandbox"));
          }
          const std::int64_t now = unix_now();
          const TokenClaims claims{record->id, record->generation, record->auth_epoch, record->gateway_token_id, now, tokens->expiry(now)};
          IssueSandboxTokenResponse response;
          response.set_token(std::string{tokens->sign(TokenKind::kGateway, claims).reveal()});
          if (claims.expires_at != 0) response.mutable_expiration_time()->set_seconds(claims.expires_at);
          reply.ok(response);
        });
      });

  router.unary<RefreshSandboxTokenRequest, RefreshSandboxTokenResponse>(
      "RefreshSandboxToken",
      [tokens, sandboxes](const Context& ctx, const RefreshSandboxTokenRequest& request, const Reply<RefreshSandboxTokenResponse>& reply) {
        const SandboxCaller* caller = ctx->sandbox();
        if (caller == nullptr) return reply.fail(absl::PermissionDeniedError("RefreshSandboxToken requires a sandbox principal"));
        if (caller->by_driver)
          return reply.fail(absl::PermissionDeniedError("this principal cannot refresh; use IssueSandboxToken for bootstrap"));
        if (tokens == nullptr || sandboxes == nullptr)
          return reply.fail(absl::UnavailableError("sandbox JWT minting is not configured on this gateway"));
        if (auto status = check_names(request); !status.ok()) return reply.fail(status);
        sandboxes->find(caller->id,
                        [tokens, sandboxes, caller = *caller, hash = request_hash(request), reply](absl::StatusOr<SandboxIdentity> record) {
                          if (!record.ok()) return reply.fail(record.status());
                          refresh(*tokens, *sandboxes, caller, hash, *record, reply);
                        });
      });
}

}  // namespace openshell::api
