#include "api/tokens.hpp"

#include <absl/strings/escaping.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "observability/text.hpp"
#include "pki/keys.hpp"
#include "storage/store.hpp"

namespace openshell::api {
namespace {

namespace json = boost::json;

constexpr std::string_view kGatewayType = "openshell-gateway-session+jwt";
constexpr std::string_view kBoundaryType = "openshell-sandbox-session+jwt";
constexpr std::string_view kExtensionType = "openshell-ext+jwt";
constexpr std::string_view kBoundaryAudience = "openshell-sandbox";
constexpr std::string_view kComponent = "openshell-supervisor";
constexpr std::string_view kSubjectPrefix = "spiffe://openshell/sandbox/";
constexpr std::int64_t kMinTtl = 60;
constexpr std::int64_t kMaxTtl = 3600;
constexpr std::size_t kMaxKeyFileBytes = 64 * 1024;
constexpr std::size_t kSignatureBytes = 64;
constexpr std::size_t kMaxReadTokens = 1'024;  // whose claims are kept; then all are read anew

struct PkeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Pkey = std::unique_ptr<EVP_PKEY, PkeyDeleter>;

std::string base64(std::string_view text) { return absl::WebSafeBase64Escape(to_absl(text)); }

absl::StatusOr<std::string> unbase64(std::string_view text) {
  std::string out;
  // Padding and anything outside the alphabet would let one token have two spellings.
  if (text.find('=') != std::string_view::npos || !absl::WebSafeBase64Unescape(to_absl(text), &out) || base64(out) != text)
    return absl::InvalidArgumentError("not base64url");
  return out;
}

bool has_space(std::string_view text) { return text.empty() || text.find_first_of(" \t\r\n\v\f") != std::string_view::npos; }

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::string_view{"0123456789abcdef"}.find(text[i]) == std::string_view::npos) return false;
  }
  return true;
}

absl::StatusOr<std::string> read_key_file(std::string_view what, const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::string content{std::istreambuf_iterator<char>{file}, {}};
  if (!file || content.size() > kMaxKeyFileBytes)
    return absl::FailedPreconditionError(
        cat("cannot read sandbox launch-signing ", what, " from ", path, file ? ": file is too large" : ""));
  return content;
}

absl::Status bad_bundle(std::string_view why) { return absl::FailedPreconditionError(cat("invalid sandbox launch-signing bundle: ", why)); }

Pkey public_key_from_pem(const std::string& pem) {
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  Pkey key{PEM_read_bio_PUBKEY(bio, nullptr, nullptr, nullptr)};
  BIO_free(bio);
  if (key && EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519) key.reset();
  return key;
}

std::string signature(EVP_PKEY* key, std::string_view text) {
  std::string out(kSignatureBytes, '\0');
  std::size_t size = out.size();
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  const bool signed_ok = EVP_DigestSignInit(ctx, nullptr, nullptr, nullptr, key) == 1 &&
                         EVP_DigestSign(ctx, reinterpret_cast<unsigned char*>(out.data()), &size,
                                        reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  EVP_MD_CTX_free(ctx);
  out.resize(signed_ok ? size : 0);
  return out;
}

bool verifies(EVP_PKEY* key, std::string_view text, std::string_view sig) {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  const bool ok = EVP_DigestVerifyInit(ctx, nullptr, nullptr, nullptr, key) == 1 &&
                  EVP_DigestVerify(ctx, reinterpret_cast<const unsigned char*>(sig.data()), sig.size(),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  EVP_MD_CTX_free(ctx);
  return ok;
}

absl::Status refuse(std::string_view reason) { return absl::UnauthenticatedError(cat("invalid gateway session: ", reason)); }

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(json::string_view{key.data(), key.size()});
  return value != nullptr && value->is_string() ? std::string{value->as_string()} : std::string{};
}

std::optional<std::int64_t> number_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(json::string_view{key.data(), key.size()});
  if (value == nullptr) return std::nullopt;
  if (value->is_int64()) return value->as_int64();
  return std::nullopt;
}

