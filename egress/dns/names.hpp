// What kind of name a workload asked for, before any policy is looked at.
#pragma once

#include <cstdint>
#include <string_view>

namespace openshell::egress::dns {

inline constexpr std::string_view kPolicyLocalName = "policy.local";
inline constexpr std::string_view kProxyLocalName = "proxy.local";

enum class NameKind : std::uint8_t {
  kPolicyLocal,  ///< always the same reserved address
  kProxyLocal,
  kHostAlias,  ///< host.openshell.internal and its synonyms: lead to the host, where a rule names them
  kHost,       ///< may get a mapping, allowed or denied
  kNever,      ///< single labels, .local, localhost, reverse zones, spellings of addresses: no such name
};

/// `name`: lower case, no final dot.
NameKind classify_name(std::string_view name);

/// At least two labels of [a-z0-9-], no hyphen at an end, 253 bytes at most, last label not a number.
bool is_public_host_name(std::string_view name);

}  // namespace openshell::egress::dns
