#include "cli/policy_file.hpp"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "cli/terminal.hpp"
#include "cli/text_source.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::cli {

absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> load_policy_file(const std::string& path) {
  const auto text = read_text_source(path, policy::ParseLimits{}.bytes, "policy file");
  if (!text.ok()) return text.status();
  auto result = policy::load_policy(*text, source_name(path));
  if (!result.ok()) {
    const auto faults = result.diagnostics.render();
    return absl::InvalidArgumentError(faults.empty() ? absl::StrCat("No policy loaded from ", path)
                                                     : absl::StrCat("the policy is not valid:\n", absl::StripSuffix(faults, "\n")));
  }
  for (const auto& warning : result.diagnostics.messages(policy::Severity::warning)) note(absl::StrCat("Warning: ", warning));
  return std::move(result.policy);
}

}  // namespace openshell::cli
