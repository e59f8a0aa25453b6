#include "cli/policy_sources.hpp"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "cli/policy_file.hpp"
#include "openshell.pb.h"
#include "policy/validate.hpp"

namespace openshell::cli {
namespace {

using Policy = std::unique_ptr<sandbox::v1::SandboxPolicy>;

absl::StatusOr<Policy> canonical(const sandbox::v1::SandboxPolicy& stored) {
  auto policy = std::make_unique<sandbox::v1::SandboxPolicy>(stored);
  if (auto status = policy::admit(*policy, policy::Provenance::keep); !status.ok()) return status;
  return policy;
}

absl::StatusOr<Policy> stored_revision(Context& context, const std::string& sandbox, const std::string& word) {
  std::uint32_t revision = 0;
  if (!absl::SimpleAtoi(word, &revision) || revision == 0)
    return absl::InvalidArgumentError(absl::StrCat("'", word, "' is not the number of a revision, in '@", sandbox, ":", word, "'"));
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::GetSandboxPolicyStatusRequest>();
  request.set_sandbox(sandbox);
  request.set_version(revision);
  auto answer = (*client)->get_policy_status(request);
  if (!answer.ok()) return answer.status();
  if (!answer->revision().has_policy())
    return absl::NotFoundError(absl::StrCat("revision ", revision, " of sandbox '", sandbox, "' is not stored any more"));
  return canonical(answer->revision().policy());
}

}  // namespace

absl::StatusOr<Policy> effective_policy(Context& context, const std::string& sandbox) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<sandbox::v1::GetSandboxConfigRequest>();
  request.set_name(sandbox);
  auto config = (*client)->get_sandbox_config(request);
  if (!config.ok()) return config.status();
  if (!config->has_policy()) return absl::NotFoundError(absl::StrCat("no active policy configured for sandbox '", sandbox, "'"));
  return canonical(config->policy());
}

absl::StatusOr<Policy> policy_from(Context& context, const std::string& word) {
  if (!word.starts_with('@')) return load_policy_file(word);
  const auto colon = word.find(':');
  const auto name = word.substr(1, colon == std::string::npos ? colon : colon - 1);
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat("no sandbox is named in '", word, "'"));
  return colon == std::string::npos ? effective_policy(context, name) : stored_revision(context, name, word.substr(colon + 1));
}

}  // namespace openshell::cli
