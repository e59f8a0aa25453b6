#include "api/operator/denial_trace.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "actors/gateway/times.hpp"
#include "actors/introspection/shown_text.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxLineShown = 1'024;    // bytes of a line
constexpr std::int64_t kSameCommitMs = 2'000;   // an approval and its revision are stored together
constexpr std::int64_t kSummaryDueMs = 30'000;  // summaries are sent every 10 s

std::int64_t wall_clock() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The value of a bracket field "[name:value]"; in it brackets are escaped.
std::string field(std::string_view line, std::string_view name) {
  const auto begin = line.find(cat(" [", name, ":"));
  if (begin == std::string_view::npos) return {};
  std::string out;
  for (auto at = begin + name.size() + 3; at < line.size() && line[at] != ']'; ++at) {
    if (line[at] == '\\' && at + 1 < line.size()) ++at;
    out += line[at];
  }
  return out;
}

/// "host:port", or with a path behind it: "host:port/path"; without a port that of the scheme.
bool take_authority(std::string_view text, std::uint32_t usual, DeniedOpen& out) {
  const auto slash = std::min(text.find('/'), text.size());
  out.path = std::string{text.substr(slash)};
  auto authority = text.substr(0, slash);
  const auto colon = authority.rfind(':');
  out.port = usual;
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    const auto digits = authority.substr(colon + 1);
    std::uint32_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc{} || end != digits.data() + digits.size() || port > 65'535) return false;
    out.port = port;
    authority = authority.substr(0, colon);
  }
  out.host = std::string{authority};
  return !out.host.empty() && out.port != 0;
}

struct Step {
  const char* id;
  std::string state;  // done, waiting, refused or none
  std::string title, text;
  std::int64_t at = 0;
  json::object facts;
};

json::object object_of(const Step& step) {
  json::object out{{"id", step.id}, {"state", step.state}, {"title", step.title}, {"text", step.text}};
  if (step.at > 0) out["at_ms"] = step.at;
  if (!step.facts.empty()) out["facts"] = step.facts;
  return out;
}

bool covers(const v1::PolicyChunk& chunk, const DeniedOpen& open) {
  const auto& rule = chunk.proposed_rule();
  const bool binary = chunk.binary() == open.binary || std::any_of(rule.binaries().begin(), rule.binaries().end(),
                                                                   [&](const auto& one) { return one.path() == open.binary; });
  return binary && std::any_of(rule.endpoints().begin(), rule.endpoints().end(), [&](const auto& endpoint) {
           const bool port = endpoint.port() == open.port ||
                             std::find(endpoint.ports().begin(), endpoint.ports().end(), open.port) != endpoint.ports().end();
           return endpoint.host() == open.host && port;
         });
}

const v1::PolicyChunk* find_proposal(const v1::GetDraftPolicyResponse& drafts, const std::string& id, const std::optional<DeniedOpen>& open,
                                     bool& by_id) {
  for (const auto& chunk : drafts.chunks()) {
    by_id = std::find(chunk.denial_summary_ids().begin(), chunk.denial_summary_ids().end(), id) != chunk.denial_summary_ids().end();
    if (by_id) return &chunk;
  }
  if (!open) return nullptr;
  const auto found = std::find_if(drafts.chunks().begin(), drafts.chunks().end(), [&](const auto& chunk) { return covers(chunk, *open); });
  return found == drafts.chunks().end() ? nullptr : &*found;
}

const v1::SandboxPolicyRevision* revision_of(const v1::ListSandboxPoliciesResponse& revisions, std::int64_t decided) {
  const v1::SandboxPolicyRevision* best = nullptr;
  std::int64_t distance = kSameCommitMs + 1;
  for (const auto& revision : revisions.revisions()) {
    const auto apart = std::abs(gateway::to_millis(revision.created_time()) - decided);
    if (apart >= distance) continue;
    distance = apart;
    best = &revision;
  }
  return best;
}

const char* status_word(v1::PolicyStatus status) {
  switch (status) {
    case v1::POLICY_STATUS_PENDING:
      return "pending";
    case v1::POLICY_STATUS_LOADED:
      return "loaded";
    case v1::POLICY_STATUS_FAILED:
      return "failed";
    case v1::POLICY_STATUS_SUPERSEDED:
      return "superseded";
    default:
      return "unknown";
  }
}

