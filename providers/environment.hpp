// The provider environment of one sandbox: which credentials its supervisor gets, where each may be used, and the fingerprint that tells
// when that changed. The supervisor holds the values; processes in the sandbox see placeholders (providers/placeholder.hpp).
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "messages/secret.hpp"
#include "providers/provider.hpp"

namespace openshell::providers {

/// A place where a credential may be used. `path` is a glob; empty, `**` and `/**` mean any.
struct BindingEndpoint {
  std::string host;
  std::uint32_t port = 0;
  std::string path;
  friend auto operator<=>(const BindingEndpoint&, const BindingEndpoint&) = default;
};

/// `credential_binding.provider` of the sandbox's effective policy: provider name -> endpoints.
using PolicyBindings = std::map<std::string, std::vector<BindingEndpoint>>;

struct StaticBinding {
  std::vector<BindingEndpoint> endpoints;  ///< sorted, unique
  std::string credential_identity;         ///< "<provider id>:<key>"
  std::string workload_credential_handle;  ///< 64 hex for stable placeholders, else empty
};

/// Where a request carries a credential, in the words of its profile.
struct Placement {
  std::string auth_style;  ///< lower case; empty, basic and bearer: the Authorization header, or `header_name` where that is set
  std::string header_name, query_param, path_template;
};

enum class Readiness { kUnspecified, kCredentialsWithheld, kCredentialExpired };

struct Environment {
  std::map<std::string, Secret> values;            ///< by environment variable
  std::map<std::string, std::int64_t> expires_at;  ///< Unix seconds, for values that expire
  std::map<std::string, StaticBinding> bindings;   ///< a credential key without one is a `generic` key: resolved by the explicit rule only
  std::vector<std::string> non_secret_keys;        ///< sorted
  std::map<std::string, Placement> placements;     ///< of bound keys whose profile says more than "Authorization"
  std::vector<std::string> stable_keys;            ///< sorted; their placeholders outlive a new value
  std::uint64_t revision = 0;                      ///< compare for equality only; never 0
  Readiness readiness = Readiness::kUnspecified;
};

/// Fingerprint of everything that can change environment(): providers in order with their versions, keys and expiries, and the policy
/// bindings. Never 0. The same number goes into GetSandboxConfig and into the environment itself.
std::uint64_t environment_revision(const std::vector<Provider>& attached, const PolicyBindings& bindings);

/// What the placeholder of a `stable_placeholder` credential is named by: it stays as long as none of these changes. 64 hexadecimal digits.
/// Order, letter case of hosts and spellings of "any path" do not matter.
std::string stable_handle(std::string_view sandbox_id, std::string_view provider_id, std::string_view key, std::string_view epoch,
                          std::vector<BindingEndpoint> endpoints);

struct EnvironmentOptions {
  std::string sandbox_id;
  std::int64_t now = 0;             ///< Unix seconds: what expired is left out
  bool static_bindings = true;      ///< false: the supervisor can not bind, so no static credential is delivered at all
  bool stable_placeholders = true;  ///< false: credentials that need one are withheld
};
/// Fails as a whole where a stored value can not be read: half a set would silently break what the sandbox relies on.
absl::StatusOr<Environment> environment(storage::Transaction& tx, const CredentialStore& credentials, const std::vector<Provider>& attached,
                                        const PolicyBindings& bindings, const EnvironmentOptions& options);

}  // namespace openshell::providers
