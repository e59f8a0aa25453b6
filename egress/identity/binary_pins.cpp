#include "egress/identity/binary_pins.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace openshell::egress {
namespace {

bool is_digest(const std::string& text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

absl::Status BinaryPins::verify(const SuppliedIdentity& identity) {
  if (const auto* failed = std::get_if<FailedIdentity>(&identity)) {
    return absl::UnauthenticatedError(failed->message.empty() ? "executable identity is not available" : failed->message);
  }
  const auto& resolved = std::get<ResolvedIdentity>(identity);
  std::vector<const BinaryEvidence*> chain{&resolved.executable};
  for (const auto& ancestor : resolved.ancestors) chain.push_back(&ancestor);

  std::unordered_map<std::string, std::string> fresh;
  for (const auto* link : chain) {
    if (!link->path.starts_with('/')) {
      return absl::UnauthenticatedError(fmt::format("Invalid executable identity path: {} must be absolute", link->path));
    }
    if (!is_digest(link->sha256)) {
      return absl::UnauthenticatedError(fmt::format("Invalid executable identity evidence: {} has missing digest", link->path));
    }
    if (const auto seen = fresh.find(link->path); seen != fresh.end() && seen->second != link->sha256) {
      return absl::UnauthenticatedError(fmt::format("Invalid executable identity: conflicting evidence for {}", link->path));
    }
    if (const auto pin = pins_.find(link->path); pin != pins_.end()) {
      if (pin->second != link->sha256)
        return absl::UnauthenticatedError(fmt::format("Binary integrity violation: {} executable changed", link->path));
      continue;
    }
    fresh.emplace(link->path, link->sha256);
  }
  if (pins_.size() + fresh.size() > kMaxPaths) {
    return absl::ResourceExhaustedError(fmt::format("Binary identity cache capacity exhausted (maximum {} pinned paths)", kMaxPaths));
  }
  pins_.merge(fresh);
  return absl::OkStatus();
}

}  // namespace openshell::egress