/// One question after the other; alive until the answer is given.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  Trace(std::shared_ptr<ActorSource> source, std::string id, std::function<void(std::string)> then)
      : source_{std::move(source)}, id_{std::move(id)}, then_{std::move(then)} {}

  void begin() {
    source_->denials(id_, [self = shared_from_this()](absl::StatusOr<gateway::DenialLines> lines) {
      if (!lines.ok()) return self->fail(std::string{lines.status().message()});
      if (lines->lines.empty())
        return self->fail(
            "no denied request of this id is among the last ones; ids are in the 403 body, in `openshell logs` and in proposals");
      self->line_ = lines->lines.front();
      self->open_ = parse_denied_line(self->line_.text);
      self->source_->name_of(self->line_.sandbox_id, [self](absl::StatusOr<std::string> name) {
        self->sandbox_ = name.ok() ? *name : self->line_.sandbox_id;
        self->told();
        self->look_for_proposal();
      });
    });
  }

 private:
  void told() {
    const auto& line = line_;
    Step workload{"workload", "done", "A program in the sandbox asked", {}, line.at, {{"sandbox", sandbox_}}};
    Step decision{"decision", "refused", "The supervisor refused", shown_text(line.text, kMaxLineShown), line.at, {}};
    if (open_) {
      workload.text = shown_text(
          open_->method.empty() ? cat(open_->binary, " opened ", open_->host, ":", open_->port)
                                : cat(open_->binary, " asked ", open_->method, " ", open_->path, " of ", open_->host, ":", open_->port),
          kMaxLineShown);
      workload.facts["program"] = shown_text(open_->binary);
      workload.facts["host"] = shown_text(open_->host);
      workload.facts["port"] = open_->port;
      if (!open_->method.empty()) workload.facts["request"] = shown_text(cat(open_->method, " ", open_->path));
      if (!open_->reason.empty()) decision.facts["reason"] = shown_text(open_->reason);
      if (!open_->policy.empty()) decision.facts["policy"] = shown_text(open_->policy);
    } else {
      workload.text = "see the line of the decision";
    }
    steps_.push_back(std::move(workload));
    steps_.push_back(std::move(decision));
  }

  void look_for_proposal() {
    source_->proposals(
        line_.sandbox_id, [self = shared_from_this()](absl::StatusOr<std::shared_ptr<const v1::GetDraftPolicyResponse>> drafts) {
          if (!drafts.ok()) {
            self->steps_.push_back(
                {"proposal", "none", "Its proposal can not be read", shown_text(std::string{drafts.status().message()}), 0, {}});
            return self->finish();
          }
          bool by_id = false;
          const auto* chunk = find_proposal(**drafts, self->id_, self->open_, by_id);
          if (chunk == nullptr) {
            const bool soon = wall_clock() - self->line_.at < kSummaryDueMs;
            self->steps_.push_back({"proposal",
                                    soon ? "waiting" : "none",
                                    soon ? "No proposal yet" : "No proposal",
                                    soon ? "the supervisor sums up what it refused every 10 seconds"
                                         : "nothing was proposed for it, or the proposal was cleared",
                                    0,
                                    {}});
            return self->finish();
          }
          self->proposed(*chunk, by_id);
        });
  }

  void proposed(const v1::PolicyChunk& chunk, bool by_id) {
    Step proposal{"proposal", "done", "A rule that would allow it was proposed", {}, gateway::to_millis(chunk.created_time()), {}};
    proposal.text = shown_text(
        cat("rule ", chunk.rule_name(),
            by_id ? ", which names this request" : ", found by program, host and port: the request was folded into earlier ones"));
    proposal.facts["proposal"] = shown_text(chunk.id());
    proposal.facts["times"] = chunk.hit_count();
    proposal.facts["confidence"] = cat(std::lround(static_cast<double>(chunk.confidence()) * 100), " %");
    steps_.push_back(std::move(proposal));
    const auto name = sandbox_.substr(sandbox_.find('/') + 1);
    const auto decided = gateway::to_millis(chunk.decided_time());
    if (chunk.status() == "pending") {
      steps_.push_back({"person",
                        "waiting",
                        "It waits for a person",
                        shown_text(cat("openshell rule approve ", name, " --chunk-id ", chunk.id())),
                        0,
                        {}});
      return finish();
    }
    Step person{"person",
                chunk.status() == "approved" ? "done" : "refused",
                cat("It was ", chunk.status() == "approved" ? "approved" : "rejected"),
                shown_text(chunk.rejection_reason()),
                decided,
                {}};
    steps_.push_back(std::move(person));
    if (chunk.status() != "approved") return finish();
    source_->revisions(line_.sandbox_id, [self = shared_from_this(),
                                          decided](absl::StatusOr<std::shared_ptr<const v1::ListSandboxPoliciesResponse>> revisions) {
      const auto* revision = revisions.ok() ? revision_of(**revisions, decided) : nullptr;
      if (revision != nullptr) self->became(*revision);
      self->finish();
    });
  }

  void became(const v1::SandboxPolicyRevision& revision) {
    const bool over = revision.status() == v1::POLICY_STATUS_LOADED || revision.status() == v1::POLICY_STATUS_SUPERSEDED;
    Step policy{"policy",
                over                                            ? "done"
                : revision.status() == v1::POLICY_STATUS_FAILED ? "refused"
                                                                : "waiting",
                cat("Policy revision ", revision.version()),
                {},
                gateway::to_millis(revision.has_loaded_time() ? revision.loaded_time() : revision.created_time()),
                {}};
    policy.text =
        cat(status_word(revision.status()), revision.status() == v1::POLICY_STATUS_LOADED ? ": the supervisor decides by it" : "");
    steps_.push_back(std::move(policy));
  }

  void finish() {
    json::array steps;
    for (const auto& step : steps_) steps.push_back(object_of(step));
    then_(json::serialize(
        json::object{{"denial", json::object{{"id", shown_text(line_.denial_id)}, {"sandbox", sandbox_}, {"at_ms", line_.at}}},
                     {"steps", std::move(steps)}}));
  }

  void fail(const std::string& why) { then_(json::serialize(json::object{{"error", shown_text(why)}, {"steps", json::array{}}})); }

  const std::shared_ptr<ActorSource> source_;
  const std::string id_;
  const std::function<void(std::string)> then_;
  gateway::DenialLine line_;
  std::optional<DeniedOpen> open_;
  std::string sandbox_;
  std::vector<Step> steps_;
};

