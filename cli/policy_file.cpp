#include "cli/policy_file.hpp"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/terminal.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::cli {

absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> load_policy_file(const std::string& path) {
  std::error_code error;
  if (const auto size = std::filesystem::file_size(path, error); !error && size > policy::ParseLimits{}.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a policy has at most ", policy::ParseLimits{}.bytes, " bytes, this file has ", size));
  }
  std::ifstream file{path, std::ios::binary};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read policy file ", path));
  std::ostringstream text;
  text << file.rdbuf();
  auto result = policy::load_policy(text.str(), path);
  if (!result.ok()) {
    const auto faults = result.diagnostics.render();
    return absl::InvalidArgumentError(faults.empty() ? absl::StrCat("No policy loaded from ", path)
                                                     : absl::StrCat("the policy is not valid:\n", absl::StripSuffix(faults, "\n")));
  }
  for (const auto& warning : result.diagnostics.messages(policy::Severity::warning)) note(absl::StrCat("Warning: ", warning));
  return std::move(result.policy);
}

}  // namespace openshell::cli
