// The outer fence: what a driver proved about the namespace of a sandbox before it let the sandbox start. The driver and the gateway make
// the evidence once; both ends of the channel carry it and compare it, neither of them can renew it.
#pragma once

#include <absl/status/status.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::boundary {

/// The four guarantees, in the one order in which they are written. All four are required; a list with another order or length is no fence.
inline constexpr std::array<std::string_view, 4> kFenceGuarantees = {"default_deny_egress", "no_unmanaged_egress_path",
                                                                     "revocation_verified", "controller_loss_fails_closed"};

/// What crosses the channel and stands in descriptor and bootstrap.
struct OuterFence {
  std::string generation;                ///< the runtime generation the evidence was taken for
  std::vector<std::string> established;  ///< exactly kFenceGuarantees
  std::string evidence_digest;           ///< `evidence_digest(generation, native evidence)`
  friend bool operator==(const OuterFence&, const OuterFence&) = default;
};

/// SHA-256 over: length of the generation in UTF-8 bytes as u64 big-endian, the generation, the evidence bytes. 64 lower-case hex digits.
/// Example: ("g1", "{}") -> d07622f57aba4edee56afae410cae5292e2be5121bd49ac2f30dd65ad4d48b6c.
[[nodiscard]] std::string evidence_digest(std::string_view generation, std::string_view native_evidence);

/// OK when all four guarantees stand in order, the generation is the expected one and the digest has its form. PermissionDenied otherwise:
/// what does not prove a fence starts nothing.
[[nodiscard]] absl::Status check_fence(const OuterFence& fence, std::string_view expected_generation);

}  // namespace openshell::boundary
