#include "cli/provider_readiness.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include <boost/json.hpp>
#include <thread>

#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{200};

/// `PROVIDER_READINESS_STATE_READY` -> `ready`.
std::string word(const std::string& name, std::size_t prefix) {
  if (name.size() <= prefix) return "unknown";
  auto text = absl::AsciiStrToLower(name.substr(prefix));
  return text == "unspecified" ? "unknown" : text;
}
std::string state_word(v1::ProviderReadinessState state) {
  return word(v1::ProviderReadinessState_Name(state), sizeof("PROVIDER_READINESS_STATE_") - 1);
}
std::string reason_word(v1::ProviderReadinessReason reason) {
  if (reason == v1::PROVIDER_READINESS_REASON_UNSPECIFIED) return "unspecified";
  return word(v1::ProviderReadinessReason_Name(reason), sizeof("PROVIDER_READINESS_REASON_") - 1);
}
std::string kind_word(v1::ProviderMutationKind kind) {
  return word(v1::ProviderMutationKind_Name(kind), sizeof("PROVIDER_MUTATION_KIND_") - 1);
}

const char* outcome_word(WaitOutcome outcome) {
  switch (outcome) {
    case WaitOutcome::complete:
      return "complete";
    case WaitOutcome::timed_out:
      return "timed_out";
    case WaitOutcome::terminal:
      return "terminal";
    case WaitOutcome::observation_error:
      return "observation_error";
    default:
      return "not_requested";
  }
}

json::object document_of(const v1::ProviderMutationReceipt& receipt) {
  const auto& desired = receipt.desired();
  return {{"receipt_id", receipt.receipt_id()},
          {"mutation_id", receipt.mutation_id()},
          {"provider", receipt.provider()},
          {"workspace", receipt.workspace()},
          {"kind", kind_word(receipt.kind())},
          {"desired", json::object{{"sandbox_id", desired.sandbox_id()},
                                   {"sandbox", desired.sandbox()},
                                   {"attachment_epoch", desired.attachment_epoch()},
                                   {"provider_id", desired.provider_id()},
                                   {"provider_resource_version", std::to_string(desired.provider_resource_version())},
                                   {"provider_env_revision", std::to_string(desired.provider_env_revision())},
                                   {"config_revision", std::to_string(desired.config_revision())},
                                   {"policy_hash", desired.policy_hash()}}},
          {"persisted_time", rfc3339(receipt.persisted_time())}};
}

json::value document_of(const v1::ProviderReadinessStatus& status) {
  if (!status.has_observed()) return nullptr;
  const auto& seen = status.observed();
  return json::object{{"attachment_epoch", seen.attachment_epoch()},
                      {"provider_env_revision", std::to_string(seen.provider_env_revision())},
                      {"config_revision", std::to_string(seen.config_revision())},
                      {"policy_hash", seen.policy_hash()},
                      {"credentials_installed", seen.credentials_installed()},
                      {"policy_active", seen.policy_active()},
                      {"launch_environment_installed", seen.launch_environment_installed()},
                      {"process_instance_id", seen.process_instance_id()}};
}

void print_target(const ReadinessTarget& target) {
  const auto& seen = target.status.observed();
  const auto yes = [](bool is) { return is ? "yes" : "no"; };
  print(absl::StrCat(target.receipt.desired().sandbox(), " / ", target.receipt.provider(), ": ", state_word(target.status.state()), " (",
                     reason_word(target.status.reason()), ")"));
  print("  Receipt: " + target.receipt.receipt_id());
  print("  Persisted: " + show_time(target.receipt.persisted_time()));
  print(absl::StrCat("  Installed: credentials=", yes(seen.credentials_installed()), ", policy=", yes(seen.policy_active()),
                     ", future process environment=", yes(seen.launch_environment_installed())));
  print(absl::StrCat("  Wait: ", outcome_word(target.outcome)));
}

