// How the handlers of providers look at a provider: what clients may see of it, and which keys its profile lets it have.
#pragma once

#include <absl/status/status.h>

#include <set>
#include <string>

#include "datamodel.pb.h"
#include "providers/provider.hpp"

namespace openshell::api {

/// As everybody may see it: which keys there are, never a value, never a handle.
datamodel::v1::Provider redacted(const providers::Provider& provider);

/// The profile's word on the keys that a provider would have: all declared (`undeclared_is_fine`: left over from an older profile and not
/// touched), no required static one missing. OK without a profile.
absl::Status check_declared(const providers::Provider& provider, const std::set<std::string>& keys,
                            const std::set<std::string>& undeclared_is_fine = {});

/// Bounds of what a client sends as credentials: number, names, values.
absl::Status check_credentials(const google::protobuf::Map<std::string, std::string>& credentials);
/// A valid point in time for `field`.
absl::Status check_timestamp(std::string_view field, const google::protobuf::Timestamp& time);

}  // namespace openshell::api
