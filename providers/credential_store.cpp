#include "providers/credential_store.hpp"

#include <absl/strings/escaping.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "observability/text.hpp"

namespace openshell::providers {
namespace {

namespace json = boost::json;

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kTagBytes = 16;
constexpr std::string_view kDriver = "openshell-driver-db-credstore";
constexpr std::string_view kHandlePrefix = "v1:";
constexpr std::string_view kAlgorithm = "AES-256-GCM";
constexpr int kEnvelopeVersion = 2;  // with the provider's id in what is authenticated

std::string random_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(size)) != 1) std::abort();
  return bytes;
}

std::string hex_sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string base64(std::string_view text) { return absl::Base64Escape(to_absl(text)); }

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

struct CipherDeleter {
  void operator()(EVP_CIPHER_CTX* ctx) const { EVP_CIPHER_CTX_free(ctx); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, CipherDeleter>;

struct Sealed {
  std::string nonce;
  std::string ciphertext;  // the tag at its end
};

Sealed seal(std::string_view key, std::string_view aad, std::string_view plain) {
  Sealed out{random_bytes(kNonceBytes), std::string(plain.size() + kTagBytes, '\0')};
  auto* to = reinterpret_cast<unsigned char*>(out.ciphertext.data());
  int size = 0;
  const Cipher ctx{EVP_CIPHER_CTX_new()};
  const bool ok = EVP_EncryptInit_ex(ctx.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key), bytes_of(out.nonce)) == 1 &&
                  EVP_EncryptUpdate(ctx.get(), nullptr, &size, bytes_of(aad), static_cast<int>(aad.size())) == 1 &&
                  EVP_EncryptUpdate(ctx.get(), to, &size, bytes_of(plain), static_cast<int>(plain.size())) == 1 &&
                  EVP_EncryptFinal_ex(ctx.get(), to + size, &size) == 1 &&
                  EVP_CIPHER_CTX_ctrl(ctx.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, to + plain.size()) == 1;
  if (!ok) std::abort();  // AES-GCM on memory we own does not fail
  return out;
}

absl::Status tampered() { return absl::DataLossError("default credential storage object is damaged"); }

absl::StatusOr<Secret> open_sealed(std::string_view key, std::string_view aad, const Sealed& sealed) {
  if (sealed.nonce.size() != kNonceBytes || sealed.ciphertext.size() < kTagBytes) return tampered();
  const std::size_t size = sealed.ciphertext.size() - kTagBytes;
  std::string plain(size, '\0');
  std::string tag = sealed.ciphertext.substr(size);
  auto* to = reinterpret_cast<unsigned char*>(plain.data());
  int done = 0;
  const Cipher ctx{EVP_CIPHER_CTX_new()};
  const bool ok = EVP_DecryptInit_ex(ctx.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key), bytes_of(sealed.nonce)) == 1 &&
                  EVP_DecryptUpdate(ctx.get(), nullptr, &done, bytes_of(aad), static_cast<int>(aad.size())) == 1 &&
                  EVP_DecryptUpdate(ctx.get(), to, &done, bytes_of(sealed.ciphertext), static_cast<int>(size)) == 1 &&
                  EVP_CIPHER_CTX_ctrl(ctx.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
                  EVP_DecryptFinal_ex(ctx.get(), to + done, &done) == 1;
  Secret secret{std::move(plain)};
  if (!ok) return tampered();
  return secret;
}

std::string authenticated(std::string_view what, std::string_view id, const CredentialOwner& owner) {
  return cat("openshell:gateway-credential-storage:v", kEnvelopeVersion, ":", what, ":", id, ":", owner.provider_id, ":",
             owner.provider_name, ":", owner.key);
}

json::object to_json(const Sealed& sealed) { return {{"nonce", base64(sealed.nonce)}, {"ciphertext", base64(sealed.ciphertext)}}; }

std::string text_of(const json::object& object, const char* key) {
  const auto* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string{value->as_string()} : std::string{};
}

absl::StatusOr<Sealed> sealed_of(const json::object& envelope, const char* key) {
  const auto* value = envelope.if_contains(key);
  if (value == nullptr || !value->is_object()) return tampered();
  Sealed out;
  const std::string nonce = text_of(value->as_object(), "nonce");
  const std::string ciphertext = text_of(value->as_object(), "ciphertext");
  if (!absl::Base64Unescape(nonce, &out.nonce) || !absl::Base64Unescape(ciphertext, &out.ciphertext)) return tampered();
  return out;
}

absl::StatusOr<std::string> id_of(const CredentialHandle& handle) {
  if (handle.driver != kDriver)
    return absl::InvalidArgumentError(cat("credential handle references credential driver '", handle.driver, "' that is not enabled"));
  if (!handle.handle.starts_with(kHandlePrefix) || handle.handle.size() != kHandlePrefix.size() + 64)
    return absl::InvalidArgumentError("credential handle is malformed");
  return handle.handle.substr(kHandlePrefix.size());
}

absl::StatusOr<std::string> read_file(int fd) {
  std::string content;
  std::array<char, 64> buffer{};
  while (true) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::UnavailableError(std::strerror(errno));
    if (got == 0 || content.size() > kKeyBytes) return content;
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

absl::Status make_key_file(const std::string& path) {
  std::error_code error;
  const auto directory = std::filesystem::path{path}.parent_path();
  std::filesystem::create_directories(directory, error);
  ::chmod(directory.c_str(), 0700);
  const Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (file.fd < 0)
    return errno == EEXIST ? absl::OkStatus()
                           : absl::UnavailableError(cat("failed to create key-encryption key ", path, ": ", std::strerror(errno)));
  const Secret key{random_bytes(kKeyBytes)};
  if (::write(file.fd, key.reveal().data(), kKeyBytes) != static_cast<ssize_t>(kKeyBytes) || ::fsync(file.fd) != 0) {
    ::unlink(path.c_str());
    return absl::UnavailableError(cat("failed to write key-encryption key ", path));
  }
  return absl::OkStatus();
}

/// Six bytes, the highest first: ids that are made one after another lie side by side in the store's indexes, so that a write touches few
/// pages however many there are.
std::string milliseconds_now() {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string bytes;
  for (int shift = 40; shift >= 0; shift -= 8) bytes += static_cast<char>(now >> shift & 0xff);
  return bytes;
}

}  // namespace

CredentialStore::CredentialStore(Secret key) : key_{std::move(key)}, key_id_{cat("sha256:", hex_sha256(key_.reveal()))} {}
CredentialStore::~CredentialStore() = default;

absl::StatusOr<std::unique_ptr<CredentialStore>> CredentialStore::from_file(const std::string& path) {
  if (!path.starts_with('/')) return absl::InvalidArgumentError(cat("key_encryption_key_path must be absolute, got '", path, "'"));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (auto status = make_key_file(path); !status.ok()) return status;
  }
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode))
    return absl::FailedPreconditionError(cat("key-encryption key ", path, " is not a readable regular file"));
  ::fchmod(file.fd, 0600);
  auto content = read_file(file.fd);
  if (!content.ok()) return content.status();
  Secret key{*std::move(content)};
  if (key.reveal().size() != kKeyBytes)
    return absl::FailedPreconditionError(cat("key-encryption key ", path, " must hold exactly ", kKeyBytes, " bytes"));
  return std::unique_ptr<CredentialStore>{new CredentialStore{std::move(key)}};
}

