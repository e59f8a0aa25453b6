// What the commands share that only ask a policy: `policy explain`, `test`, `replay`, `diff`. They change nothing, neither here nor at the
// gateway, and answer by their exit code: 0 and 1 are answers, 2 says that there is none.
#pragma once

#include <absl/status/statusor.h>

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "cli/commands/commands.hpp"
#include "cli/policy_sources.hpp"
#include "policy/judgement.hpp"

namespace openshell::cli {

inline constexpr int kYes = 0;
inline constexpr int kNo = 1;
inline constexpr int kInvalid = 2;

/// Prints an error and makes 2 of it.
absl::StatusOr<int> answer_or_invalid(absl::StatusOr<int> result);

/// -o, --output text|json.
void add_text_or_json(CLI::App& command, bool& json_output);

/// The policy that is asked: a file, which needs no gateway, or the effective one of a sandbox.
absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> chosen_policy(Context& context, const std::string& sandbox,
                                                                          const std::string& file);

/// A text that may be absent, as JSON.
boost::json::value text_or_null(const std::string& text);
boost::json::string to_json_string(std::string_view text);

// Commands in files of their own.
void add_policy_test(CLI::App& policy, Action& chosen);
void add_policy_replay(CLI::App& policy, Action& chosen);

}  // namespace openshell::cli
