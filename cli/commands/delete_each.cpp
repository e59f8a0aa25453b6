#include "cli/commands/delete_each.hpp"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/gateway_client.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {

absl::StatusOr<int> delete_each(const std::vector<std::string>& names, std::string_view noun, std::string_view nouns,
                                const std::function<absl::Status(const std::string& name)>& one) {
  const absl::string_view single{noun.data(), noun.size()}, several{nouns.data(), nouns.size()};
  std::vector<std::string> failed;
  for (const auto& name : names) {
    if (auto status = one(name); !status.ok()) {
      note(absl::StrCat(mark(kWarning), " Failed to delete ", single, " ", name, ": ", describe(status)));
      failed.push_back(name);
    }
  }
  if (failed.empty()) return 0;
  return absl::InternalError(
      absl::StrCat("failed to delete ", failed.size(), " ", failed.size() == 1 ? single : several, ": ", absl::StrJoin(failed, ", ")));
}

}  // namespace openshell::cli
