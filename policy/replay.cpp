#include "policy/replay.hpp"

#include <algorithm>
#include <tuple>

#include "policy/question_document.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::string_view kEverything = "**";
constexpr std::string_view kNothing = "openshell: no value is written so";

bool has_wildcard(std::string_view pattern) { return pattern.find_first_of("*?[]{}\\") != std::string_view::npos; }

// Every pattern that is compared with a value of a query or of a body, and whether its match allows something.
template <class Use>
void each_pattern(pb::SandboxPolicy& policy, Use&& use) {
  const auto both = [&](auto& rule, bool allows) {
    for (auto* conditions : {rule.mutable_query(), rule.mutable_params()}) {
      for (auto& [name, matcher] : *conditions) {
        if (matcher.any_size() == 0) use(*matcher.mutable_glob(), allows);
        for (auto& pattern : *matcher.mutable_any()) use(pattern, allows);
      }
    }
  };
  for (auto& [key, rule] : *policy.mutable_network_policies()) {
    for (auto& endpoint : *rule.mutable_endpoints()) {
      for (auto& one : *endpoint.mutable_rules()) both(*one.mutable_allow(), true);
      for (auto& one : *endpoint.mutable_deny_rules()) both(one, false);
    }
  }
}

/// `policy` as if every wildcard met what favours the request, or nothing that does.
pb::SandboxPolicy bent(pb::SandboxPolicy policy, bool favouring) {
  each_pattern(policy, [&](std::string& pattern, bool allows) {
    if (has_wildcard(pattern) && pattern != kEverything) pattern = allows == favouring ? kEverything : kNothing;
  });
  return policy;
}

// A hashed value that equals a pattern of the policy becomes that pattern; one that equals none stays, and is counted.
class Resolver {
 public:
  explicit Resolver(const std::map<std::string, std::string>& values) : values_{values} {}

  void resolve(Question::Http& request) {
    for (auto& [name, value] : request.query) one(value);
    if (!request.jsonrpc) return;
    for (auto& [name, value] : request.jsonrpc->params) one(value);
    if (request.jsonrpc->tool) one(*request.jsonrpc->tool);
  }
  [[nodiscard]] bool unknown() const { return unknown_; }

 private:
  void one(std::string& value) {
    if (!is_hashed_value(value)) return;
    const auto found = values_.find(value);
    if (found == values_.end()) {
      unknown_ = true;
    } else {
      value = found->second;
    }
  }
  const std::map<std::string, std::string>& values_;
  bool unknown_ = false;
};

}  // namespace

absl::StatusOr<Replay> Replay::prepare(const pb::SandboxPolicy& policy, bool relaxed) {
  Replay out;
  out.relaxed_ = relaxed;
  pb::SandboxPolicy read = policy;
  each_pattern(read, [&](const std::string& pattern, bool) {
    if (!has_wildcard(pattern)) {
      out.values_.emplace(hashed_value(pattern), pattern);
    } else if (pattern != kEverything) {
      out.has_wildcards_ = true;
    }
  });
  const auto compile = [&](const pb::SandboxPolicy& from, std::shared_ptr<const Matcher>& into) {
    auto compiled = Matcher::compile(from, options_for(relaxed));
    if (compiled.ok()) into = *std::move(compiled);
    return compiled.status();
  };
  if (auto status = compile(policy, out.matchers_.exact); !status.ok()) return status;
  if (!out.has_wildcards_) return out;
  if (auto status = compile(bent(policy, true), out.matchers_.favouring); !status.ok()) return status;
  if (auto status = compile(bent(policy, false), out.matchers_.refusing); !status.ok()) return status;
  return out;
}

std::optional<Judgement> Replay::judge(const DecisionRecord& record) const {
  auto question = record.question;
  question.relaxed = relaxed_;
  Resolver resolver{values_};
  if (question.request) resolver.resolve(*question.request);
  if (!resolver.unknown() || !has_wildcards_) return policy::judge(*matchers_.exact, question);
  auto most = policy::judge(*matchers_.favouring, question);
  if (policy::judge(*matchers_.refusing, question).decision != most.decision) return std::nullopt;
  return most;
}

ReplayReport replay(const Replay& candidate, const std::vector<DecisionRecord>& records) {
  ReplayReport out;
  out.decisions = records.size();
  std::map<std::tuple<std::string, Decision, Decision, std::string>, ReplayChange> folded;
  for (const auto& record : records) {
    const auto judged = candidate.judge(record);
    if (!judged) {
      ++out.unresolved;
      const auto what = cat(describe(record.question), " by ", record.question.binary);
      const auto& shown = out.unresolved_inputs;
      if (shown.size() < kMaxShownUnresolved && std::find(shown.begin(), shown.end(), what) == shown.end())
        out.unresolved_inputs.push_back(what);
      continue;
    }
    if (judged->decision == record.decision) continue;
    ++out.changed;
    auto& change = folded[{to_json(record.question), record.decision, judged->decision, judged->rule}];
    if (change.count++ == 0) change = {record.decision, judged->decision, 1, judged->rule, record.question};
  }
  for (auto& [key, change] : folded) out.changes.push_back(std::move(change));
  std::stable_sort(out.changes.begin(), out.changes.end(), [](const ReplayChange& a, const ReplayChange& b) { return a.count > b.count; });
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    auto& hashes = out.recorded_under;
    if (std::find(hashes.begin(), hashes.end(), record->policy_hash) == hashes.end()) hashes.push_back(record->policy_hash);
  }
  return out;
}

}  // namespace openshell::policy
