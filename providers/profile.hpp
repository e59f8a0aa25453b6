// What kind of provider there is: which credentials one has, under which environment names, at which endpoints they may be used. Profiles
// are imported by users, into the platform's scope or a workspace's; none comes with the gateway. Pure but for the functions that take a
// transaction. (CA-12)
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "openshell.pb.h"
#include "providers/environment.hpp"
#include "storage/store.hpp"

namespace openshell::providers {

using ProfileMessage = openshell::v1::ProviderProfile;

/// A stored profile.
struct Profile {
  std::string row_id;      ///< UUID; a profile deleted and imported again has another
  std::string workspace;   ///< empty: platform scope
  ProfileMessage content;  ///< with `resource_version`, `source` and `scope` as clients see them
};

/// `[a-z0-9]+(-[a-z0-9]+)*`.
bool is_profile_id(std::string_view id);

/// A token grant, a refresh that the gateway can mint, or an additional output of one: its value comes at run time.
bool resolved_at_runtime(const ProfileMessage& profile, const openshell::v1::ProviderProfileCredential& credential);
/// Names under which a value may be stored: the environment names of each credential, or its own name where it has none.
std::set<std::string> accepted_keys(const ProfileMessage& profile);
/// Keys that no sandbox gets: subject credentials of token exchanges.
std::set<std::string> broker_only_keys(const ProfileMessage& profile);
/// What no sandbox gets: these, and keys that are only material for others.
std::set<std::string> hidden_keys(const ProfileMessage& profile);
/// The first accepted key of each required static credential that `keys` holds none of. Sorted.
std::vector<std::string> missing_required(const ProfileMessage& profile, const std::set<std::string>& keys);
/// May a provider have no credential at all?
bool allows_empty(const ProfileMessage& profile);
/// Its endpoints count as places where a credential goes.
bool is_credentialed(const ProfileMessage& profile);
/// False where a `*_BASE_URL` of the provider's config names a host that the profile's endpoints do not cover: then the profile counts as
/// one without endpoints, for this provider.
bool endpoints_active(const Provider& provider);
/// Where the provider's credentials may be used by its profile: one entry an endpoint and port. Empty where inactive.
std::vector<BindingEndpoint> profile_endpoints(const Provider& provider);
/// `_provider_` and the provider's name in lower case, with `_` for what a rule's name may not hold.
std::string layer_name(std::string_view provider_name);
/// The rule that an attached provider adds to a policy, canonical; nullopt: none.
std::optional<openshell::sandbox::v1::NetworkPolicyRule> layer(const Provider& provider);

/// Rows to profiles and back.
absl::StatusOr<Profile> profile_from_row(const storage::Object& row);
storage::Object to_row(const Profile& profile);
/// The entry of exactly this scope; null: none.
absl::StatusOr<std::shared_ptr<const Profile>> find_profile(storage::Transaction& tx, std::string_view scope, std::string_view id);
/// What a provider record points at: the platform's entry, or, with a workspace, that workspace's and else the platform's. Null: none.
absl::StatusOr<std::shared_ptr<const Profile>> resolve_profile(storage::Transaction& tx, std::string_view profile_workspace,
                                                               std::string_view id);

}  // namespace openshell::providers
