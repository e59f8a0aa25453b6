#include "api/oidc/key_set.hpp"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <optional>

#include "observability/text.hpp"

namespace openshell::oidc {
namespace {

namespace json = boost::json;

struct Algorithm {
  std::string_view name;
  std::string_view type;   // kty
  std::string_view curve;  // crv; empty: none
  const char* digest;      // null: the algorithm has its own
  bool pss = false;
  int coordinate = 0;  // bytes of r and of s
};
constexpr std::array kAlgorithms{
    Algorithm{"RS256", "RSA", "", "SHA256"},
    Algorithm{"RS384", "RSA", "", "SHA384"},
    Algorithm{"RS512", "RSA", "", "SHA512"},
    Algorithm{"PS256", "RSA", "", "SHA256", true},
    Algorithm{"PS384", "RSA", "", "SHA384", true},
    Algorithm{"PS512", "RSA", "", "SHA512", true},
    Algorithm{"ES256", "EC", "P-256", "SHA256", false, 32},
    Algorithm{"ES384", "EC", "P-384", "SHA384", false, 48},
    Algorithm{"EdDSA", "OKP", "Ed25519", nullptr},
};

template <auto Free>
struct Release {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Pkey = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY_free>>;
using Context = std::unique_ptr<EVP_PKEY_CTX, Release<EVP_PKEY_CTX_free>>;
using Digest = std::unique_ptr<EVP_MD_CTX, Release<EVP_MD_CTX_free>>;
using Number = std::unique_ptr<BIGNUM, Release<BN_free>>;
using Builder = std::unique_ptr<OSSL_PARAM_BLD, Release<OSSL_PARAM_BLD_free>>;
using Parameters = std::unique_ptr<OSSL_PARAM, Release<OSSL_PARAM_free>>;

const unsigned char* bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

const Algorithm* algorithm_named(std::string_view name) {
  const auto found = std::find_if(kAlgorithms.begin(), kAlgorithms.end(), [&](const Algorithm& a) { return a.name == name; });
  return found == kAlgorithms.end() ? nullptr : &*found;
}

std::optional<std::string> text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(json::string_view{key.data(), key.size()});
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string{value->as_string()};
}

absl::Status unusable(std::string_view why) { return absl::InvalidArgumentError(to_absl(why)); }

absl::StatusOr<std::string> binary(const json::object& jwk, std::string_view name) {
  const auto text = text_of(jwk, name);
  if (!text) return unusable(cat("'", name, "' is missing"));
  auto value = decode_base64url(*text);
  if (!value.ok() || value->empty()) return unusable(cat("'", name, "' is not base64url"));
  return value;
}

/// From a key of `type` with the parameters that `builder` holds.
Pkey make_key(const char* type, OSSL_PARAM_BLD* builder) {
  const Parameters parameters{OSSL_PARAM_BLD_to_param(builder)};
  const Context context{EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr)};
  EVP_PKEY* made = nullptr;
  if (!parameters || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1) {
    return nullptr;
  }
  return Pkey{made};
}

absl::StatusOr<Pkey> rsa_key(const json::object& jwk) {
  auto n = binary(jwk, "n");
  if (!n.ok()) return n.status();
  auto e = binary(jwk, "e");
  if (!e.ok()) return e.status();
  if (e->size() > 8) return unusable("the exponent is too long");
  if (n->size() > static_cast<std::size_t>(kMaxRsaBits) / 8 + 1) return unusable("the modulus is too long");
  const Number modulus{BN_bin2bn(bytes(*n), static_cast<int>(n->size()), nullptr)};
  const Number exponent{BN_bin2bn(bytes(*e), static_cast<int>(e->size()), nullptr)};
  if (BN_num_bits(modulus.get()) < kMinRsaBits || BN_num_bits(modulus.get()) > kMaxRsaBits)
    return unusable(cat("an RSA key needs ", kMinRsaBits, " to ", kMaxRsaBits, " bits"));
  if (BN_is_odd(exponent.get()) == 0 || BN_is_one(exponent.get()) == 1) return unusable("the exponent is invalid");
  const Builder builder{OSSL_PARAM_BLD_new()};
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, modulus.get());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, exponent.get());
  if (auto key = make_key("RSA", builder.get())) return key;
  return unusable("the RSA key can not be read");
}

absl::StatusOr<Pkey> ec_key(const json::object& jwk, const Algorithm& algorithm) {
  auto x = binary(jwk, "x");
  if (!x.ok()) return x.status();
  auto y = binary(jwk, "y");
  if (!y.ok()) return y.status();
  const auto size = static_cast<std::size_t>(algorithm.coordinate);
  if (x->size() != size || y->size() != size) return unusable("a coordinate has the wrong length");
  const std::string point = cat('\x04', *x, *y);
  const Builder builder{OSSL_PARAM_BLD_new()};
  const std::string group{algorithm.curve};
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, group.c_str(), group.size());
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size());
  if (auto key = make_key("EC", builder.get())) return key;
  return unusable("the point is not on the curve");
}

absl::StatusOr<Pkey> ed25519_key(const json::object& jwk) {
  auto x = binary(jwk, "x");
  if (!x.ok()) return x.status();
  if (x->size() != 32) return unusable("an Ed25519 key has 32 bytes");
  if (Pkey key{EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes(*x), x->size())}) return key;
  return unusable("the Ed25519 key can not be read");
}