std::string listed(const absl::StatusOr<gateway::DenialLines>& lines) {
  if (!lines.ok()) return json::serialize(json::object{{"error", std::string{lines.status().message()}}, {"denials", json::array{}}});
  json::array out;
  for (const auto& line : lines->lines) {
    out.push_back(json::object{{"id", shown_text(line.denial_id)},
                               {"sandbox_id", line.sandbox_id},
                               {"at_ms", line.at},
                               {"text", shown_text(line.text, kMaxLineShown)}});
  }
  return json::serialize(json::object{{"denials", std::move(out)}});
}

}  // namespace

std::optional<DeniedOpen> parse_denied_line(std::string_view line) {
  DeniedOpen out;
  const bool request = line.starts_with("HTTP:");
  if (!request && !line.starts_with("NET:OPEN")) return std::nullopt;
  constexpr std::string_view kDenied = "] DENIED ";
  const auto denied = line.find(kDenied);
  if (denied == std::string_view::npos) return std::nullopt;
  out.policy = field(line, "policy");
  out.policy = out.policy.substr(0, out.policy.find(" engine:"));
  out.reason = field(line, "reason");
  auto rest = line.substr(denied + kDenied.size());
  out.binary = "-";
  constexpr std::string_view kArrow = ") -> ";
  if (const auto arrow = rest.find(kArrow); arrow != std::string_view::npos) {
    const auto pid = rest.rfind('(', arrow);
    if (pid == std::string_view::npos) return std::nullopt;
    out.binary = std::string{rest.substr(0, pid)};
    rest = rest.substr(arrow + kArrow.size());
  }
  std::uint32_t usual = 0;
  if (request) {
    const auto blank = rest.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    out.method = std::string{rest.substr(0, blank)};
    rest = rest.substr(blank + 1);
    const bool tls = rest.starts_with("https://");
    if (!tls && !rest.starts_with("http://")) return std::nullopt;
    usual = tls ? 443 : 80;
    rest = rest.substr(tls ? 8 : 7);
  }
  rest = rest.substr(0, rest.find(' '));
  if (!take_authority(rest, usual, out)) return std::nullopt;
  return out;
}

void trace_denials(const std::shared_ptr<ActorSource>& source, const std::string& denial_id, std::function<void(std::string json)> then) {
  if (denial_id.empty())
    return source->denials({}, [then = std::move(then)](const absl::StatusOr<gateway::DenialLines>& lines) { then(listed(lines)); });
  std::make_shared<Trace>(source, denial_id, std::move(then))->begin();
}

}  // namespace openshell::api