absl::StatusOr<std::unique_ptr<CredentialStore>> CredentialStore::from_environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  if (text == nullptr) return absl::FailedPreconditionError(cat("key_encryption_key_env names ", name, ", which is not set"));
  std::string decoded;
  if (!absl::Base64Unescape(text, &decoded)) decoded.clear();
  Secret key{std::move(decoded)};
  if (key.reveal().size() != kKeyBytes)
    return absl::FailedPreconditionError(cat("environment variable ", name, " must hold base64 of exactly ", kKeyBytes, " bytes"));
  return std::unique_ptr<CredentialStore>{new CredentialStore{std::move(key)}};
}

absl::StatusOr<CredentialHandle> CredentialStore::store(storage::Transaction& tx, const CredentialOwner& owner, const Secret& value) const {
  const std::string id = absl::BytesToHexString(cat(milliseconds_now(), random_bytes(26)));
  const Secret data_key{random_bytes(kKeyBytes)};
  const json::object envelope{{"version", kEnvelopeVersion},
                              {"id", id},
                              {"provider_id", owner.provider_id},
                              {"provider_name", owner.provider_name},
                              {"credential_key", owner.key},
                              {"algorithm", kAlgorithm},
                              {"key_encryption_key_id", key_id_},
                              {"wrapped_dek", to_json(seal(key_.reveal(), authenticated("dek", id, owner), data_key.reveal()))},
                              {"value", to_json(seal(data_key.reveal(), authenticated("value", id, owner), value.reveal()))}};
  storage::Object row;
  row.type = storage::types::kEncryptedCredential;
  row.id = id;
  row.name = id;
  row.scope = owner.provider_id;
  row.labels = {{"provider_name", owner.provider_name}, {"credential_key", owner.key}};
  row.payload = json::serialize(envelope);
  if (auto stored = tx.create(std::move(row)); !stored.ok()) return stored.status();
  return CredentialHandle{
      std::string{kDriver}, cat(kHandlePrefix, id), {{"algorithm", std::string{kAlgorithm}}, {"key_encryption_key_id", key_id_}}};
}

