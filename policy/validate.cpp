#include "policy/validate.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "policy/glob.hpp"
#include "policy/text.hpp"
#include "policy/validate_parts.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

// Endpoints of one host beyond which nobody is told about prefixes that none of them covers: all would be compared with all.
constexpr std::size_t kMaxPrefixNeighbours = 64;

bool valid_identity(std::string_view value) {
  if (value == "sandbox") return true;
  if (value.empty() || value.find_first_not_of("0123456789") != std::string_view::npos) return false;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc{} && end == value.data() + value.size() && number >= 1 && number <= 4'294'967'294;
}

void check_process(const pb::ProcessPolicy& process, Diagnostics& out) {
  const auto check = [&](const std::string& value, std::string_view field) {
    if (value.empty() || valid_identity(value)) return;
    out.error(cat("process.", field),
              cat(field, " must be 'sandbox' or a numeric UID/GID in range [1, 4294967294], got '", shorten(value, 64), "'"), "",
              "invalid identity");
  };
  check(process.run_as_user(), "run_as_user");
  check(process.run_as_group(), "run_as_group");
}

bool has_parent_component(std::string_view path) {
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (path.substr(at, end - at) == "..") return true;
    at = end + 1;
  }
  return false;
}

template <class Paths>
void check_paths(const Paths& paths, bool writable, Diagnostics& out) {
  for (int i = 0; i < paths.size(); ++i) {
    const std::string& path = paths.Get(i);
    const std::string at = cat("filesystem_policy.", writable ? "read_write" : "read_only", "[", i, "]");
    if (path.size() > kMaxPathBytes) {
      out.error(at, cat("path exceeds maximum length (", path.size(), " > ", kMaxPathBytes, "): ", shorten(path, 77)), "", "path too long");
      continue;
    }
    if (!path.starts_with('/')) out.error(at, cat("path must be absolute (start with '/'): ", path), "", "path not absolute");
    if (path.find('\0') != std::string::npos) out.error(at, cat("path contains a NUL byte: ", path), "", "path with NUL");
    if (has_parent_component(path)) out.error(at, cat("path contains '..' traversal component: ", path), "", "path with '..'");
    if (writable && !path.empty() && path.find_first_not_of('/') == std::string::npos) {
      out.error(at, cat("read-write path is overly broad: ", path), "list the directories that have to be writable",
                "read-write path too broad");
    }
  }
}

void check_static_sections(const pb::SandboxPolicy& policy, Diagnostics& out) {
  if (policy.version() > 1) {
    out.error("version", cat("unsupported policy version ", policy.version(), "; expected version 1"), "", "unsupported version");
  }
  check_process(policy.process(), out);
  const auto& compatibility = policy.landlock().compatibility();
  if (!compatibility.empty() && compatibility != "best_effort" && compatibility != "hard_requirement") {
    constexpr std::array<std::string_view, 2> kKnown{"best_effort", "hard_requirement"};
    const auto near = nearest(compatibility, kKnown);
    out.error("landlock.compatibility",
              cat("invalid landlock.compatibility '", shorten(compatibility, 64), "'; accepted: best_effort, hard_requirement"),
              near.empty() ? "" : cat("did you mean '", near, "'?"), "invalid value");
  }
  const auto& filesystem = policy.filesystem();
  const auto paths = static_cast<std::size_t>(filesystem.read_only_size()) + static_cast<std::size_t>(filesystem.read_write_size());
  if (paths > kMaxFilesystemPaths) {
    out.error("filesystem_policy", cat("too many filesystem paths (", paths, " > ", kMaxFilesystemPaths, ")"), "", "too many paths");
  }
  check_paths(filesystem.read_only(), false, out);
  check_paths(filesystem.read_write(), true, out);
}

