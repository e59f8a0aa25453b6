#include "actors/gateway/update_config.hpp"

#include <absl/strings/ascii.h>

#include "actors/gateway/create_request.hpp"
#include "api/errors.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "policy/merge.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

namespace pb = openshell::v1;
namespace sb = openshell::sandbox::v1;
using api::invalid_field;

absl::Status check_global(const pb::UpdateConfigRequest& request) {
  if (!request.annotations().empty()) return invalid_field("annotations", "annotations are only supported for sandbox-scoped updates");
  if (request.merge_operations_size() > 0)
    return invalid_field("merge_operations", "merge_operations are not supported for global policy updates");
  if (request.has_policy() && request.delete_setting())
    return invalid_field("delete_setting", "delete_setting cannot be combined with policy payload");
  if (request.setting_key() == "policy" && !request.delete_setting()) {
    return invalid_field("setting_key", "reserved key 'policy' must be set via the policy field");
  }
  return absl::OkStatus();
}

absl::Status check_supervisor(const pb::UpdateConfigRequest& request) {
  if (request.global()) return absl::PermissionDeniedError("sandbox callers cannot mutate global config");
  if (request.delete_setting()) return absl::PermissionDeniedError("sandbox callers cannot delete settings");
  if (!request.has_policy()) return absl::PermissionDeniedError("sandbox callers may only perform sandbox policy sync");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UpdateKind> classify_update(const pb::UpdateConfigRequest& request, const Caller& caller) {
  const bool setting = !absl::StripAsciiWhitespace(request.setting_key()).empty();
  const int payloads = (request.has_policy() ? 1 : 0) + (setting ? 1 : 0) + (request.merge_operations_size() > 0 ? 1 : 0);
  if (caller.kind == Caller::Kind::supervisor) {
    if (auto status = check_supervisor(request); !status.ok()) return status;
  }
  if (payloads > 1) return absl::InvalidArgumentError("policy, setting_key, and merge_operations are mutually exclusive");
  if (payloads == 0) return absl::InvalidArgumentError("one of policy, setting_key, or merge_operations must be provided");
  if (request.global()) {
    if (auto status = check_global(request); !status.ok()) return status;
  } else if (request.setting_key() == "policy") {
    return invalid_field("setting_key", "reserved key 'policy' must be set via policy commands");
  }
  return request.has_policy() ? UpdateKind::policy : setting ? UpdateKind::setting : UpdateKind::merge;
}

absl::StatusOr<sb::SandboxPolicy> merge_policy(const sb::SandboxPolicy& base, const pb::UpdateConfigRequest& request) {
  auto merged = policy::merge(base, request.merge_operations());
  if (!merged.ok()) {
    const auto& status = merged.status();
    if (status.code() != absl::StatusCode::kInvalidArgument) return status;
    return invalid_field("merge_operations", std::string{to_std(status.message())});
  }
  if (merged->policy.ByteSizeLong() > kMaxPolicyBytes) {
    return invalid_field("policy",
                         cat("policy serialized size exceeds maximum (", merged->policy.ByteSizeLong(), " > ", kMaxPolicyBytes, ")"));
  }
  if (auto status = policy::admit(merged->policy, policy::Provenance::keep); !status.ok()) return status;
  return std::move(merged->policy);
}

}  // namespace openshell::gateway
