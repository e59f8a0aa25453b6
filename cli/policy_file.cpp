#include "cli/policy_file.hpp"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include <filesystem>
#include <fstream>

#include "cli/terminal.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::cli {

absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> load_policy_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(absl::StrCat(path, " is a directory, not a policy file"));
  std::ifstream file{path, std::ios::binary};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read policy file ", path));
  const auto limit = policy::ParseLimits{}.bytes;
  std::string text(limit + 1, '\0');  // one byte more than allowed is enough to know, also of a device that never ends
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > limit)
    return absl::InvalidArgumentError(absl::StrCat(path, ": a policy has at most ", limit, " bytes, this file has more"));
  auto result = policy::load_policy(text, path);
  if (!result.ok()) {
    const auto faults = result.diagnostics.render();
    return absl::InvalidArgumentError(faults.empty() ? absl::StrCat("No policy loaded from ", path)
                                                     : absl::StrCat("the policy is not valid:\n", absl::StripSuffix(faults, "\n")));
  }
  for (const auto& warning : result.diagnostics.messages(policy::Severity::warning)) note(absl::StrCat("Warning: ", warning));
  return std::move(result.policy);
}

}  // namespace openshell::cli
