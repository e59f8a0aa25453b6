#include "isolation/boundary/session_token.hpp"

#include "isolation/boundary/json.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace openshell::boundary {

namespace json = internal::json;

namespace {

constexpr std::string_view kIssuerPrefix = "openshell-gateway:";
constexpr std::string_view kSubjectPrefix = "spiffe://openshell/sandbox/";

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;

absl::Status refused(std::string_view what) { return absl::UnauthenticatedError(fmt::format("sandbox session token: {}", what)); }

/// base64url without padding, in its only spelling: what does not encode back to itself is refused.
std::optional<std::string> decode_part(std::string_view part) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape({part.data(), part.size()}, &bytes) || absl::WebSafeBase64Escape(bytes) != std::string(part))
    return std::nullopt;
  return bytes;
}

bool verify_signature(EVP_PKEY* key, std::string_view signed_part, std::string_view signature) {
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context{EVP_MD_CTX_new()};
  return context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                          reinterpret_cast<const unsigned char*>(signed_part.data()), signed_part.size()) == 1;
}

struct WireClaims {
  std::string iss, sub, aud, jti, sandbox_id, runtime_generation, component;
  std::int64_t iat = 0, exp = 0;
  std::uint64_t auth_epoch = 0;
};
template <class F>
void fields(F& f, WireClaims& x) {
  f("iss", x.iss), f("sub", x.sub), f("aud", x.aud), f("iat", x.iat), f("exp", x.exp), f("jti", x.jti), f("sandbox_id", x.sandbox_id);
  f("runtime_generation", x.runtime_generation), f("auth_epoch", x.auth_epoch), f("component", x.component);
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash != (text[i] == '-') || (!dash && !absl::ascii_isxdigit(static_cast<unsigned char>(text[i])))) return false;
  }
  return true;
}

}  // namespace

struct SessionTokenVerifier::State {
  using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;
  std::map<std::string, Key, std::less<>> keys;
  Expected expected;
  mutable std::mutex mutex;
  mutable std::optional<std::pair<Digest, SessionClaims>> newest;  // that was read: a supervisor shows one token with all its calls

  absl::StatusOr<SessionClaims> read(std::string_view token) const;
};

SessionTokenVerifier::SessionTokenVerifier(std::unique_ptr<State> state) : state_{std::move(state)} {}
SessionTokenVerifier::SessionTokenVerifier(SessionTokenVerifier&&) noexcept = default;
SessionTokenVerifier& SessionTokenVerifier::operator=(SessionTokenVerifier&&) noexcept = default;
SessionTokenVerifier::~SessionTokenVerifier() = default;

std::string session_token_header(std::string_view key_id) {
  return json::serialize(json::object{{"alg", "EdDSA"}, {"kid", internal::valid_utf8(key_id)}, {"typ", kSessionTokenType}});
}

std::string session_token_payload(const SessionClaims& claims) {
  const WireClaims wire{fmt::format("{}{}", kIssuerPrefix, claims.gateway_id),
                        fmt::format("{}{}", kSubjectPrefix, claims.sandbox_id),
                        std::string(kSessionTokenAudience),
                        claims.token_id,
                        claims.sandbox_id,
                        claims.runtime_generation,
                        std::string(kSessionTokenComponent),
                        claims.issued_at,
                        claims.expires_at,
                        claims.auth_epoch};
  return json::serialize(internal::to_json(wire));
}

absl::StatusOr<SessionTokenVerifier> SessionTokenVerifier::make(const std::vector<VerificationKey>& keys, Expected expected) {
  auto state = std::make_unique<State>();
  for (const auto& key : keys) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio{
        BIO_new_mem_buf(key.public_key_pem.data(), static_cast<int>(key.public_key_pem.size())), &BIO_free};
    Key parsed{bio ? PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr) : nullptr};
    if (!parsed || EVP_PKEY_id(parsed.get()) != EVP_PKEY_ED25519) {
      return absl::InvalidArgumentError(fmt::format("verification key '{}' is not an Ed25519 public key in PEM", key.key_id));
    }
    state->keys.emplace(key.key_id, std::move(parsed));
  }
  if (state->keys.empty()) return absl::InvalidArgumentError("no verification key");
  state->expected = std::move(expected);
  return SessionTokenVerifier{std::move(state)};
}