/// One look. True when the wait for this target is over.
bool look(GatewayClient& client, ReadinessTarget& target) {
  v1::GetSandboxProviderStatusRequest request;
  request.mutable_workspace_scope()->set_workspace(target.receipt.workspace());
  request.set_sandbox(target.receipt.desired().sandbox());
  request.set_provider(target.receipt.provider());
  request.set_receipt_id(target.receipt.receipt_id());
  auto answer = client.get_provider_status(request);
  if (!answer.ok()) {
    if (absl::IsUnavailable(answer.status())) return false;
    target.outcome = WaitOutcome::observation_error;
    return true;
  }
  target.status = answer->status();
  const bool detached = target.receipt.kind() == v1::PROVIDER_MUTATION_KIND_DETACH;
  switch (target.status.state()) {
    case v1::PROVIDER_READINESS_STATE_READY:
    case v1::PROVIDER_READINESS_STATE_REVOKED: {
      const bool wanted = (target.status.state() == v1::PROVIDER_READINESS_STATE_REVOKED) == detached;
      target.outcome = wanted ? WaitOutcome::complete : WaitOutcome::terminal;
      return true;
    }
    case v1::PROVIDER_READINESS_STATE_FAILED:
    case v1::PROVIDER_READINESS_STATE_SUPERSEDED:
    case v1::PROVIDER_READINESS_STATE_WITHHELD:
      target.outcome = WaitOutcome::terminal;
      return true;
    default:
      return false;
  }
}

void wait_for(GatewayClient& client, std::vector<ReadinessTarget>& targets, std::chrono::seconds limit) {
  const auto until = Clock::now() + limit;
  std::vector<ReadinessTarget*> open;
  for (auto& target : targets) open.push_back(&target);
  while (!open.empty()) {
    std::erase_if(open, [&](auto* target) { return look(client, *target); });
    if (open.empty()) return;
    if (Clock::now() + kPollInterval >= until) break;
    std::this_thread::sleep_for(kPollInterval);
  }
  for (auto* target : open) target->outcome = WaitOutcome::timed_out;
}

}  // namespace

ReadinessTarget target_of(const v1::ProviderMutationReceipt& receipt) {
  ReadinessTarget out;
  out.receipt = receipt;
  out.status.set_state(v1::PROVIDER_READINESS_STATE_PERSISTED);
  return out;
}

json::object readiness_document(const std::string& mutation_id, const std::vector<ReadinessTarget>& targets) {
  json::array items;
  for (const auto& target : targets) {
    items.push_back(json::object{{"receipt", document_of(target.receipt)},
                                 {"state", state_word(target.status.state())},
                                 {"reason", reason_word(target.status.reason())},
                                 {"observed", document_of(target.status)},
                                 {"network_instance_id", target.status.network_instance_id()},
                                 {"observed_time", rfc3339(target.status.observed_time())},
                                 {"evaluated_time", rfc3339(target.status.evaluated_time())},
                                 {"wait_outcome", outcome_word(target.outcome)}});
  }
  return {{"mutation_id", mutation_id}, {"targets", std::move(items)}};
}

absl::StatusOr<int> report_readiness(GatewayClient& client, const std::string& mutation_id, std::vector<ReadinessTarget> targets,
                                     const ReadinessOptions& options) {
  if (options.wait) wait_for(client, targets, std::chrono::seconds{options.timeout_seconds});
  if (options.format != Format::table) {
    print_document(readiness_document(mutation_id, targets), options.format);
  } else if (targets.empty()) {
    print(absl::StrCat("Provider mutation ", mutation_id, " persisted; no attached sandboxes were selected."));
  } else {
    for (const auto& target : targets) print_target(target);
  }
  for (const auto& target : targets) {
    if (options.wait && target.outcome != WaitOutcome::complete)
      return absl::FailedPreconditionError(
          "provider readiness wait did not complete for every selected sandbox; inspect the reported outcomes");
  }
  return 0;
}

}  // namespace openshell::cli
