// A secret in --env is read by every program of the sandbox; a provider keeps it outside. The command line says so, and goes on.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cli/context.hpp"
#include "openshell.pb.h"

namespace openshell::cli {

/// TOKEN, SECRET, PASSWORD, CREDENTIAL, ACCESS_KEY, SECRET_KEY or API_KEY as whole words between underscores, in any case.
[[nodiscard]] bool looks_like_credential(std::string_view key);

/// One line for each key that looks so, or that one of the profiles declares: then with the command that makes its provider.
[[nodiscard]] std::vector<std::string> credential_warnings(const std::vector<std::string>& keys,
                                                           const std::vector<v1::ProviderProfile>& profiles);

/// The names of an environment, in order.
template <class StringMap>
std::vector<std::string> keys_of(const StringMap& environment) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : environment) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// Asks the gateway for its profiles and writes the lines to stderr. Without keys it asks nothing; a gateway that does not answer is no
/// reason to stop: the names alone are judged then.
void warn_of_credentials(Context& context, GatewayClient& client, const std::vector<std::string>& keys);

}  // namespace openshell::cli
