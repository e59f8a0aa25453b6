// Why a policy decides as it does: the decision, which rules miss by one field, and the smallest change that would allow it. Runs the very
// matcher of the supervisor. Pure, any thread.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policy/matcher.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {

/// Rules that miss by one field which an explanation names at most.
inline constexpr std::size_t kMaxNearMisses = 5;

/// What is asked: a connection, or with `request` one HTTP request on it.
struct Question {
  struct Http {
    std::string method;
    std::string path;  ///< canonical, no query
    std::vector<QueryParameter> query;
  };
  std::string host;  ///< lower case, no final dot, no brackets
  std::uint16_t port = 0;
  std::string binary;
  std::vector<std::string> ancestors;  ///< nearest first
  std::optional<Http> request;
  bool relaxed = false;  ///< programs do not matter
};

enum class Decision : std::uint8_t { allow, audit, deny };
[[nodiscard]] std::string_view to_string(Decision decision);

struct Judgement {
  Decision decision = Decision::deny;
  std::string rule;                       ///< key of the rule that holds the answer; empty where no rule admits the connection
  std::optional<std::uint32_t> endpoint;  ///< its index
  std::string handling;                   ///< protocol and enforcement of that endpoint, for people
  std::string reason;                     ///< empty when allowed
};

struct NearMiss {
  std::string rule, field;
};

struct Explanation {
  Judgement judgement;
  std::vector<NearMiss> near;   ///< the field that is checked last first, then by key
  std::string smallest_change;  ///< empty: allowed already, or nothing could allow it
};

[[nodiscard]] Judgement judge(const Matcher& matcher, const Question& question);

/// INVALID_ARGUMENT where the policy does not compile. `policy` is canonical and admitted.
absl::StatusOr<Explanation> explain(const pb::SandboxPolicy& policy, const Question& question);

}  // namespace openshell::policy
