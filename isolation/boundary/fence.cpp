#include "isolation/boundary/fence.hpp"

#include "isolation/boundary/digest.hpp"

#include <algorithm>

namespace openshell::boundary {

std::string evidence_digest(std::string_view generation, std::string_view native_evidence) {
  std::string bytes;
  bytes.reserve(8 + generation.size() + native_evidence.size());
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>((static_cast<std::uint64_t>(generation.size()) >> shift) & 0xff);
  bytes.append(generation);
  bytes.append(native_evidence);
  return sha256_hex(bytes);
}

absl::Status check_fence(const OuterFence& fence, std::string_view expected_generation) {
  if (!std::equal(fence.established.begin(), fence.established.end(), kFenceGuarantees.begin(), kFenceGuarantees.end())) {
    return absl::PermissionDeniedError("outer_fence.established does not list the four fence guarantees in their order");
  }
  if (fence.generation != expected_generation) return absl::PermissionDeniedError("outer_fence.generation is not this runtime generation");
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (fence.evidence_digest.size() != 64 || !std::all_of(fence.evidence_digest.begin(), fence.evidence_digest.end(), hex)) {
    return absl::PermissionDeniedError("outer_fence.evidence_digest is not a SHA-256 in lower-case hex");
  }
  return absl::OkStatus();
}

}  // namespace openshell::boundary