// The key stands in a header of refusals, so it must not end the line there.
void check_rule_key(const std::string& key, Diagnostics& out) {
  const bool bad = std::any_of(key.begin(), key.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  if (!bad) return;
  out.error(cat("network_policies.", key), cat("network policy key '", shorten(key, 64), "' holds a control character"),
            "name it with letters", "control character in a rule key");
}

void check_binaries(const std::string& key, const pb::NetworkPolicyRule& rule, Diagnostics& out) {
  for (int i = 0; i < rule.binaries_size(); ++i) {
    const std::string& path = rule.binaries(i).path();
    const std::string at = cat("network_policies.", key, ".binaries[", i, "].path");
    const std::string loc = cat(key, ".binaries[", i, "]");
    if (path.empty()) {
      out.error(at, cat(loc, ": path must not be empty"), "name the executable, for instance /usr/bin/curl or **/curl",
                "empty binary path");
      continue;
    }
    if (path.size() > kMaxPathBytes) {
      out.error(at, cat("path exceeds maximum length (", path.size(), " > ", kMaxPathBytes, "): ", shorten(path, 77)), "", "path too long");
      continue;
    }
    if (const auto glob = Glob::compile(path, GlobKind::binary); !glob.ok()) {
      out.error(at, cat(loc, ": glob pattern '", shorten(path, 256), "' ", std::string{glob.status().message()}), "", "invalid glob");
    } else if (!path.starts_with('/') && !path.starts_with("**")) {
      out.warning(at, cat(loc, ": '", shorten(path, 256), "' is not an absolute path and matches no program"),
                  cat("write '**/", shorten(path, 64), "'"));
    }
  }
  if (rule.endpoints_size() > 0 && rule.binaries_size() == 0) {
    out.warning(cat("network_policies.", key), cat("network policy '", key, "' lists no binaries, so no program may use it"),
                "add `binaries: [{path: /usr/bin/curl}]`");
  }
}

// `/v1/**` does not cover `/v1` itself, which surprises: said where no other endpoint of the host does.
void warn_of_bare_prefixes(const std::map<std::string_view, const pb::NetworkPolicyRule*>& rules, Diagnostics& out) {
  struct Place {
    std::string_view key;
    int index = 0;
    const pb::NetworkEndpoint* endpoint = nullptr;
    std::optional<Glob> paths{};  // that it inspects; compiled once, where a neighbour is asked about
  };
  std::map<std::string, std::vector<Place>> hosts;
  for (const auto& [key, rule] : rules) {
    for (int i = 0; i < rule->endpoints_size(); ++i) hosts[text::lower(rule->endpoints(i).host())].push_back({key, i, &rule->endpoints(i)});
  }
  const auto is_prefix = [](const Place& place) { return place.endpoint->path().size() > 3 && place.endpoint->path().ends_with("/**"); };
  for (auto& [host, places] : hosts) {
    if (places.size() > kMaxPrefixNeighbours || std::none_of(places.begin(), places.end(), is_prefix)) continue;
    for (auto& place : places) {
      if (place.endpoint->protocol().empty()) continue;
      if (auto glob = Glob::compile(place.endpoint->path(), GlobKind::path_encoded_slash); glob.ok()) place.paths = *std::move(glob);
    }
    for (const auto& place : places) {
      if (!is_prefix(place)) continue;
      const std::string& path = place.endpoint->path();
      const auto prefix = std::string_view{path}.substr(0, path.size() - 3);
      const auto covers = [&](const Place& other) { return other.paths && other.paths->matches(prefix); };
      if (std::any_of(places.begin(), places.end(), covers)) continue;
      const std::string loc = cat(place.key, ".endpoints[", place.index, "]");
      out.warning(cat("network_policies.", loc, ".path"),
                  cat(loc, ".path: '", shorten(path, 256), "' does not cover ", shorten(prefix, 256), " itself, nor does another endpoint"),
                  "add an endpoint for it where it is used");
    }
  }
}

}  // namespace

std::string EndpointPlace::path() const { return cat("network_policies.", loc()); }
std::string EndpointPlace::loc() const { return cat(rule_key, ".endpoints[", index, "]"); }

Diagnostics validate(const pb::SandboxPolicy& policy) {
  Diagnostics out;
  check_static_sections(policy, out);
  std::map<std::string_view, const pb::NetworkPolicyRule*> rules;
  for (const auto& [key, rule] : policy.network_policies()) rules.emplace(key, &rule);
  for (const auto& [key, rule] : rules) {
    check_rule_key(std::string{key}, out);
    for (int i = 0; i < rule->endpoints_size(); ++i) {
      const EndpointPlace place{std::string{key}, rule->name().empty() ? std::string{key} : rule->name(), i};
      const auto& endpoint = rule->endpoints(i);
      check_host_and_ports(place, endpoint, out);
      check_signing(place, endpoint, out);
      check_l7(place, endpoint, out);
    }
    check_binaries(std::string{key}, *rule, out);
  }
  warn_of_bare_prefixes(rules, out);
  check_middlewares(policy, out);
  return out;
}

Diagnostics check_reserved_keys(const pb::SandboxPolicy& policy) {
  Diagnostics out;
  std::vector<std::string> keys;
  for (const auto& [key, rule] : policy.network_policies()) {
    if (key.starts_with(kProviderRulePrefix)) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());
  for (const auto& key : keys) {
    out.error(cat("network_policies.", key),
              cat("network_policies key '", key,
                  "' uses reserved '_provider_' prefix for provider composition; use 'openshell policy get <sandbox> --base' for a "
                  "round-trippable base policy, or use 'openshell policy get <sandbox> --full' to inspect the effective policy "
                  "including provider entries"),
              "", "reserved key");
  }
  return out;
}

absl::Status admit(pb::SandboxPolicy& policy, Provenance provenance, Diagnostics* warnings) {
  if (provenance == Provenance::clear) {
    if (auto status = check_reserved_keys(policy).status(absl::StatusCode::kInvalidArgument, ""); !status.ok()) return status;
  }
  Diagnostics found = validate(policy);
  if (auto status = found.status(absl::StatusCode::kInvalidArgument, "policy contains unsafe content: "); !status.ok()) return status;
  pb::SandboxPolicy canonical = policy;
  found.append(normalize(canonical, provenance));
  const Diagnostics ambiguous = find_ambiguities(canonical);
  constexpr std::string_view kHeading = "network endpoint ambiguity validation failed:\n";
  if (auto status = ambiguous.status(absl::StatusCode::kFailedPrecondition, kHeading, "\n"); !status.ok()) return status;
  policy = std::move(canonical);
  if (warnings != nullptr) warnings->append(std::move(found));
  return absl::OkStatus();
}

absl::Status admit_effective(pb::SandboxPolicy& policy, Diagnostics* warnings) {
  Diagnostics found = validate(policy);
  if (found.has_errors()) return absl::InvalidArgumentError(found.supervisor_text("policy validation failed:\n"));
  pb::SandboxPolicy canonical = policy;
  found.append(normalize(canonical, Provenance::keep));
  const Diagnostics ambiguous = find_ambiguities(canonical);
  if (ambiguous.has_errors()) {
    return absl::FailedPreconditionError(ambiguous.supervisor_text("network endpoint ambiguity validation failed:\n"));
  }
  policy = std::move(canonical);
  if (warnings != nullptr) warnings->append(std::move(found));
  return absl::OkStatus();
}

}  // namespace openshell::policy
