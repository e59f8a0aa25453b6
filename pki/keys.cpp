#include "pki/keys.hpp"

#include <absl/strings/escaping.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include "pki/openssl_owned.hpp"

namespace openshell::pki {
namespace {

// Answers OpenSSL's question for a pass phrase with "none", so that it never asks on a terminal.
int no_passphrase(char*, int, int, void*) { return 0; }

}  // namespace

absl::StatusOr<PrivateKey> PrivateKey::generate(KeyKind kind) {
  EVP_PKEY* key =
      kind == KeyKind::kP256 ? EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256") : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  if (key == nullptr) return openssl_error("generating a key");
  return PrivateKey{std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free)};
}

absl::StatusOr<PrivateKey> PrivateKey::from_pem(const Secret& pem) {
  if (pem.reveal().size() > kMaxKeyPemBytes)
    return absl::InvalidArgumentError(absl::StrCat("private key file is larger than ", kMaxKeyPemBytes, " bytes"));
  const BioPtr bio = view_bio(pem.reveal());
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr);
  if (key == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("no private key found in file");
  }
  return PrivateKey{std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free)};
}

absl::StatusOr<Secret> PrivateKey::to_pem() const {
  const BioPtr bio{BIO_new(BIO_s_secmem())};
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return openssl_error("writing a private key");
  return Secret{bio_text(bio.get())};
}

absl::StatusOr<std::string> PrivateKey::public_pem() const {
  const BioPtr bio{BIO_new(BIO_s_mem())};
  if (PEM_write_bio_PUBKEY(bio.get(), key_.get()) != 1) return openssl_error("writing a public key");
  return bio_text(bio.get());
}

absl::StatusOr<std::string> PrivateKey::public_der() const {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key_.get(), &der);
  if (size <= 0) return openssl_error("encoding a public key");
  std::string bytes(reinterpret_cast<char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return bytes;
}

absl::StatusOr<std::string> key_id(const PrivateKey& key) {
  const auto der = key.public_der();
  if (!der.ok()) return der.status();
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(der->data()), der->size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), 16));
}

}  // namespace openshell::pki