std::optional<json::object> parse_object(std::string_view part) {
  auto text = unbase64(part);
  if (!text.ok()) return std::nullopt;
  json::error_code error;
  json::parse_options strict;
  strict.max_depth = 4;
  auto value = json::parse(json::string_view{text->data(), text->size()}, error, {}, strict);
  if (error || !value.is_object()) return std::nullopt;
  return value.as_object();
}

struct Key {
  std::string id;
  std::string pem;
  Pkey pkey;
};

class Authority final : public TokenAuthority {
 public:
  Authority(TokenConfig config, pki::PrivateKey signing, std::vector<Key> keys)
      : config_{std::move(config)},
        signing_{std::move(signing)},
        keys_{std::move(keys)},
        issuer_{cat("openshell-gateway:", config_.gateway_id)} {}

  Secret sign(TokenKind kind, const TokenClaims& claims) const override {
    const bool gateway = kind == TokenKind::kGateway;
    const json::object header{{"typ", gateway ? kGatewayType : kBoundaryType}, {"alg", "EdDSA"}, {"kid", keys_.front().id}};
    const json::object body{{"iss", issuer_},
                            {"sub", cat(kSubjectPrefix, claims.sandbox.str())},
                            {"aud", audience(kind)},
                            {"iat", claims.issued_at},
                            {"exp", claims.expires_at},
                            {"jti", claims.token_id},
                            {"sandbox_id", claims.sandbox.str()},
                            {"runtime_generation", claims.generation.str()},
                            {"auth_epoch", claims.auth_epoch},
                            {"component", kComponent}};
    const std::string head_and_body = cat(base64(json::serialize(header)), ".", base64(json::serialize(body)));
    return Secret{cat(head_and_body, ".", base64(signature(signing_.native(), head_and_body)))};
  }

  absl::StatusOr<TokenClaims> verify(TokenKind kind, std::string_view token, std::int64_t now) const override {
    if (token.size() > kMaxTokenBytes) return absl::NotFoundError("not a session token");
    const std::string digest = digest_of(kind, token);
    auto claims = find_read(digest);
    if (!claims) {
      auto read = read_token(kind, token);
      if (!read.ok()) return read;
      claims = *std::move(read);
      keep_read(digest, *claims);
    }
    if (auto status = check_times(*claims, now); !status.ok()) return status;
    return *std::move(claims);
  }

  LaunchAuthentication launch(const SandboxId& sandbox, const GenerationId& generation, std::uint64_t auth_epoch,
                              const std::string& gateway_token_id, std::int64_t now) const override {
    LaunchAuthentication launch;
    launch.session_id = generation.str();
    launch.generation = generation;
    launch.auth_epoch = auth_epoch;
    TokenClaims claims{sandbox, generation, auth_epoch, gateway_token_id, now, expiry(now)};
    launch.gateway_token = sign(TokenKind::kGateway, claims);
    launch.gateway_expires_at = claims.expires_at;
    claims.token_id = storage::new_uuid();
    launch.boundary_token = sign(TokenKind::kBoundary, claims);
    launch.boundary_expires_at = claims.expires_at;
    launch.gateway_id = config_.gateway_id;
    launch.verification_keys = verification_keys();
    return launch;
  }

  std::int64_t expiry(std::int64_t now) const override { return config_.ttl ? now + config_.ttl->count() : 0; }
  const std::string& gateway_id() const override { return config_.gateway_id; }
  std::vector<VerificationKey> verification_keys() const override {
    std::vector<VerificationKey> out;
    for (const auto& key : keys_) out.push_back({key.id, key.pem});
    return out;
  }

 private:
  std::string audience(TokenKind kind) const { return kind == TokenKind::kGateway ? issuer_ : std::string{kBoundaryAudience}; }

  static absl::Status check_type(TokenKind kind, std::string_view type) {
    if (type == (kind == TokenKind::kGateway ? kGatewayType : kBoundaryType)) return absl::OkStatus();
    if (type == kExtensionType) return absl::UnauthenticatedError("extension tokens cannot authenticate to the gateway");
    if (type == kGatewayType || type == kBoundaryType) return refuse("session token type is invalid");
    return absl::NotFoundError("not a session token");
  }