absl::StatusOr<Secret> CredentialStore::resolve(storage::Transaction& tx, const CredentialOwner& owner,
                                                const CredentialHandle& handle) const {
  auto id = id_of(handle);
  if (!id.ok()) return id.status();
  auto row = tx.get(storage::types::kEncryptedCredential, *id);
  if (!row.ok()) return row.status();
  if (!*row) return absl::NotFoundError(cat("default credential '", *id, "' was not found"));
  json::error_code error;
  const auto parsed = json::parse((*row)->payload, error);
  if (error || !parsed.is_object()) return tampered();
  const auto& envelope = parsed.as_object();
  const auto* version = envelope.if_contains("version");
  if (version == nullptr || !version->is_int64() || version->as_int64() != kEnvelopeVersion || text_of(envelope, "algorithm") != kAlgorithm)
    return tampered();
  if (text_of(envelope, "key_encryption_key_id") != key_id_) {
    return absl::FailedPreconditionError("default credential storage object was encrypted with a different key-encryption key");
  }
  if (text_of(envelope, "provider_id") != owner.provider_id || text_of(envelope, "provider_name") != owner.provider_name ||
      text_of(envelope, "credential_key") != owner.key) {
    return absl::FailedPreconditionError("default credential storage handle is not managed for this provider credential");
  }
  const auto wrapped = sealed_of(envelope, "wrapped_dek");
  const auto value = sealed_of(envelope, "value");
  if (!wrapped.ok() || !value.ok()) return tampered();
  auto data_key = open_sealed(key_.reveal(), authenticated("dek", *id, owner), *wrapped);
  if (!data_key.ok()) return data_key.status();
  if (data_key->reveal().size() != kKeyBytes) return tampered();
  return open_sealed(data_key->reveal(), authenticated("value", *id, owner), *value);
}

absl::Status CredentialStore::erase(storage::Transaction& tx, const CredentialHandle& handle) const {
  auto id = id_of(handle);
  if (!id.ok()) return id.status();
  return tx.erase(storage::types::kEncryptedCredential, *id).status();
}

}  // namespace openshell::providers
