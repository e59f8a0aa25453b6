#include "policy/baseline.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "policy/normalize.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

constexpr std::array<std::string_view, 7> kReadOnly{"/usr", "/lib", "/etc", "/app", "/var/log", "/proc", "/dev/urandom"};
constexpr std::array<std::string_view, 2> kReadWrite{"/tmp", "/dev/null"};

bool lists(const pb::FilesystemPolicy& section, std::string_view path) {
  const auto same = [path](const std::string& listed) { return normalize_path(listed) == path; };
  return std::any_of(section.read_only().begin(), section.read_only().end(), same) ||
         std::any_of(section.read_write().begin(), section.read_write().end(), same);
}

pb::FilesystemPolicy& filesystem_of(pb::SandboxPolicy& policy) {
  if (!policy.has_filesystem()) policy.mutable_filesystem()->set_include_workdir(true);
  return *policy.mutable_filesystem();
}

}  // namespace

pb::SandboxPolicy restrictive_default() {
  pb::SandboxPolicy policy;
  policy.set_version(1);
  auto* section = policy.mutable_filesystem();
  section->set_include_workdir(true);
  for (const auto* path : {"/bin", "/usr", "/lib", "/proc", "/dev/urandom", "/etc", "/var/log"}) section->add_read_only(path);
  for (const auto* path : {"/tmp", "/dev/null"}) section->add_read_write(path);
  policy.mutable_landlock()->set_compatibility("best_effort");
  return policy;
}

bool is_baseline_path(std::string_view path) {
  const std::string plain = normalize_path(path);
  return std::find(kReadOnly.begin(), kReadOnly.end(), plain) != kReadOnly.end() ||
         std::find(kReadWrite.begin(), kReadWrite.end(), plain) != kReadWrite.end() || plain == kRuntimeCaPath;
}

bool enrich_baseline(pb::SandboxPolicy& policy) {
  if (policy.network_policies().empty()) return false;
  bool added = !policy.has_filesystem();
  auto& section = filesystem_of(policy);
  for (const auto path : kReadOnly) {
    if (lists(section, path)) continue;
    section.add_read_only(std::string{path});
    added = true;
  }
  for (const auto path : kReadWrite) {
    if (lists(section, path)) continue;
    section.add_read_write(std::string{path});
    added = true;
  }
  return added;
}

void add_runtime_paths(pb::SandboxPolicy& policy) {
  if (policy.network_policies().empty()) return;
  auto& section = filesystem_of(policy);
  if (!lists(section, kRuntimeCaPath)) section.add_read_only(std::string{kRuntimeCaPath});
}

bool strip_provider_rules(pb::SandboxPolicy& policy) {
  std::vector<std::string> keys;
  for (const auto& [key, rule] : policy.network_policies()) {
    if (key.starts_with(kProviderRulePrefix)) keys.push_back(key);
  }
  for (const auto& key : keys) policy.mutable_network_policies()->erase(key);
  return !keys.empty();
}

void keep_proposed_marks(const pb::SandboxPolicy& stored, pb::SandboxPolicy& policy) {
  for (auto& [key, rule] : *policy.mutable_network_policies()) {
    const auto known = stored.network_policies().find(key);
    if (known == stored.network_policies().end()) continue;
    for (auto& endpoint : *rule.mutable_endpoints()) {
      for (const auto& own : known->second.endpoints()) {
        const bool same = own.host() == endpoint.host() && own.path() == endpoint.path() &&
                          std::equal(own.ports().begin(), own.ports().end(), endpoint.ports().begin(), endpoint.ports().end());
        if (same && own.advisor_proposed()) endpoint.set_advisor_proposed(true);
      }
    }
  }
}

}  // namespace openshell::policy