absl::StatusOr<std::string_view> SessionTokenVerifier::bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return absl::UnauthenticatedError("authorization is not a bearer");
  authorization.remove_prefix(kScheme.size());
  const bool odd = std::any_of(authorization.begin(), authorization.end(), [](unsigned char c) { return c <= 0x20 || c >= 0x7f; });
  if (authorization.empty() || odd || authorization.size() > kMaxSessionTokenBytes)
    return absl::UnauthenticatedError("authorization is malformed");
  return authorization;
}

absl::StatusOr<SessionClaims> SessionTokenVerifier::verify(std::string_view token, std::chrono::sys_seconds now) const {
  if (token.size() > kMaxSessionTokenBytes) return refused("too long");
  State::Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  std::optional<SessionClaims> claims;
  {
    const std::lock_guard lock{state_->mutex};
    if (state_->newest && state_->newest->first == digest) claims = state_->newest->second;
  }
  if (!claims) {
    auto read = state_->read(token);
    if (!read.ok()) return read;
    claims = *std::move(read);
    const std::lock_guard lock{state_->mutex};
    state_->newest.emplace(digest, *claims);
  }
  const std::int64_t seconds = now.time_since_epoch().count();
  const std::int64_t leeway = kSessionTokenLeeway.count();
  const std::int64_t issued = claims->issued_at, expires = claims->expires_at;
  if (issued < 0 || issued > seconds + leeway) return refused("iat");
  if (expires != 0) {
    if (expires <= issued || expires - issued < kMinSessionTokenLife.count() || expires - issued > kMaxSessionTokenLife.count())
      return refused("life");
    if (seconds >= expires + leeway) return refused("expired");
  }
  return *std::move(claims);
}

/// All but the times, which are looked at each time.
absl::StatusOr<SessionClaims> SessionTokenVerifier::State::read(std::string_view token) const {
  const std::size_t first = token.find('.');
  const std::size_t second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos) return refused("not three parts");
  const auto header_text = decode_part(token.substr(0, first));
  const auto payload_text = decode_part(token.substr(first + 1, second - first - 1));
  const auto signature = decode_part(token.substr(second + 1));
  if (!header_text || !payload_text || !signature) return refused("not base64url");

  const auto header = internal::parse_strict(*header_text);
  if (!header.ok() || !header->is_object()) return refused("header is not JSON");
  std::string alg, kid, typ;
  internal::Reader reader{header->get_object(), "header"};
  reader("alg", alg), reader("kid", kid), reader("typ", typ);
  if (!reader.finish().ok() || alg != "EdDSA" || typ != kSessionTokenType) return refused("header is not that of a session token");
  const auto key = keys.find(kid);
  if (key == keys.end()) return refused("unknown key");
  if (!verify_signature(key->second.get(), token.substr(0, second), *signature)) return refused("bad signature");

  const auto payload = internal::parse_strict(*payload_text);
  WireClaims wire;
  if (!payload.ok() || !internal::from_json(*payload, wire, "claims").ok())
    return refused("claims are not exactly those of a session token");
  if (wire.iss != fmt::format("{}{}", kIssuerPrefix, expected.gateway_id)) return refused("iss");
  if (wire.sandbox_id != expected.sandbox_id || wire.sub != fmt::format("{}{}", kSubjectPrefix, expected.sandbox_id))
    return refused("sub or sandbox_id");
  if (wire.aud != kSessionTokenAudience || wire.component != kSessionTokenComponent) return refused("aud or component");
  if (!is_uuid(wire.jti)) return refused("jti");
  if (wire.runtime_generation != expected.runtime_generation) return refused("runtime_generation");
  if (wire.auth_epoch == 0 || wire.auth_epoch < expected.min_auth_epoch) return refused("auth_epoch");
  return SessionClaims{expected.gateway_id, wire.sandbox_id, wire.runtime_generation, wire.auth_epoch, wire.iat, wire.exp, wire.jti};
}

}  // namespace openshell::boundary
