// A provider profile as a file: YAML or JSON to the message and back. Strict: an unknown key, a wrong type or an unknown word is an error
// with its line and the nearest known key. What a profile may say beyond its shape: profile_lint.hpp. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "openshell.pb.h"

namespace openshell::providers {

constexpr std::size_t kMaxProfileTextBytes = 1U << 20;  ///< one file

/// INVALID_ARGUMENT with every fault, one line each: `FILE:LINE:COL: text`. `file` names the text in messages.
absl::StatusOr<openshell::v1::ProviderProfile> parse_profile(std::string_view text, const std::string& file);

/// In file form: what holds its default is left out. `resource_version`, `source` and `scope` appear where they are set. parse_profile() of
/// its text gives the same profile back.
absl::StatusOr<boost::json::object> profile_document(const openshell::v1::ProviderProfile& profile);

/// `source_control`, `inference`; words of files and tables.
std::string category_word(openshell::v1::ProviderProfileCategory category);

}  // namespace openshell::providers
