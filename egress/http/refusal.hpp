// The answers that the data plane gives itself, in the shapes that clients and agents read (L7 rows). JSON; always `Connection: close`.
#pragma once

#include <string>
#include <string_view>

#include "messages/values.hpp"

namespace openshell::egress::http {

/// What a structured policy denial says. Empty texts are left out of the body.
struct PolicyDenial {
  std::string_view policy;  ///< matched rule key; also the X-OpenShell-Policy header
  std::string_view layer;   ///< "l7", or "l4" for an explained open
  std::string_view reason;
  std::string_view method;
  std::string_view path;  ///< redacted, without query
  std::string_view host;
  Port port;
  std::string_view binary;
  DenialId denial_id;
  bool agent_proposals = false;  ///< adds next_steps and agent_guidance
};
std::string policy_denied(const PolicyDenial& denial);

/// `{"error":code,"detail":text}`, with the denial's id where there is one. `policy` not empty: adds X-OpenShell-Policy.
std::string refused(int status, std::string_view code, std::string_view detail, const DenialId& denial_id = {},
                    std::string_view policy = {});

/// A request that is refused for its form, whatever the rules say: names layer, protocol and request, and holds no rule_missing.
struct L7Refusal {
  int status = 400;
  std::string_view code;
  std::string_view detail;
  std::string_view policy;
  std::string_view protocol;
  std::string_view method;
  std::string_view path;  ///< redacted, without query
  DenialId denial_id;
};
std::string refused_l7(const L7Refusal& refusal);

/// The same as `refused` with the key "message", as authority and credential refusals have it.
std::string refused_with_message(int status, std::string_view code, std::string_view message, const DenialId& denial_id);

/// A body of our own, as it is.
std::string answered(int status, const std::string& json);

}  // namespace openshell::egress::http
