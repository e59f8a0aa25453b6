#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

struct ssh_key_struct;

namespace openshell::supervisor {

/// The Ed25519 host key of this process's SSH server: made at the start, held in memory, never written anywhere, gone with the process.
/// Immutable, any thread.
class SshHostKey {
 public:
  /// Internal where libssh cannot make one.
  static absl::StatusOr<std::shared_ptr<const SshHostKey>> make();
  ~SshHostKey();
  SshHostKey(const SshHostKey&) = delete;
  SshHostKey& operator=(const SshHostKey&) = delete;

  /// `SHA256:<base64>` as ssh-keygen prints it: what the gateway tells clients.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }
  /// libssh's form, owned by this object.
  [[nodiscard]] ssh_key_struct* handle() const { return key_; }

 private:
  SshHostKey(ssh_key_struct* key, std::string fingerprint) : key_{key}, fingerprint_{std::move(fingerprint)} {}
  ssh_key_struct* const key_;
  const std::string fingerprint_;
};

}  // namespace openshell::supervisor
