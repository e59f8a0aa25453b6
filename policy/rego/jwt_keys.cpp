#include "policy/rego/jwt_keys.hpp"

#include "policy/rego/base64.hpp"
#include "policy/rego/operands.hpp"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

namespace openshell::policy::rego {
namespace {

template <auto Free>
struct Release {
  template <class T>
  void operator()(T* it) const {
    Free(it);
  }
};
using Bio = std::unique_ptr<BIO, Release<BIO_free>>;
using Number = std::unique_ptr<BIGNUM, Release<BN_free>>;
using Context = std::unique_ptr<EVP_MD_CTX, Release<EVP_MD_CTX_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Release<EVP_PKEY_CTX_free>>;
using Parameters = std::unique_ptr<OSSL_PARAM, Release<OSSL_PARAM_free>>;
using Builder = std::unique_ptr<OSSL_PARAM_BLD, Release<OSSL_PARAM_BLD_free>>;
using Certificate = std::unique_ptr<X509, Release<X509_free>>;
using Signature = std::unique_ptr<ECDSA_SIG, Release<ECDSA_SIG_free>>;
using Key = std::shared_ptr<EVP_PKEY>;

constexpr std::size_t kMostKeys = 256;

Key own(EVP_PKEY* key) { return key == nullptr ? nullptr : Key(key, EVP_PKEY_free); }

Key from_pem(std::string_view text) {
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  if (text.find("BEGIN CERTIFICATE") != std::string_view::npos) {
    const Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    return certificate ? own(X509_get_pubkey(certificate.get())) : nullptr;
  }
  return own(PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr));
}

std::string bytes_of(const Value& json, std::string_view name) {
  const Value* found = json.find(name);
  std::string out;
  std::size_t at = 0;
  if (found == nullptr || !found->is_string() || !base64_decode(found->text(), Base64Alphabet::url, Base64Padding::none, out, at))
    return {};
  return out;
}

std::string text_of(const Value& json, std::string_view name) {
  const Value* found = json.find(name);
  return found != nullptr && found->is_string() ? std::string(found->text()) : std::string();
}

Key build(const char* type, OSSL_PARAM_BLD* builder) {
  const Parameters parameters(OSSL_PARAM_BLD_to_param(builder));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (!parameters || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1) {
    return nullptr;
  }
  return own(key);
}

Number number_of(const std::string& bytes) {
  return Number(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()), nullptr));
}

Key rsa_key(const Value& json) {
  const Number n = number_of(bytes_of(json, "n"));
  const Number e = number_of(bytes_of(json, "e"));
  const Builder builder(OSSL_PARAM_BLD_new());
  if (BN_is_zero(n.get()) || BN_is_zero(e.get())) return nullptr;
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get());
  return build("RSA", builder.get());
}

Key ec_key(const Value& json) {
  const std::string curve = text_of(json, "crv");
  const std::size_t size = curve == "P-256" ? 32 : curve == "P-384" ? 48 : curve == "P-521" ? 66 : 0;
  std::string x = bytes_of(json, "x");
  std::string y = bytes_of(json, "y");
  if (size == 0 || x.size() > size || y.size() > size) return nullptr;
  x.insert(0, size - x.size(), '\0');
  y.insert(0, size - y.size(), '\0');
  const std::string point = "\x04" + x + y;
  const Builder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, curve.c_str(), 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size());
  return build("EC", builder.get());
}

Key okp_key(const Value& json) {
  const std::string x = bytes_of(json, "x");
  if (text_of(json, "crv") != "Ed25519" || x.size() != 32) return nullptr;
  return own(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(x.data()), x.size()));
}

absl::StatusOr<PublicKey> from_json(const Value& json) {
  PublicKey out{nullptr, text_of(json, "kid"), text_of(json, "alg")};
  const std::string type = text_of(json, "kty");
  if (type == "RSA") {
    out.key = rsa_key(json);
  } else if (type == "EC") {
    out.key = ec_key(json);
  } else if (type == "OKP") {
    out.key = okp_key(json);
  } else if (type != "oct") {
    return failure(
        "failed to parse a JWK key (set): jwk.ParseString: failed to parse string: jwk.Parse: failed to parse sole key: jwk.ParseKey: "
        "invalid key type from JSON (",
        type, ")");
  }
  if (!out.key && type != "oct") return failure("failed to parse a JWK key (set): a member of the key is missing or wrong");
  return out;
}

