#include "actors/gateway/draft_evaluation.hpp"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <openssl/evp.h>

#include <algorithm>
#include <vector>

#include "observability/text.hpp"
#include "openshell.pb.h"
#include "policy/hash.hpp"
#include "policy/risk.hpp"
#include "providers/profile.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

namespace sb = openshell::sandbox::v1;

constexpr char kNul = '\0';

std::string sha256_hex(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

/// Which credentials could be used through the policy: names and types, never a value.
std::string credential_fingerprints(const std::vector<providers::Provider>& attached) {
  std::vector<std::string> prints;
  for (const auto& provider : attached) {
    std::string print = provider.name + kNul + provider.type + kNul + provider.profile_workspace + kNul;
    for (const auto& [key, credential] : provider.credentials) print += key + kNul;
    prints.push_back(std::move(print));
  }
  std::sort(prints.begin(), prints.end());
  std::string out;
  for (const auto& print : prints) out += print + kNul;
  return out;
}

sb::GetSandboxConfigResponse compose_with(const ConfigInputs& in, const sb::SandboxPolicy& base) {
  PolicyHistory only;
  only.append("", base, policy::policy_hash(base).str(), {}, 0, true);
  return compose_config(with_policies(in, only));
}

std::string message_of(const absl::Status& status) { return std::string{to_std(status.message())}; }

absl::Status check(const ConfigInputs& in, const sb::GetSandboxConfigResponse& composed) {
  if (auto status = policy::check_candidate(composed.policy()); !status.ok()) return status;
  const auto invalid = [](const std::string& why) { return absl::FailedPreconditionError(cat("candidate invalid: ", why)); };
  if (auto status = check_bindings(composed.policy(), in.attached, false); !status.ok()) return invalid(message_of(status));
  if (auto status = check_composed_uninspected(composed.policy(), in.attached); !status.ok()) return invalid(message_of(status));
  if (!composed.configuration_admitted()) return invalid(composed.configuration_error());
  return absl::OkStatus();
}

policy::CredentialPlaces credential_places(const ConfigInputs& in, const Evaluation& evaluation) {
  policy::CredentialPlaces out;
  for (const auto& provider : in.attached) {
    out.unbound = out.unbound || provider.unbound();
    if (!provider.profile) continue;
    for (const auto& endpoint : providers::profile_endpoints(provider)) out.hosts.push_back(endpoint.host);
  }
  for (const auto* policy : {&evaluation.current, &evaluation.effective}) {
    for (const auto& [provider, places] : policy_bindings(*policy)) {
      for (const auto& place : places) out.hosts.push_back(place.host);
    }
  }
  return out;
}

/// The verdict of before holds as long as the token does.
void prove(const ConfigInputs& in, const openshell::v1::PolicyChunk& stored, Evaluation& evaluation) {
  const auto& before = stored.validation_result();
  if (stored.review_token() == evaluation.token && before != kNotEvaluated && before != kUnavailable && !before.empty()) {
    evaluation.verdict = before;
    return;
  }
  const auto findings = policy::new_findings(evaluation.current, evaluation.effective, credential_places(in, evaluation));
  evaluation.verdict = findings.ok() ? policy::describe_findings(*findings) : kUnavailable;
  if (!findings.ok()) evaluation.error = "prover validation unavailable; proposal cannot be reviewed";
}

}  // namespace

Evaluation evaluate(const ConfigInputs& in, const sb::SandboxPolicy& base, const sb::GetSandboxConfigResponse& current,
                    const records::DraftChunkRecord& draft) {
  Evaluation out;
  const auto& chunk = draft.chunk();
  out.current = current.policy();
  out.current_hash = current.policy_hash();
  const auto rule = policy::rule_bytes(chunk.rule_name(), chunk.proposed_rule());
  auto made = policy::make_candidate(base, current.policy(), chunk.rule_name(), chunk.proposed_rule(),
                                     draft.mode() == "mechanistic" && !draft.edited());
  if (made.ok()) {
    const auto composed = compose_with(in, made->base);
    if (auto status = check(in, composed); status.ok()) {
      out.candidate = *std::move(made);
      out.effective = composed.policy();
      out.candidate_hash = composed.policy_hash();
    } else {
      out.error = message_of(status);
    }
  } else {
    out.error = message_of(made.status());
  }
  constexpr absl::string_view domain = "openshell-proposal-evaluator-v2";
  const absl::string_view nul{&kNul, 1};
  out.token = out.error.empty() ? sha256_hex(absl::StrCat(domain, nul, chunk.rule_name(), rule, out.current_hash, out.candidate_hash,
                                                          credential_fingerprints(in.attached)))
                                : sha256_hex(absl::StrCat(domain, "-failed", nul, chunk.rule_name(), rule, out.current_hash, out.error));
  if (out.error.empty()) prove(in, chunk, out);
  return out;
}

}  // namespace openshell::gateway
