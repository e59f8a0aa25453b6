#include "egress/dns/names.hpp"

#include <algorithm>

#include "egress/ip_address.hpp"
#include "messages/values.hpp"
#include "policy/matcher.hpp"

namespace openshell::egress::dns {

bool is_public_host_name(std::string_view name) {
  return name.find('.') != std::string_view::npos && name.find('_') == std::string_view::npos && Host::parse(name).ok();
}

NameKind classify_name(std::string_view name) {
  if (name == kPolicyLocalName) return NameKind::kPolicyLocal;
  if (name == kProxyLocalName) return NameKind::kProxyLocal;
  if (policy::is_host_alias(name)) return NameKind::kHostAlias;
  for (const std::string_view zone : {".local", ".localhost", ".in-addr.arpa", ".ip6.arpa"}) {
    if (name.ends_with(zone)) return NameKind::kNever;
  }
  // An underscore is no part of a host name, yet a rule may name one (SRV-like targets): the caller asks the policy first.
  if (name.find('.') == std::string_view::npos || !Host::parse(name).ok()) return NameKind::kNever;
  return NameKind::kHost;
}

}  // namespace openshell::egress::dns
