// Private and public keys. One value type over OpenSSL's EVP_PKEY, so that no other room calls key functions of OpenSSL.
// Thread-safe to share once made: a key is immutable. Errors: absl::Status, never with key material in the text.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <string_view>

#include "messages/secret.hpp"

struct evp_pkey_st;

namespace openshell::pki {

/// The two kinds we make. P-256 where published TLS clients connect (ECDSA is accepted by all of them), Ed25519 where both ends are ours
/// and for signing tokens.
enum class KeyKind { kP256, kEd25519 };

/// A key with its private half.
class PrivateKey {
 public:
  /// A fresh key from OpenSSL's random generator.
  static absl::StatusOr<PrivateKey> generate(KeyKind kind);
  /// Reads the first PKCS#8, PKCS#1 or SEC1 block; other blocks are skipped. At most kMaxKeyPemBytes. Encrypted keys are refused.
  static absl::StatusOr<PrivateKey> from_pem(const Secret& pem);

  /// PKCS#8 PEM (`BEGIN PRIVATE KEY`).
  [[nodiscard]] absl::StatusOr<Secret> to_pem() const;
  /// SubjectPublicKeyInfo of the public half, PEM (`BEGIN PUBLIC KEY`) and DER.
  [[nodiscard]] absl::StatusOr<std::string> public_pem() const;
  [[nodiscard]] absl::StatusOr<std::string> public_der() const;

  /// For SSL_CTX_use_PrivateKey and EVP_DigestSign; lives as long as any copy of this key.
  [[nodiscard]] evp_pkey_st* native() const noexcept { return key_.get(); }

 private:
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_{std::move(key)} {}
  std::shared_ptr<evp_pkey_st> key_;
};

inline constexpr std::size_t kMaxKeyPemBytes = 64 * 1024;  ///< Bytes of a PEM file that may hold a private key.

/// SHA-256 of the SubjectPublicKeyInfo DER, its first 16 bytes as 32 lower-case hex digits: the key id written beside a signing key.
absl::StatusOr<std::string> key_id(const PrivateKey& key);

}  // namespace openshell::pki
