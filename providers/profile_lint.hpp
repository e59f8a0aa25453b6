// What is wrong with a provider profile. All faults at once, in a fixed order; the texts are part of the interface. Pure.
#pragma once

#include <string>
#include <vector>

#include "providers/profile.hpp"

namespace openshell::providers {

constexpr std::size_t kMaxProfileFiles = 64;
constexpr std::size_t kMaxProfileFileBytes = 65'536;
constexpr std::size_t kMaxProfileFilesBytes = 262'144;  ///< all files of one profile

/// A profile and where its text came from, for people.
struct ProfileSource {
  std::string source;
  const ProfileMessage* profile = nullptr;
};

using ProfileDiagnostic = openshell::v1::ProviderProfileDiagnostic;

/// Faults of the set, all of severity `error`. Empty: every profile may be stored.
std::vector<ProfileDiagnostic> lint(const std::vector<ProfileSource>& profiles);

}  // namespace openshell::providers
