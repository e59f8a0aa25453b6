// What a proposal would make of the policy that is in force, and the token that stands for exactly that. Pure.
#pragma once

#include <string>

#include "actors/gateway/effective_config.hpp"
#include "policy/candidate.hpp"

namespace openshell::gateway {

/// What stands where a prover's verdict would: the proposal can not be applied, so there is nothing to prove.
inline constexpr const char* kNotEvaluated = "not evaluated";
inline constexpr const char* kUnavailable = "validation unavailable";

struct Evaluation {
  policy::Candidate candidate;          ///< empty where `error` says why
  std::string error;                    ///< one sentence; such a proposal can not be approved
  std::string verdict = kNotEvaluated;  ///< of the prover: what the proposal newly makes possible with credentials
  std::string token;                    ///< differs as soon as the rule, the policy in force, the outcome or the credentials do
  std::string current_hash, candidate_hash;
  openshell::sandbox::v1::SandboxPolicy current, effective;  ///< without and with the proposal
};

/// `base`: the policy that an approval would change. `current`: the configuration that is in force.
Evaluation evaluate(const ConfigInputs& in, const openshell::sandbox::v1::SandboxPolicy& base,
                    const openshell::sandbox::v1::GetSandboxConfigResponse& current, const records::DraftChunkRecord& draft);

}  // namespace openshell::gateway
