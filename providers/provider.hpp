// A provider: a named set of credentials and settings of one type that can be attached to sandboxes. This is the internal model; api/ turns
// it into the public message.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "providers/credential_store.hpp"
#include "storage/store.hpp"

namespace openshell::providers {

constexpr std::size_t kMaxNameBytes = 253;
constexpr std::size_t kMaxTypeBytes = 64;
constexpr std::size_t kMaxCredentials = 32;  ///< keys of one provider
constexpr std::size_t kMaxConfigEntries = 64;
constexpr std::size_t kMaxMapKeyBytes = 256;
constexpr std::size_t kMaxMapValueBytes = 8192;
constexpr std::size_t kMaxProvidersPerSandbox = 32;

/// The one type that needs no profile.
inline constexpr std::string_view kGenericType = "generic";

struct Profile;  // providers/profile.hpp

struct Credential {
  CredentialHandle handle;
  std::string boundary_epoch;              ///< UUID, set when the key was first stored
  std::optional<std::int64_t> expires_at;  ///< Unix seconds; absent: does not expire
};

struct Provider {
  std::string id;  ///< UUID; a provider deleted and made again has another
  std::string workspace;
  std::string name;
  std::string type;
  std::string profile_workspace;  ///< empty: the profile is looked up in platform scope
  storage::Labels labels;
  storage::Labels annotations;
  std::map<std::string, Credential> credentials;  ///< by key, which is an environment variable's name
  std::map<std::string, std::string> config;      ///< not secret
  std::int64_t created_at_ms = 0;
  std::uint64_t resource_version = 0;
  /// What its type and `profile_workspace` lead to, where with_profile() has looked. Null: no such profile, as usual for `generic`.
  std::shared_ptr<const Profile> profile;

  /// No profile says what its credentials are for, and none is needed.
  [[nodiscard]] bool unbound() const { return profile == nullptr && type == kGenericType; }
};

/// `[A-Za-z_][A-Za-z0-9_]*`, not a name that reads as a placeholder's own part (`v12_KEY`, `s<64 hex>_KEY`).
bool is_credential_key(std::string_view name);
/// INVALID_ARGUMENT `provider.credentials exceeds maximum entries (33 > 32)` and so on: every bound of a provider's fields.
absl::Status check_limits(std::string_view field, const std::map<std::string, std::string>& entries, std::size_t max_entries);

/// Rows to records and back. The payload is a private message (proto/storage_provider.proto). DATA_LOSS for one that can not be read.
absl::StatusOr<Provider> from_row(const storage::Object& row);
storage::Object to_row(const Provider& provider);

/// nullopt: no such provider.
absl::StatusOr<std::optional<Provider>> find_provider(storage::Transaction& tx, std::string_view workspace, std::string_view name);
/// Fills in the profile.
absl::Status with_profile(storage::Transaction& tx, Provider& provider);
/// The providers that a sandbox names, with their profiles, in its order. FAILED_PRECONDITION `provider 'N' not found` for a dangling name.
absl::StatusOr<std::vector<Provider>> load_attached(storage::Transaction& tx, std::string_view workspace,
                                                    const std::vector<std::string>& names);

/// What create and attach demand together: at most 32, names and profiles known, no environment key from two providers (one that expired
/// before `now`, Unix seconds, does not count). `names` de-duplicated, first occurrence kept.
absl::Status check_attachment(storage::Transaction& tx, std::string_view workspace, const std::vector<std::string>& names,
                              std::int64_t now = 0);
/// FAILED_PRECONDITION where two of them give the same environment key.
absl::Status check_key_owners(const std::vector<Provider>& providers, std::int64_t now);

}  // namespace openshell::providers
