#include "programs/supervisor/ssh/host_key.hpp"

#include <libssh/libssh.h>

#include <mutex>

namespace openshell::supervisor {
namespace {

absl::StatusOr<std::string> fingerprint_of(ssh_key key) {
  unsigned char* hash = nullptr;
  std::size_t size = 0;
  if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != SSH_OK)
    return absl::InternalError("the SSH host key has no fingerprint");
  char* text = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size);
  ssh_clean_pubkey_hash(&hash);
  if (text == nullptr) return absl::InternalError("the SSH host key has no fingerprint");
  std::string out{text};
  ssh_string_free_char(text);
  return out;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SshHostKey>> SshHostKey::make() {
  static std::once_flag once;
  std::call_once(once, [] { ssh_init(); });
  ssh_key key = nullptr;
  if (ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &key) != SSH_OK) return absl::InternalError("an SSH host key cannot be made");
  auto fingerprint = fingerprint_of(key);
  if (!fingerprint.ok()) {
    ssh_key_free(key);
    return fingerprint.status();
  }
  return std::shared_ptr<const SshHostKey>{new SshHostKey{key, *std::move(fingerprint)}};
}

SshHostKey::~SshHostKey() { ssh_key_free(key_); }

}  // namespace openshell::supervisor
