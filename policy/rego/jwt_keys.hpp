// Public keys and signatures of JSON Web Tokens (RFC 7517, 7518, 8037).
#pragma once

#include <absl/status/statusor.h>
#include <openssl/evp.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

enum class SignatureFamily { hmac, rsa, rsa_pss, ecdsa, eddsa };

struct SignatureScheme {
  std::string_view name;  ///< As `alg` names it.
  SignatureFamily family;
  const EVP_MD* (*digest)();
  std::size_t coordinate = 0;  ///< ecdsa: bytes of each half of a signature.
};

inline constexpr std::array<SignatureScheme, 13> kSignatureSchemes = {{{"HS256", SignatureFamily::hmac, EVP_sha256},
                                                                       {"HS384", SignatureFamily::hmac, EVP_sha384},
                                                                       {"HS512", SignatureFamily::hmac, EVP_sha512},
                                                                       {"RS256", SignatureFamily::rsa, EVP_sha256},
                                                                       {"RS384", SignatureFamily::rsa, EVP_sha384},
                                                                       {"RS512", SignatureFamily::rsa, EVP_sha512},
                                                                       {"PS256", SignatureFamily::rsa_pss, EVP_sha256},
                                                                       {"PS384", SignatureFamily::rsa_pss, EVP_sha384},
                                                                       {"PS512", SignatureFamily::rsa_pss, EVP_sha512},
                                                                       {"ES256", SignatureFamily::ecdsa, EVP_sha256, 32},
                                                                       {"ES384", SignatureFamily::ecdsa, EVP_sha384, 48},
                                                                       {"ES512", SignatureFamily::ecdsa, EVP_sha512, 66},
                                                                       {"EdDSA", SignatureFamily::eddsa, nullptr}}};

/// Null where there is none of that name.
const SignatureScheme* find_scheme(std::string_view name);

struct PublicKey {
  std::shared_ptr<EVP_PKEY> key;
  std::string id;         ///< `kid` of a JSON key.
  std::string algorithm;  ///< `alg` of a JSON key.
};

/// One PEM certificate or public key, or a JSON key or set of them. UNKNOWN: why there is none.
absl::StatusOr<std::vector<PublicKey>> read_keys(std::string_view text);

/// False also where the key is of another kind than the scheme's.
bool verify_signature(const SignatureScheme& scheme, const PublicKey& key, std::string_view text, std::string_view signature);

}  // namespace openshell::policy::rego