  const Key* find_key(std::string_view kid) const {
    for (const auto& key : keys_) {
      if (key.id == kid) return &key;
    }
    return nullptr;
  }

  // A supervisor shows the same token with every call, and reading it takes longer than all else that a small call costs: who was read once
  // is known by the digest, under the kind that it was read as.
  static std::string digest_of(TokenKind kind, std::string_view token) {
    std::string out(SHA256_DIGEST_LENGTH, '\0');
    SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), reinterpret_cast<unsigned char*>(out.data()));
    return out += kind == TokenKind::kGateway ? 'g' : 'b';
  }
  std::optional<TokenClaims> find_read(const std::string& digest) const {
    const std::lock_guard lock{mutex_};
    const auto found = read_.find(digest);
    return found == read_.end() ? std::nullopt : std::optional{found->second};
  }
  void keep_read(const std::string& digest, const TokenClaims& claims) const {
    const std::lock_guard lock{mutex_};
    if (read_.size() >= kMaxReadTokens) read_.clear();
    read_.emplace(digest, claims);
  }

  /// All but the times, which are looked at each time.
  absl::StatusOr<TokenClaims> read_token(TokenKind kind, std::string_view token) const {
    const auto first = token.find('.');
    const auto second = first == std::string_view::npos ? first : token.find('.', first + 1);
    if (second == std::string_view::npos) return absl::NotFoundError("not a session token");
    const auto header = parse_object(token.substr(0, first));
    if (!header) return absl::NotFoundError("not a session token");
    if (auto status = check_type(kind, text_of(*header, "typ")); !status.ok()) return status;
    if (text_of(*header, "alg") != "EdDSA") return refuse("session token algorithm must be EdDSA");
    const std::string kid = text_of(*header, "kid");
    if (kid.empty()) return refuse("session token key ID is missing");
    const Key* key = find_key(kid);
    if (key == nullptr) return refuse("session token key ID is unknown");
    const auto sig = unbase64(token.substr(second + 1));
    const auto body = parse_object(token.substr(first + 1, second - first - 1));
    if (!sig.ok() || sig->size() != kSignatureBytes || !body || !verifies(key->pkey.get(), token.substr(0, second), *sig))
      return refuse("session token is invalid");
    return check_claims(kind, *body);
  }

  absl::StatusOr<TokenClaims> check_claims(TokenKind kind, const json::object& body) const {
    static constexpr std::array kClaims{"iss",        "sub",      "aud", "iat", "exp", "jti", "sandbox_id", "runtime_generation",
                                        "auth_epoch", "component"};
    if (body.size() != kClaims.size()) return refuse("session token is invalid");
    for (const char* claim : kClaims) {
      if (!body.contains(claim)) return refuse("session token is invalid");
    }
    const auto issued = number_of(body, "iat");
    const auto expires = number_of(body, "exp");
    const auto epoch = number_of(body, "auth_epoch");
    if (!issued || !expires || !epoch || *epoch < 1 || text_of(body, "component") != kComponent) return refuse("session token is invalid");
    if (text_of(body, "iss") != issuer_) return refuse("session token issuer is invalid");
    if (text_of(body, "aud") != audience(kind)) return refuse("session token audience is invalid");
    TokenClaims claims;
    claims.sandbox = SandboxId{text_of(body, "sandbox_id")};
    claims.generation = GenerationId{text_of(body, "runtime_generation")};
    claims.auth_epoch = static_cast<std::uint64_t>(*epoch);
    claims.token_id = text_of(body, "jti");
    claims.issued_at = *issued;
    claims.expires_at = *expires;
    if (has_space(claims.sandbox.str()) || claims.generation.empty()) return refuse("session token is invalid");
    if (text_of(body, "sub") != cat(kSubjectPrefix, claims.sandbox.str()))
      return refuse("session token subject does not match its sandbox ID");
    if (!is_uuid(claims.token_id)) return refuse("session token ID is not a UUID");
    return claims;
  }

  static absl::Status check_times(const TokenClaims& claims, std::int64_t now) {
    const auto issued = claims.issued_at, expires = claims.expires_at;
    if (issued > now + kTokenLeewaySeconds) return refuse("session token was issued in the future");
    if (expires != 0 && expires < now - kTokenLeewaySeconds) return refuse("session token has expired");
    if (expires != 0 && (expires <= issued || expires - issued > kMaxTtl))
      return refuse("session token lifetime must be between 60 and 3600 seconds");
    return absl::OkStatus();
  }

  TokenConfig config_;
  pki::PrivateKey signing_;
  std::vector<Key> keys_;  // the active one first
  std::string issuer_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, TokenClaims> read_;  // by digest
};

