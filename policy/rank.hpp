// Which of two endpoints is the more specific one. Shared by the matcher (who decides) and the overlap check (who must agree).
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "policy/glob.hpp"
#include "policy/proto_fwd.hpp"

namespace openshell::policy {

enum class HostClass : std::uint8_t { none, recursive_pattern, pattern, exact };

/// Classifies the host of an endpoint: empty, with `**`, with `*`, or exact (literals too).
[[nodiscard]] HostClass host_class(std::string_view host);

/// What makes an endpoint specific, compared member by member from the top; larger is more specific.
struct Specificity {
  bool is_explicit = true;  ///< Written by a person or provider, not proposed by an advisor.
  HostClass host = HostClass::none;
  std::uint32_t host_characters = 0;  ///< Patterns: characters other than `*`.
  std::int32_t minus_stars = 0;       ///< Patterns: the fewer `*` the better.
  bool single_port = false;
  friend auto operator<=>(const Specificity&, const Specificity&) = default;

  /// The host and port members alone: two endpoints that are equal here must agree where they overlap.
  [[nodiscard]] bool same_place(const Specificity& other) const {
    return host == other.host && host_characters == other.host_characters && minus_stars == other.minus_stars &&
           single_port == other.single_port;
  }
};

struct Endpoint;
/// Of two endpoints that a request falls under: larger request rank decides, equals by rule key, then index.
[[nodiscard]] bool decides_over(const Endpoint* a, const Endpoint* b);

[[nodiscard]] Specificity specificity(const pb::NetworkEndpoint& endpoint);

/// True when the endpoint says how traffic is handled (protocol, allowed_ips, tls or a credential binding); a plain one only grants access.
[[nodiscard]] bool carries_metadata(const pb::NetworkEndpoint& endpoint);

}  // namespace openshell::policy
