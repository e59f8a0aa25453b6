#include "cli/credential_warning.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

const v1::ProviderProfile* profile_with(const std::string& key, const std::vector<v1::ProviderProfile>& profiles) {
  for (const auto& profile : profiles) {
    for (const auto& credential : profile.credentials()) {
      const auto& variables = credential.env_vars();
      if (std::find(variables.begin(), variables.end(), key) != variables.end()) return &profile;
    }
  }
  return nullptr;
}

}  // namespace

bool looks_like_credential(std::string_view key) {
  const auto words = absl::StrCat("_", absl::AsciiStrToUpper(std::string{key}), "_");
  for (const auto* word : {"_TOKEN_", "_SECRET_", "_PASSWORD_", "_CREDENTIAL_", "_ACCESS_KEY_", "_SECRET_KEY_", "_API_KEY_"}) {
    if (absl::StrContains(words, word)) return true;
  }
  return false;
}

std::vector<std::string> credential_warnings(const std::vector<std::string>& keys, const std::vector<v1::ProviderProfile>& profiles) {
  std::vector<std::string> out;
  for (const auto& key : keys) {
    const auto* profile = profile_with(key, profiles);
    if (profile == nullptr && !looks_like_credential(key)) continue;
    const auto type = profile == nullptr ? std::string{"generic"} : profile->id();
    const auto why =
        profile == nullptr ? std::string{"looks like a credential"} : absl::StrCat("is a credential of the profile '", type, "'");
    out.push_back(absl::StrCat("--env ", key, " ", why, ": every program in the sandbox can read its value. To keep it outside: ",
                               "openshell provider create --name ", type, " --type ", type, " --credential ", key, ", and --provider ",
                               type, " instead of --env"));
  }
  return out;
}

void warn_of_credentials(Context& context, GatewayClient& client, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  std::vector<v1::ProviderProfile> profiles;
  auto request = context.scoped<v1::ListProviderProfilesRequest>();
  do {
    auto page = client.list_provider_profiles(request);
    if (!page.ok()) break;
    profiles.insert(profiles.end(), page->profiles().begin(), page->profiles().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  for (const auto& line : credential_warnings(keys, profiles)) note(absl::StrCat(mark(kWarning), " ", line));
}

}  // namespace openshell::cli
