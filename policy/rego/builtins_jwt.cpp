#include "policy/rego/base64.hpp"
#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/jwt_keys.hpp"
#include "policy/rego/number.hpp"
#include "policy/rego/operands.hpp"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <array>
#include <optional>

namespace openshell::policy::rego {
namespace {

std::string_view message_of(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

/// Padding may be there or not.
absl::StatusOr<std::string> decode_section(std::string_view text) {
  std::string bytes;
  std::size_t at = 0;
  std::string_view bare = text;
  while (bare.ends_with('=')) bare.remove_suffix(1);
  if (bare.size() % 4 == 1) return failure("illegal base64url string: ", text);
  if (!base64_decode(bare, Base64Alphabet::url, Base64Padding::none, bytes, at)) return failure("illegal base64 data at input byte ", at);
  return bytes;
}

struct Token {
  Value header;
  Value payload;
  std::string signature;
  std::string_view header_text, payload_text, signature_text, signed_text;
};

absl::StatusOr<Value> object_of_json(std::string_view text) {
  auto value = parse_json(text);
  if (!value.ok()) return failure(message_of(value.status()));
  if (!value->is_object()) return failure("decoded JSON type was not an Object");
  return value;
}

absl::StatusOr<Token> split_token(const Value& operand) {
  if (!operand.is_string()) return operand_error(1, "string", operand);
  const auto parts = split_at(operand.text(), '.');
  if (parts.size() == 1) return failure("encoded JWT had no period separators");
  if (parts.size() != 3) return failure("encoded JWT must have 3 sections, found ", parts.size());
  Token token;
  token.header_text = parts[0];
  token.payload_text = parts[1];
  token.signed_text = operand.text().substr(0, parts[0].size() + 1 + parts[1].size());
  token.signature_text = parts[2];
  return token;
}

absl::Status read_header(Token& token) {
  const auto header = decode_section(token.header_text);
  if (!header.ok()) return failure("JWT header had invalid encoding: ", message_of(header.status()));
  auto value = object_of_json(*header);
  if (!value.ok()) return value.status();
  token.header = *std::move(value);
  if (token.header.find("enc") != nullptr) return failure("JWT is a JWE object, which is not supported");
  return absl::OkStatus();
}

absl::Status read_signature(Token& token) {
  auto signature = decode_section(token.signature_text);
  if (!signature.ok()) return signature.status();
  token.signature = *std::move(signature);
  return absl::OkStatus();
}

absl::Status read_payload(Token& token) {
  const auto payload = decode_section(token.payload_text);
  if (!payload.ok()) return failure("JWT payload had invalid encoding: ", message_of(payload.status()));
  auto value = object_of_json(*payload);
  if (!value.ok()) return value.status();
  token.payload = *std::move(value);
  return absl::OkStatus();
}

/// The token that is this one's payload; undefined where it has claims instead.
absl::StatusOr<Value> nested_token(const Token& token) {
  const Value* content = token.header.find("cty");
  if (content == nullptr || !content->is_string() || text::lower(content->text()) != "jwt") return Value();
  const auto inner = decode_section(token.payload_text);
  if (!inner.ok()) return failure("JWT payload had invalid encoding: ", message_of(inner.status()));
  std::string_view text = *inner;
  if (text.size() > 1 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return Value::string(text);
}

BuiltinResult decode(QueryContext& context, Arguments a) {
  if (a[0].is_string()) {
    if (auto status = context.charge(a[0].text().size() / 64); !status.ok()) return status;
  }
  auto token = split_token(a[0]);
  if (!token.ok()) return token.status();
  if (auto status = read_header(*token); !status.ok()) return status;
  if (auto inner = nested_token(*token); !inner.ok()) {
    return inner.status();
  } else if (inner->is_defined()) {
    return decode(context, {&*inner, 1});  // each layer is shorter than the one around it
  }
  if (auto status = read_payload(*token); !status.ok()) return status;
  if (auto status = read_signature(*token); !status.ok()) {
    return failure("JWT signature had invalid encoding: ", message_of(status));
  }
  return Value::array({token->header, token->payload, Value::string(hex_text(token->signature))});
}

absl::StatusOr<bool> check_secret(const SignatureScheme& scheme, std::string_view text, std::string_view secret,
                                  std::string_view signature) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
  unsigned size = 0;
  if (HMAC(scheme.digest(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), out.data(), &size) == nullptr) {
    return failure("the hash is not available");
  }
  return size == signature.size() && CRYPTO_memcmp(out.data(), signature.data(), size) == 0;
}

absl::StatusOr<bool> check_keys(const SignatureScheme& scheme, const std::vector<PublicKey>& keys, const Token& token) {
  for (const auto& key : keys) {
    if (verify_signature(scheme, key, token.signed_text, token.signature)) return true;
  }
  return false;
}

/// The keys that may have signed: the one that the header names, where names are known.
std::vector<PublicKey> candidates(const std::vector<PublicKey>& keys, const Token& token, std::string_view algorithm) {
  const Value* id = token.header.find("kid");
  std::vector<PublicKey> out;
  if (id != nullptr && id->is_string()) {
    for (const auto& key : keys) {
      if (key.id == id->text()) out.push_back(key);
    }
    if (!out.empty()) return out;
  }
  for (const auto& key : keys) {
    if (key.algorithm.empty() || key.algorithm == algorithm) out.push_back(key);
  }
  return out;
}

template <std::size_t Scheme>
BuiltinResult verify(QueryContext& context, Arguments a) {
  const SignatureScheme& scheme = kSignatureSchemes[Scheme];
  if (a[0].is_string()) {
    if (auto status = context.charge(16 + a[0].text().size() / 64); !status.ok()) return status;
  }
  auto token = split_token(a[0]);
  if (!token.ok()) return token.status();
  if (auto status = read_signature(*token); !status.ok()) return status;
  if (auto status = need_strings(a, {1}); !status.ok()) return status;
  // The header only says which key to try; what it holds else does not matter for the signature.
  if (!read_header(*token).ok() && !token->header.is_defined()) token->header = Value::object({});
  absl::StatusOr<bool> answer = false;
  if (scheme.family == SignatureFamily::hmac) {
    answer = check_secret(scheme, token->signed_text, a[1].text(), token->signature);
  } else {
    const auto keys = read_keys(a[1].text());
    if (!keys.ok()) return keys.status();
    answer = check_keys(scheme, candidates(*keys, *token, scheme.name), *token);
  }
  if (!answer.ok()) return answer.status();
  return Value::boolean(*answer);
}

/// What `io.jwt.decode_verify` shall check.
struct Constraints {
  std::optional<std::string> secret, algorithm, issuer, audience;
  std::vector<PublicKey> keys;
  bool has_keys = false;
  std::optional<Value> time;
};

absl::StatusOr<Constraints> read_constraints(const Value& value) {
  if (!value.is_object()) return operand_error(2, "object", value);
  Constraints out;
  for (const auto& member : value.members()) {
    const auto name = member.key.is_string() ? member.key.text() : std::string_view{};
    const auto text = [&](std::optional<std::string>& field, std::string_view label) -> absl::Status {
      if (!member.value.is_string()) return failure(label, ": must be a string");
      field = member.value.text();
      return absl::OkStatus();
    };
    absl::Status status;
    if (name == "cert") {
      std::optional<std::string> pem;
      status = text(pem, "cert constraint");
      if (status.ok()) {
        auto keys = read_keys(*pem);
        if (!keys.ok()) return keys.status();
        out.keys = *std::move(keys);
        out.has_keys = true;
      }
    } else if (name == "secret") {
      status = text(out.secret, "secret constraint");
    } else if (name == "alg") {
      status = text(out.algorithm, "alg constraint");
    } else if (name == "iss") {
      status = text(out.issuer, "iss constraint");
    } else if (name == "aud") {
      status = text(out.audience, "aud constraint");
    } else if (name == "time") {
      if (!member.value.is_number()) return failure("token time constraint: must be a number");
      if (approximate(member.value) < 0) return failure("token time constraint: must not be negative");
      out.time = member.value;
    } else {
      return failure("unknown token validation constraint: ", name);
    }
    if (!status.ok()) return status;
  }
  if (!out.has_keys && !out.secret) return failure("no key constraint");
  if (out.has_keys && out.secret) return failure("duplicate key constraints");
  return out;
}

bool audience_is(const Value& claim, std::string_view wanted) {
  if (claim.is_string()) return claim.text() == wanted;
  for (const auto& item : claim.items()) {
    if (item.is_string() && item.text() == wanted) return true;
  }
  return false;
}

absl::StatusOr<bool> claims_hold(const Constraints& constraints, const Value& payload, std::int64_t now_ns) {
  if (constraints.issuer) {
    const Value* issuer = payload.find("iss");
    if (issuer == nullptr || !issuer->is_string() || issuer->text() != *constraints.issuer) return false;
  }
  const Value* audience = payload.find("aud");
  if (constraints.audience.has_value() != (audience != nullptr)) return false;
  if (constraints.audience && !audience_is(*audience, *constraints.audience)) return false;
  const Value now = constraints.time ? *constraints.time : Value::integer(now_ns);
  const long double seconds = approximate(now) / 1e9L;
  for (const std::string_view name : {"exp", "nbf"}) {
    const Value* claim = payload.find(name);
    if (claim == nullptr) continue;
    if (!claim->is_number()) return failure(name, " value must be a number");
    if (name == "exp" ? seconds >= approximate(*claim) : seconds < approximate(*claim)) return false;
  }
  return true;
}

Value refused() { return Value::array({Value::boolean(false), Value::object({}), Value::object({})}); }

BuiltinResult decode_verify(QueryContext& context, Arguments a) {
  if (a[0].is_string()) {
    if (auto status = context.charge(16 + a[0].text().size() / 64); !status.ok()) return status;
  }
  if (!a[0].is_string()) return operand_error(1, "string", a[0]);
  const auto constraints = read_constraints(a[1]);
  if (!constraints.ok()) return constraints.status();
  Value current = a[0];
  for (int depth = 0; depth < 8; ++depth) {
    auto token = split_token(current);
    if (!token.ok()) return token.status();
    if (auto status = read_header(*token); !status.ok()) return status;
    if (auto status = read_signature(*token); !status.ok()) return status;
    const Value* algorithm = token->header.find("alg");
    if (algorithm == nullptr || !algorithm->is_string()) return refused();
    if (constraints->algorithm && *constraints->algorithm != algorithm->text()) return refused();
    const SignatureScheme* scheme = find_scheme(algorithm->text());
    if (scheme == nullptr) return refused();
    absl::StatusOr<bool> genuine = false;
    if (scheme->family == SignatureFamily::hmac) {
      if (!constraints->secret) return refused();
      genuine = check_secret(*scheme, token->signed_text, *constraints->secret, token->signature);
    } else {
      if (!constraints->has_keys) return refused();
      genuine = check_keys(*scheme, candidates(constraints->keys, *token, scheme->name), *token);
    }
    if (!genuine.ok()) return genuine.status();
    if (!*genuine) return refused();
    auto inner = nested_token(*token);
    if (!inner.ok()) return inner.status();
    if (inner->is_defined()) {
      current = *std::move(inner);
      continue;
    }
    if (auto status = read_payload(*token); !status.ok()) return status;
    const auto holds = claims_hold(*constraints, token->payload, context.now_ns);
    if (!holds.ok()) return holds.status();
    if (!*holds) return refused();
    return Value::array({Value::boolean(true), token->header, token->payload});
  }
  return failure("JWTs are nested too deeply");
}

}  // namespace

const BuiltinTable& jwt_builtins() {
  using namespace types;
  static const Type object = object_of(any(), any());
  static const BuiltinTable table = {
      {"io.jwt.decode", {string()}, tuple({object, object, string()}), decode},
      {"io.jwt.decode_verify", {string(), object_of(string(), any())}, tuple({boolean(), object, object}), decode_verify, true},
      {"io.jwt.verify_eddsa", {string(), string()}, boolean(), verify<12>},
      {"io.jwt.verify_es256", {string(), string()}, boolean(), verify<9>},
      {"io.jwt.verify_es384", {string(), string()}, boolean(), verify<10>},
      {"io.jwt.verify_es512", {string(), string()}, boolean(), verify<11>},
      {"io.jwt.verify_hs256", {string(), string()}, boolean(), verify<0>},
      {"io.jwt.verify_hs384", {string(), string()}, boolean(), verify<1>},
      {"io.jwt.verify_hs512", {string(), string()}, boolean(), verify<2>},
      {"io.jwt.verify_ps256", {string(), string()}, boolean(), verify<6>},
      {"io.jwt.verify_ps384", {string(), string()}, boolean(), verify<7>},
      {"io.jwt.verify_ps512", {string(), string()}, boolean(), verify<8>},
      {"io.jwt.verify_rs256", {string(), string()}, boolean(), verify<3>},
      {"io.jwt.verify_rs384", {string(), string()}, boolean(), verify<4>},
      {"io.jwt.verify_rs512", {string(), string()}, boolean(), verify<5>},
  };
  return table;
}

}  // namespace openshell::policy::rego
