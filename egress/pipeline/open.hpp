// How an open is decided: a list of small stages, each of which passes or denies. Nothing is dialed and nothing waits, so the generation
// that the first stage saw is the one that the last stage saw.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "egress/core.hpp"
#include "policy/matcher.hpp"

namespace openshell::egress {

/// What the stages find out, one after the other.
struct OpenContext {
  Core& core;
  const OpenIntent& intent;
  std::shared_ptr<const Generation> generation;

  enum class Source : std::uint8_t { kLiteral, kMapping, kDeniedName, kPolicyLocal, kProxyLocal };
  Source source = Source::kLiteral;
  std::string host;                      ///< name, or text of the literal
  std::vector<dns::Contract> contracts;  ///< of the mapping
  std::string mapping_id;
  policy::Connection connection;
  std::vector<IpAddress> addresses;  ///< that may be dialed

  [[nodiscard]] const ResolvedIdentity* identity() const { return std::get_if<ResolvedIdentity>(&intent.identity); }
  [[nodiscard]] std::string binary() const { return identity() != nullptr ? identity()->executable.path : std::string{}; }
};

struct OpenRefusal {
  DenialKind kind = DenialKind::kPolicyDenied;
  std::string reason;
  std::string_view detail;       ///< status_detail of the event
  std::string_view event_stage;  ///< of the DenialEvent; empty: none is made
  std::string_view group;        ///< of the activity count
  bool explainable = false;      ///< `network.denied_http = explain` may answer it
};

struct OpenStage {
  std::string_view name;
  std::optional<OpenRefusal> (*run)(OpenContext&);
};

/// The stages in their order.
std::span<const OpenStage> open_stages();

/// Whether what has to be inspected of an allowed connection can be. nullopt: it can. `certificates`: whether any can be made for its TLS.
std::optional<OpenRefusal> check_inspectable(const policy::Connection& connection, bool certificates);

/// Runs them. nullopt: allowed, and `context` says how.
std::optional<OpenRefusal> decide_open(OpenContext& context);

}  // namespace openshell::egress
