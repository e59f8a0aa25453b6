#include "cli/commands/policy_wait.hpp"

#include <absl/strings/str_cat.h>

#include <chrono>
#include <thread>

#include "cli/document.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kExitNotInTime = 124;
// The first second is asked often, since a nudged supervisor loads within it; then once a second.
constexpr std::chrono::milliseconds kEagerPoll{50}, kSteadyPoll{1'000};

absl::StatusOr<v1::GetSandboxPolicyStatusResponse> policy_status(Context& context, GatewayClient& client, const std::string& sandbox,
                                                                 std::uint32_t version) {
  auto request = context.scoped<v1::GetSandboxPolicyStatusRequest>();
  request.set_sandbox(sandbox);
  request.set_version(version);
  return client.get_policy_status(request);
}

}  // namespace

absl::StatusOr<int> await_loaded(Context& context, GatewayClient& client, const std::string& sandbox, std::uint32_t version, int seconds) {
  const auto start = Clock::now();
  while (true) {
    if (auto answer = policy_status(context, client, sandbox, version); answer.ok()) {
      switch (answer->revision().status()) {
        case v1::POLICY_STATUS_LOADED:
          note(absl::StrCat(mark(kDone), " Policy version ", version, " loaded (active version: ", answer->active_version(), ")"));
          return 0;
        case v1::POLICY_STATUS_FAILED:
          return absl::AbortedError(absl::StrCat("Policy version ", version, " failed to load: ", answer->revision().load_error()));
        case v1::POLICY_STATUS_SUPERSEDED:
          note(absl::StrCat("\u26A0 Policy version ", version, " was superseded (active version: ", answer->active_version(), ")"));
          return 0;
        default:
          break;
      }
    }
    const auto waited = Clock::now() - start;
    if (waited >= std::chrono::seconds{seconds}) {
      note(absl::StrCat(mark(kFailed), " Timeout waiting for policy version ", version, " to load"));
      return kExitNotInTime;
    }
    std::this_thread::sleep_for(waited < std::chrono::seconds{1} ? kEagerPoll : kSteadyPoll);
  }
}

absl::StatusOr<int> submit_policy(Context& context, GatewayClient& client, const std::string& sandbox, v1::UpdateConfigRequest request,
                                  std::optional<int> wait_seconds) {
  std::uint32_t before = 0;
  if (auto current = policy_status(context, client, sandbox, 0); current.ok()) before = current->revision().version();
  request.set_sandbox(sandbox);
  auto answer = client.update_config(request);
  if (!answer.ok()) return answer.status();
  if (answer->version() == before) {
    note(absl::StrCat("Policy unchanged (version ", before, ", hash: ", short_hash(answer->policy_hash()), ")"));
    return 0;
  }
  note(absl::StrCat(mark(kDone), " Policy version ", answer->version(), " submitted (hash: ", short_hash(answer->policy_hash()), ")"));
  return wait_seconds ? await_loaded(context, client, sandbox, answer->version(), *wait_seconds) : absl::StatusOr<int>{0};
}

}  // namespace openshell::cli