/// A signature as two numbers of fixed size becomes the form OpenSSL reads.
std::string der_of(const SignatureScheme& scheme, std::string_view signature) {
  if (signature.size() != 2 * scheme.coordinate) return {};
  const Signature pair(ECDSA_SIG_new());
  BIGNUM* r = number_of(std::string(signature.substr(0, scheme.coordinate))).release();
  BIGNUM* s = number_of(std::string(signature.substr(scheme.coordinate))).release();
  if (ECDSA_SIG_set0(pair.get(), r, s) != 1) return {};
  unsigned char* bytes = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &bytes);
  if (size <= 0) return {};
  std::string out(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return out;
}

bool fits(const SignatureScheme& scheme, const PublicKey& key) {
  if (!key.key) return false;
  switch (EVP_PKEY_get_base_id(key.key.get())) {
    case EVP_PKEY_RSA:
      return scheme.family == SignatureFamily::rsa || scheme.family == SignatureFamily::rsa_pss;
    case EVP_PKEY_EC:
      return scheme.family == SignatureFamily::ecdsa &&
             (static_cast<std::size_t>(EVP_PKEY_get_bits(key.key.get())) + 7) / 8 == scheme.coordinate;
    case EVP_PKEY_ED25519:
      return scheme.family == SignatureFamily::eddsa;
    default:
      return false;
  }
}

}  // namespace

const SignatureScheme* find_scheme(std::string_view name) {
  for (const auto& scheme : kSignatureSchemes) {
    if (scheme.name == name) return &scheme;
  }
  return nullptr;
}

absl::StatusOr<std::vector<PublicKey>> read_keys(std::string_view text) {
  std::vector<PublicKey> keys;
  if (text.find("-----BEGIN") != std::string_view::npos) {
    Key key = from_pem(text);
    ERR_clear_error();
    if (!key) {
      const bool certificate = text.find("BEGIN CERTIFICATE") != std::string_view::npos;
      return failure("failed to parse a PEM ", certificate ? "certificate" : "public key");
    }
    keys.push_back({std::move(key), {}, {}});
    return keys;
  }
  const auto json = parse_json(text);
  if (!json.ok() || !json->is_object()) return failure("failed to parse a JWK key (set): neither PEM nor a JSON object");
  const Value* set = json->find("keys");
  const auto add = [&](const Value& one) -> absl::Status {
    auto key = from_json(one);
    ERR_clear_error();
    if (!key.ok()) return key.status();
    keys.push_back(*std::move(key));
    return absl::OkStatus();
  };
  if (set == nullptr) {
    if (auto status = add(*json); !status.ok()) return status;
    return keys;
  }
  if (set->size() > kMostKeys) return absl::ResourceExhaustedError("limit exceeded: elements");
  for (const auto& one : set->items()) {
    if (auto status = add(one); !status.ok()) return status;
  }
  return keys;
}

bool verify_signature(const SignatureScheme& scheme, const PublicKey& key, std::string_view text, std::string_view signature) {
  if (!fits(scheme, key)) return false;
  std::string bytes(signature);
  if (scheme.family == SignatureFamily::ecdsa) bytes = der_of(scheme, signature);
  if (bytes.empty()) return false;
  const Context context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* options = nullptr;
  bool ready =
      EVP_DigestVerifyInit(context.get(), &options, scheme.digest == nullptr ? nullptr : scheme.digest(), nullptr, key.key.get()) == 1;
  if (ready && scheme.family == SignatureFamily::rsa_pss) {
    ready = EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1 &&
            EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_AUTO) == 1;
  }
  const bool good = ready && EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                                              reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace openshell::policy::rego
