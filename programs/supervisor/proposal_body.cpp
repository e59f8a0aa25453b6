#include "programs/supervisor/proposal_body.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <boost/json.hpp>
#include <set>

#include "openshell.pb.h"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::supervisor {
namespace {

namespace json = boost::json;
namespace sb = sandbox::v1;

constexpr float kConfidence = 0.75F;
constexpr std::size_t kMaxIntentBytes = 2'048;

const std::set<std::string> kRuleKeys{"name", "endpoints", "binaries"};
const std::set<std::string> kEndpointKeys{"host",  "port",       "ports",       "protocol",           "tls", "enforcement", "access",
                                          "rules", "deny_rules", "allowed_ips", "allow_encoded_slash"};
const std::set<std::string> kRequestKeys{"method", "path", "command"};

absl::Status only(const json::object& object, const std::set<std::string>& known, const std::string& where) {
  for (const auto& [key, value] : object) {
    if (!known.contains(std::string{key}))
      return absl::InvalidArgumentError(absl::StrCat(where, " does not take '", std::string{key}.substr(0, 64), "'"));
  }
  return absl::OkStatus();
}

const json::object* object_at(const json::object& parent, const char* key) {
  const auto* found = parent.if_contains(key);
  return found == nullptr ? nullptr : found->if_object();
}

std::string text_at(const json::object& parent, const char* key) {
  const auto* found = parent.if_contains(key);
  return found != nullptr && found->is_string() ? std::string{found->get_string()} : std::string{};
}

absl::Status check_requests(const json::object& endpoint, const std::string& where) {
  if (const auto* rules = endpoint.if_contains("rules"); rules != nullptr && rules->is_array()) {
    for (const auto& rule : rules->get_array()) {
      const auto* object = rule.if_object();
      if (object == nullptr) continue;  // its type is refused by the policy's own reader
      if (auto status = only(*object, {"allow"}, where + ".rules"); !status.ok()) return status;
      const auto* allow = object_at(*object, "allow");
      if (allow == nullptr) continue;
      if (auto status = only(*allow, kRequestKeys, where + ".rules.allow"); !status.ok()) return status;
      if (text_at(*allow, "path").find('?') != std::string::npos)
        return absl::InvalidArgumentError("L7 allow paths must not include query strings");
    }
  }
  if (const auto* rules = endpoint.if_contains("deny_rules"); rules != nullptr && rules->is_array()) {
    for (const auto& rule : rules->get_array()) {
      if (const auto* object = rule.if_object(); object != nullptr) {
        if (auto status = only(*object, kRequestKeys, where + ".deny_rules"); !status.ok()) return status;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status check_endpoints(const json::object& rule) {
  const auto* list = rule.if_contains("endpoints");
  const auto* endpoints = list == nullptr ? nullptr : list->if_array();
  if (endpoints == nullptr || endpoints->empty()) return absl::InvalidArgumentError("rule.endpoints must contain at least one endpoint");
  for (std::size_t i = 0; i < endpoints->size(); ++i) {
    const auto where = absl::StrCat("rule.endpoints[", i, "]");
    const auto* endpoint = (*endpoints)[i].if_object();
    if (endpoint == nullptr) return absl::InvalidArgumentError(absl::StrCat(where, " must be an object"));
    if (auto status = only(*endpoint, kEndpointKeys, where); !status.ok()) return status;
    if (text_at(*endpoint, "host").empty()) return absl::InvalidArgumentError("endpoint.host is required");
    if (!endpoint->contains("port") && !endpoint->contains("ports"))
      return absl::InvalidArgumentError("endpoint.port or endpoint.ports is required");
    const auto protocol = absl::AsciiStrToLower(text_at(*endpoint, "protocol"));
    const auto forbidden = protocol == "tcp" || protocol == "sql"                       ? "protocol " + protocol
                           : absl::AsciiStrToLower(text_at(*endpoint, "tls")) == "skip" ? std::string{"tls: skip"}
                                                                                        : std::string{};
    if (!forbidden.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("agent-authored proposals cannot request ", forbidden, "; an administrator must add such access"));
    }
    if (auto status = check_requests(*endpoint, where); !status.ok()) return status;
  }
  return absl::OkStatus();
}

/// The rule as a policy file would hold it, read by the policy's own reader.
absl::StatusOr<sb::NetworkPolicyRule> read_rule(const json::object& rule, const std::string& name) {
  const json::object document{{"version", 1}, {"network_policies", json::object{{name, rule}}}};
  const auto parsed = policy::parse_policy(json::serialize(document), "proposal");
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrJoin(parsed.diagnostics.messages(), "; "));
  return parsed.policy->network_policies().at(name);
}

absl::StatusOr<v1::PolicyChunk> read_operation(const json::value& value, const std::string& intent) {
  const auto* operation = value.if_object();
  const auto* add = operation == nullptr || operation->size() != 1 ? nullptr : object_at(*operation, "addRule");
  if (add == nullptr) return absl::InvalidArgumentError("this MVP accepts `addRule` operations; submit a full narrow NetworkPolicyRule");
  if (auto status = only(*add, {"ruleName", "rule"}, "addRule"); !status.ok()) return status;
  const auto* rule = object_at(*add, "rule");
  if (rule == nullptr) return absl::InvalidArgumentError("addRule.rule is required");
  if (auto status = only(*rule, kRuleKeys, "addRule.rule"); !status.ok()) return status;
  auto name = text_at(*add, "ruleName");
  if (name.empty()) name = text_at(*rule, "name");
  if (name.empty()) return absl::InvalidArgumentError("addRule.ruleName or rule.name is required");
  if (auto status = check_endpoints(*rule); !status.ok()) return status;
  auto read = read_rule(*rule, name);
  if (!read.ok()) return read.status();
  v1::PolicyChunk chunk;
  chunk.set_rule_name(name);
  *chunk.mutable_proposed_rule() = *std::move(read);
  for (auto& endpoint : *chunk.mutable_proposed_rule()->mutable_endpoints()) endpoint.set_advisor_proposed(true);
  chunk.set_rationale(intent);
  chunk.set_confidence(kConfidence);
  chunk.set_hit_count(1);
  chunk.set_stage("agent");
  chunk.set_status("pending");
  if (!chunk.proposed_rule().binaries().empty()) chunk.set_binary(chunk.proposed_rule().binaries(0).path());
  return chunk;
}

}  // namespace

absl::StatusOr<std::vector<v1::PolicyChunk>> parse_proposal_body(const std::string& body) {
  json::error_code error;
  const auto parsed = json::parse(body, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("the body is no JSON: ", error.message()));
  const auto* object = parsed.if_object();
  const auto* list = object == nullptr ? nullptr : object->if_contains("operations");
  const auto* operations = list == nullptr ? nullptr : list->if_array();
  if (operations == nullptr || operations->empty()) return absl::InvalidArgumentError("proposal requires at least one operation");
  if (operations->size() > kMaxProposedOperations)
    return absl::InvalidArgumentError(absl::StrCat("a proposal has at most ", kMaxProposedOperations, " operations"));
  const auto intent = text_at(*object, "intent_summary");
  if (intent.size() > kMaxIntentBytes)
    return absl::InvalidArgumentError(absl::StrCat("intent_summary has at most ", kMaxIntentBytes, " bytes"));
  std::vector<v1::PolicyChunk> out;
  for (const auto& operation : *operations) {
    auto chunk = read_operation(operation, intent);
    if (!chunk.ok()) return chunk.status();
    out.push_back(*std::move(chunk));
  }
  return out;
}

}  // namespace openshell::supervisor