absl::Status prove_pair(const Authority& authority) {
  constexpr std::int64_t kNow = 1'000'000'000;
  const TokenClaims probe{SandboxId{"probe"}, GenerationId{"probe"}, 1, storage::new_uuid(), kNow, 0};
  if (authority.verify(TokenKind::kGateway, authority.sign(TokenKind::kGateway, probe).reveal(), kNow).ok()) return absl::OkStatus();
  return absl::FailedPreconditionError("sandbox launch-signing private and public keys do not match");
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenAuthority>> TokenAuthority::load(const TokenConfig& config) {
  if (config.ttl && (config.ttl->count() < kMinTtl || config.ttl->count() > kMaxTtl))
    return bad_bundle("session token lifetime must be between 60 and 3600 seconds");
  if (has_space(config.gateway_id)) return bad_bundle("gateway ID is invalid");
  auto signing_pem = read_key_file("private key", config.signing_key_path);
  if (!signing_pem.ok()) return signing_pem.status();
  const Secret secret_pem{*std::move(signing_pem)};
  auto public_pem = read_key_file("public key", config.public_key_path);
  if (!public_pem.ok()) return public_pem.status();
  auto kid = read_key_file("key ID", config.kid_path);
  if (!kid.ok()) return kid.status();
  while (!kid->empty() && (kid->back() == '\n' || kid->back() == '\r')) kid->pop_back();
  if (kid->empty()) return absl::FailedPreconditionError(cat("sandbox launch-signing key ID file ", config.kid_path, " is empty"));
  if (has_space(*kid)) return bad_bundle("key ID is invalid");
  auto signing = pki::PrivateKey::from_pem(secret_pem);
  Pkey verifying = public_key_from_pem(*public_pem);
  if (!signing.ok() || !verifying || EVP_PKEY_id(signing->native()) != EVP_PKEY_ED25519)
    return bad_bundle("expected Ed25519 private and public keys");
  std::vector<Key> keys;
  keys.push_back({*std::move(kid), *std::move(public_pem), std::move(verifying)});
  auto authority = std::make_unique<Authority>(config, *std::move(signing), std::move(keys));
  if (auto status = prove_pair(*authority); !status.ok()) return status;
  return authority;
}

Secret LaunchAuthentication::to_json() const {
  json::array keys;
  for (const auto& key : verification_keys) keys.push_back({{"key_id", key.key_id}, {"public_key_pem", key.public_key_pem}});
  const auto text = [](const Secret& secret) { return json::string{secret.reveal().data(), secret.reveal().size()}; };
  const json::object supervisor{{"session_id", session_id},
                                {"runtime_generation", generation.str()},
                                {"session_rotation", 1},
                                {"auth_epoch", auth_epoch},
                                {"gateway_token", text(gateway_token)},
                                {"gateway_expires_at", gateway_expires_at},
                                {"sandbox_token", text(boundary_token)},
                                {"sandbox_expires_at", boundary_expires_at}};
  return Secret{json::serialize(json::object{{"supervisor", supervisor}, {"gateway_id", gateway_id}, {"verification_keys", keys}})};
}

}  // namespace openshell::api
