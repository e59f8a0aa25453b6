#include "egress/open_intent.hpp"

namespace openshell::egress {

std::string_view wire_name(DenialKind kind) noexcept {
  switch (kind) {
    case DenialKind::kPolicyDenied:
      return "PolicyDenied";
    case DenialKind::kIdentityUnavailable:
      return "IdentityUnavailable";
    case DenialKind::kInvalidDestination:
      return "InvalidDestination";
    case DenialKind::kResourceExhausted:
      return "ResourceExhausted";
    case DenialKind::kMediationUnavailable:
      return "MediationUnavailable";
  }
  return "MediationUnavailable";
}

}  // namespace openshell::egress
