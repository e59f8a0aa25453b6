// The revisions of one policy and what became of each. Pure. [policy revisions]
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/gateway/records.hpp"
#include "actors/gateway/times.hpp"

namespace openshell::gateway {

class PolicyHistory {
 public:
  PolicyHistory() = default;
  explicit PolicyHistory(PolicyRows rows) : rows_{std::move(rows)} {}

  using Revision = Stored<records::PolicyRevisionRecord>;

  [[nodiscard]] const Revision* newest() const { return rows_.empty() ? nullptr : &rows_.rbegin()->second; }
  /// 0: the newest. Null where there is none.
  [[nodiscard]] const Revision* find(std::uint32_t version) const;
  [[nodiscard]] const PolicyRows& rows() const { return rows_; }

  /// Adds the next version as pending (or loaded at once, for a global policy or a backfill) and supersedes every older pending or loaded
  /// one. Returns the versions whose rows changed, the new one last.
  std::vector<std::uint32_t> append(std::string row_id, const openshell::sandbox::v1::SandboxPolicy& policy, std::string hash,
                                    const std::map<std::string, std::string>& provenance, Millis now, bool loaded = false);

  /// What a supervisor says about one version. Repeats, late reports and replays after a restart change nothing.
  struct Report {
    bool changed = false;                 ///< rows or the current version
    std::uint32_t current = 0;            ///< the version that runs, never lower than before
    std::vector<std::uint32_t> versions;  ///< rows that changed
  };
  /// NOT_FOUND `policy revision not found`.
  absl::StatusOr<Report> report(std::uint32_t version, bool loaded, const std::string& load_error, std::uint32_t current, Millis now);

  /// All become superseded (the global policy was deleted). Returns those that changed.
  std::vector<std::uint32_t> retire_all();

  /// The public form; with the policy only where `with_policy`.
  static openshell::v1::SandboxPolicyRevision to_public(const records::PolicyRevisionRecord& revision, bool with_policy);

 private:
  void supersede_below(std::uint32_t version, std::vector<std::uint32_t>& changed);
  PolicyRows rows_;
};

}  // namespace openshell::gateway
