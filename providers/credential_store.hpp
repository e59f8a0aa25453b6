// Where credential values lie: envelope encryption in the gateway's own database. A provider's row holds handles only; a value exists in
// clear in memory, on its way in and on its way to a supervisor.
//
// Each value is sealed with a key of its own (AES-256-GCM), and that key with the key-encryption key of this gateway (a 32-byte file, 0600,
// or an environment variable). Changing a row's id, provider or key name makes it unreadable: they are authenticated with it.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <string_view>

#include "messages/secret.hpp"
#include "storage/store.hpp"

namespace openshell::providers {

/// Names a stored value. Not secret, but internal: never shown to clients.
struct CredentialHandle {
  std::string driver;        ///< "openshell-driver-db-credstore"
  std::string handle;        ///< "v1:<64 hex>"
  storage::Labels metadata;  ///< algorithm, key_encryption_key_id
};

/// Whose value it is; bound into the ciphertext.
struct CredentialOwner {
  std::string provider_id;
  std::string provider_name;
  std::string key;
};

/// Thread-safe, immutable. Every call works inside the caller's transaction, so that a record and its secrets change together.
class CredentialStore {
 public:
  /// The key file is made (0600, directory 0700, O_EXCL) when missing. FAILED_PRECONDITION where it does not hold exactly 32 bytes.
  static absl::StatusOr<std::unique_ptr<CredentialStore>> from_file(const std::string& absolute_path);
  /// `name` is an environment variable with base64 of 32 bytes.
  static absl::StatusOr<std::unique_ptr<CredentialStore>> from_environment(const std::string& name);
  ~CredentialStore();

  absl::StatusOr<CredentialHandle> store(storage::Transaction& tx, const CredentialOwner& owner, const Secret& value) const;
  /// NOT_FOUND, FAILED_PRECONDITION (another key-encryption key, another owner) or DATA_LOSS (tampered, damaged). No message holds a value.
  absl::StatusOr<Secret> resolve(storage::Transaction& tx, const CredentialOwner& owner, const CredentialHandle& handle) const;
  /// OK also where it is gone already.
  absl::Status erase(storage::Transaction& tx, const CredentialHandle& handle) const;

 private:
  explicit CredentialStore(Secret key);
  Secret key_;
  std::string key_id_;  ///< "sha256:<hex of the key's SHA-256>"
};

}  // namespace openshell::providers
