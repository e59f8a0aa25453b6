#include "policy/judgement.hpp"

#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

void name_endpoint(Judgement& out, const Endpoint* endpoint) {
  if (endpoint == nullptr) return;
  out.rule = endpoint->policy;
  out.endpoint = endpoint->index;
  const auto& protocol = endpoint->source->protocol();
  out.handling = protocol.empty() ? "L4" : cat(protocol, ", ", endpoint->enforcement == Enforcement::enforce ? "enforce" : "audit");
}

}  // namespace

std::string_view to_string(Decision decision) {
  switch (decision) {
    case Decision::allow:
      return "allow";
    case Decision::audit:
      return "audit";
    default:
      return "deny";
  }
}

std::optional<Decision> parse_decision(std::string_view word) {
  for (const auto decision : {Decision::allow, Decision::audit, Decision::deny}) {
    if (to_string(decision) == word) return decision;
  }
  return std::nullopt;
}

MatcherOptions options_for(bool relaxed) {
  MatcherOptions options;
  options.require_binary_identity = !relaxed;
  return options;
}

Decision decision_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::allow:
      return Decision::allow;
    case Verdict::audit:
      return Decision::audit;
    default:
      return Decision::deny;
  }
}

Judgement judge(const Matcher& matcher, const Question& question) {
  const auto connection =
      matcher.connect({question.host,
                       question.port,
                       {question.relaxed ? std::string_view{} : question.binary, question.ancestors, question.cmdline_paths}});
  Judgement out;
  if (!connection.allowed) {
    out.reason = connection.reason;
    return out;
  }
  if (!question.request || connection.inspection != Inspection::requests) {
    out.decision = Decision::allow;
    name_endpoint(out, connection.deciding != nullptr   ? connection.deciding
                       : connection.endpoints().empty() ? nullptr
                                                        : connection.endpoints().front());
    return out;
  }
  const auto decided = connection.request(request_of(*question.request));
  out.decision = decision_of(decided.verdict);
  out.reason = decided.reason;
  name_endpoint(out, decided.rule_endpoint != nullptr ? decided.rule_endpoint : decided.endpoint);
  return out;
}

Request request_of(const Question::Http& http) {
  Request out{http.method, http.path, http.query};
  out.graphql = http.graphql ? &*http.graphql : nullptr;
  out.jsonrpc = http.jsonrpc ? &*http.jsonrpc : nullptr;
  return out;
}

std::string describe(const Question& question) {
  const bool v6 = question.host.find(':') != std::string::npos;
  const auto place = cat(v6 ? "[" : "", question.host, v6 ? "]" : "", ":", question.port);
  return question.request ? cat(question.request->method, " ", place, question.request->path) : place;
}

}  // namespace openshell::policy