/// The algorithm that this key is pinned to.
absl::StatusOr<const Algorithm*> pinned(const json::object& jwk) {
  const std::string type = text_of(jwk, "kty").value_or("");
  const std::string curve = text_of(jwk, "crv").value_or("");
  const auto named = text_of(jwk, "alg");
  if (jwk.contains("alg") && !named) return unusable("'alg' is not a string");
  if (named) {
    const Algorithm* algorithm = algorithm_named(*named);
    if (algorithm == nullptr) return unusable(cat("algorithm '", *named, "' is not supported"));
    if (algorithm->type != type || (!algorithm->curve.empty() && algorithm->curve != curve))
      return unusable(cat("algorithm '", *named, "' contradicts the key's type"));
    return algorithm;
  }
  for (const Algorithm& each : kAlgorithms) {  // the first of its type: RS256 for RSA
    if (each.type == type && each.curve == (type == "RSA" ? "" : curve)) return &each;
  }
  return unusable(cat("key type '", type, "' ", curve.empty() ? "" : cat("with curve '", curve, "' "), "is not supported"));
}

absl::Status check_purpose(const json::object& jwk) {
  if (const auto* use = jwk.if_contains("use"); use != nullptr && text_of(jwk, "use") != "sig") return unusable("it is not for signatures");
  const auto* operations = jwk.if_contains("key_ops");
  if (operations == nullptr) return absl::OkStatus();
  if (!operations->is_array()) return unusable("'key_ops' is not a list");
  const auto& list = operations->as_array();
  const bool verifies =
      std::any_of(list.begin(), list.end(), [](const json::value& v) { return v.is_string() && v.as_string() == "verify"; });
  return verifies ? absl::OkStatus() : unusable("it is not for verification");
}

/// JWS has r and s one after the other, OpenSSL wants DER.
std::optional<std::string> to_der(std::string_view raw, int coordinate) {
  const auto size = static_cast<std::size_t>(coordinate);
  if (raw.size() != 2 * size) return std::nullopt;
  const std::unique_ptr<ECDSA_SIG, Release<ECDSA_SIG_free>> signature{ECDSA_SIG_new()};
  BIGNUM* r = BN_bin2bn(bytes(raw), coordinate, nullptr);
  BIGNUM* s = BN_bin2bn(bytes(raw.substr(size)), coordinate, nullptr);
  if (ECDSA_SIG_set0(signature.get(), r, s) != 1) return std::nullopt;
  unsigned char* der = nullptr;
  const int length = i2d_ECDSA_SIG(signature.get(), &der);
  if (length <= 0) return std::nullopt;
  std::string out{reinterpret_cast<const char*>(der), static_cast<std::size_t>(length)};
  OPENSSL_free(der);
  return out;
}

bool verifies(EVP_PKEY* key, const Algorithm& algorithm, std::string_view text, std::string_view signature) {
  std::string der;
  if (algorithm.coordinate != 0) {
    auto converted = to_der(signature, algorithm.coordinate);
    if (!converted) return false;
    der = *std::move(converted);
    signature = der;
  }
  const Digest digest{EVP_MD_CTX_new()};
  EVP_PKEY_CTX* options = nullptr;
  if (EVP_DigestVerifyInit_ex(digest.get(), &options, algorithm.digest, nullptr, nullptr, key, nullptr) != 1) return false;
  if (algorithm.pss && (EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) != 1 ||
                        EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST) != 1)) {
    return false;
  }
  return EVP_DigestVerify(digest.get(), bytes(signature), signature.size(), bytes(text), text.size()) == 1;
}

}  // namespace

absl::StatusOr<KeySet::Key> KeySet::read(const json::object& jwk) {
  if (auto status = check_purpose(jwk); !status.ok()) return status;
  auto algorithm = pinned(jwk);
  if (!algorithm.ok()) return algorithm.status();
  auto key = (*algorithm)->type == "RSA" ? rsa_key(jwk) : (*algorithm)->type == "EC" ? ec_key(jwk, **algorithm) : ed25519_key(jwk);
  if (!key.ok()) return key.status();
  return Key{std::string{(*algorithm)->name}, std::shared_ptr<evp_pkey_st>{key->release(), EVP_PKEY_free}};
}

absl::StatusOr<KeySet> KeySet::parse(std::string_view document, std::vector<std::string>* left_out) {
  json::error_code error;
  const auto value = json::parse(json::string_view{document.data(), document.size()}, error);
  const auto* keys = !error && value.is_object() ? value.as_object().if_contains("keys") : nullptr;
  if (keys == nullptr || !keys->is_array()) return absl::InvalidArgumentError("the document is not a JSON Web Key Set");
  KeySet set;
  std::size_t number = 0;
  for (const auto& each : keys->as_array()) {
    const auto say = [&](std::string_view why) {
      if (left_out != nullptr) left_out->push_back(cat("key ", number, " of the set is left out: ", why));
    };
    if (++number > kMaxKeys) {
      say(cat("a set has at most ", kMaxKeys, " keys"));
      break;
    }
    const std::string id = each.is_object() ? text_of(each.as_object(), "kid").value_or("") : std::string{};
    if (id.empty()) {
      say("it has no 'kid'");
      continue;
    }
    auto key = read(each.as_object());
    if (!key.ok()) {
      say(to_std(key.status().message()));
    } else if (!set.keys_.emplace(id, *std::move(key)).second) {
      say("an earlier key has the same 'kid'");
    }
  }
  return set;
}

absl::Status KeySet::verify(const SignedToken& token) const {
  const auto found = keys_.find(token.key_id);
  if (found == keys_.end()) return absl::UnauthenticatedError("invalid token: unknown signing key");
  if (token.algorithm != found->second.algorithm) return absl::UnauthenticatedError("invalid token: InvalidAlgorithm");
  if (verifies(found->second.key.get(), *algorithm_named(found->second.algorithm), token.signed_text, token.signature))
    return absl::OkStatus();
  return absl::UnauthenticatedError("invalid token: InvalidSignature");
}

}  // namespace openshell::oidc
