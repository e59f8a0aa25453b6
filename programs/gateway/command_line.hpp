// The gateway's flags and the environment variables that stand for them. A flag wins over its variable; presence decides, not the value.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "programs/gateway/places.hpp"

namespace openshell::gateway {

enum class Command { kServe, kGenerateCerts, kPreflight, kActors, kOperatorUrl, kVersion, kHelp };

class CommandLine {
 public:
  /// INVALID_ARGUMENT: a mistake in the flags, exit code 2.
  static absl::StatusOr<CommandLine> parse(const std::vector<std::string>& arguments, const Environment& environment);

  [[nodiscard]] Command command() const { return command_; }
  /// By the flag's name without dashes: "bind-address". From the flag, else from its variable.
  [[nodiscard]] std::optional<std::string> find(std::string_view flag) const;
  [[nodiscard]] bool has(std::string_view flag) const { return find(flag).has_value(); }
  /// A flag that may be given several times, or as a comma list.
  [[nodiscard]] std::vector<std::string> list(std::string_view flag) const;
  /// What follows `--` of `config preflight`.
  [[nodiscard]] const std::vector<std::string>& rest() const { return rest_; }

 private:
  Command command_ = Command::kServe;
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> rest_;
};

/// What `--help` prints.
std::string help_text();

}  // namespace openshell::gateway
