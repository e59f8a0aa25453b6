#include "egress/http/refusal.hpp"

#include <fmt/format.h>
#include <boost/json.hpp>

namespace openshell::egress::http {
namespace {

namespace json = boost::json;

json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 502:
      return "Bad Gateway";
    default:
      return "Service Unavailable";
  }
}

std::string render(int status, const std::string& text, std::string_view policy, bool policy_header) {
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", status, reason_phrase(status), text.size());
  if (policy_header) out += fmt::format("X-OpenShell-Policy: {}\r\n", policy);
  return out + "Connection: close\r\n\r\n" + text;
}
std::string render(int status, const json::object& body, std::string_view policy, bool policy_header) {
  return render(status, json::serialize(body), policy, policy_header);
}

json::array next_steps() {
  return {
      json::object{{"action", "read_skill"}, {"path", "/etc/openshell/skills/policy_advisor.md"}},
      json::object{{"action", "inspect_policy"}, {"method", "GET"}, {"url", "http://policy.local/v1/policy/current"}},
      json::object{{"action", "inspect_recent_denials"}, {"method", "GET"}, {"url", "http://policy.local/v1/denials?last=5"}},
      json::object{{"action", "submit_proposal"},
                   {"method", "POST"},
                   {"url", "http://policy.local/v1/proposals"},
                   {"body_type", "PolicyMergeOperation"}},
  };
}

constexpr auto kGuidance =
    "This request was blocked by policy; do not stop. Read /etc/openshell/skills/policy_advisor.md, submit the narrowest rule that helps "
    "to "
    "http://policy.local/v1/proposals, wait until the answer says policy_reloaded: true, then retry.";

}  // namespace

std::string policy_denied(const PolicyDenial& denial) {
  const bool l4 = denial.layer == "l4";
  const std::string rule =
      l4 ? fmt::format("CONNECT {}:{}", denial.host, denial.port.value) : fmt::format("{} {}", denial.method, denial.path);
  json::object missing{{"type", l4 ? "endpoint_allow" : "rest_allow"}, {"layer", view(denial.layer)}};
  json::object body{{"error", "policy_denied"},      {"policy", view(denial.policy)}, {"rule", view(rule)},
                    {"detail", view(denial.reason)}, {"layer", view(denial.layer)},   {"protocol", "rest"},
                    {"method", view(denial.method)}, {"path", view(denial.path)}};
  if (l4) {
    body["reason"] = view(denial.reason);
  } else {
    missing["method"] = view(denial.method);
    missing["path"] = view(denial.path);
  }
  for (json::object* part : {&body, &missing}) {
    if (!denial.host.empty()) (*part)["host"] = view(denial.host);
    if (denial.port.value != 0) (*part)["port"] = denial.port.value;
    if (!denial.binary.empty()) (*part)["binary"] = view(denial.binary);
  }
  body["denial_id"] = view(denial.denial_id.str());
  body["rule_missing"] = std::move(missing);
  body["next_steps"] = denial.agent_proposals ? next_steps() : json::array{};
  if (denial.agent_proposals) body["agent_guidance"] = kGuidance;
  return render(403, body, denial.policy, true);
}

std::string refused(int status, std::string_view code, std::string_view detail, const DenialId& denial_id, std::string_view policy) {
  json::object body{{"error", view(code)}, {"detail", view(detail)}};
  if (!denial_id.empty()) body["denial_id"] = view(denial_id.str());
  return render(status, body, policy, !policy.empty());
}

std::string refused_l7(const L7Refusal& refusal) {
  const json::object body{{"error", view(refusal.code)},        {"detail", view(refusal.detail)},
                          {"policy", view(refusal.policy)},     {"layer", "l7"},
                          {"protocol", view(refusal.protocol)}, {"method", view(refusal.method)},
                          {"path", view(refusal.path)},         {"denial_id", view(refusal.denial_id.str())}};
  return render(refusal.status, body, refusal.policy, true);
}

std::string refused_with_message(int status, std::string_view code, std::string_view message, const DenialId& denial_id) {
  json::object body{{"error", view(code)}, {"message", view(message)}};
  if (!denial_id.empty()) body["denial_id"] = view(denial_id.str());
  return render(status, body, {}, false);
}

std::string answered(int status, const std::string& json) { return render(status, json, {}, false); }

}  // namespace openshell::egress::http
