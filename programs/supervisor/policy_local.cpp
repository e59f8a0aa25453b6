#include "programs/supervisor/policy_local.hpp"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/json.hpp>

#include "egress/generation.hpp"
#include "openshell.pb.h"
#include "policy/diagnostic.hpp"
#include "policy/matcher.hpp"
#include "policy/merge.hpp"
#include "policy/serialize.hpp"
#include "programs/supervisor/proposal_body.hpp"

namespace openshell::supervisor {
namespace {

namespace json = boost::json;
using egress::LocalResponse;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kProposals = "/v1/proposals";
constexpr std::size_t kShownPathBytes = 256;
constexpr std::size_t kShownReasonBytes = 200;

LocalResponse refuse(int status, std::string_view error, const std::string& detail) {
  return {status, json::serialize(json::object{{"error", json::string{error.data(), error.size()}}, {"detail", detail}})};
}

LocalResponse answer(const json::value& body, int status = 200) { return {status, json::serialize(body)}; }

LocalResponse disabled() {
  return refuse(
      404, "feature_disabled",
      "agent-driven policy proposals are not enabled in this sandbox; set the `agent_policy_proposals_enabled` setting to true to "
      "enable");
}

LocalResponse no_route(const egress::LocalRequest& request) {
  return refuse(404, "not_found",
                absl::StrCat("policy.local route not found: ", request.method, " ", policy::shorten(request.path, kShownPathBytes)));
}

/// The whole number behind `name=` in a query; what is none, or absent, is `otherwise`.
long number_in(const std::string& query, const std::string& name, long least, long most, long otherwise) {
  const std::vector<std::string> pairs = absl::StrSplit(query, '&');
  for (const auto& pair : pairs) {
    if (!pair.starts_with(name + "=")) continue;
    long value = 0;
    if (absl::SimpleAtoi(pair.substr(name.size() + 1), &value)) return std::clamp(value, least, most);
  }
  return otherwise;
}

LocalResponse policy_text(const egress::Generation& generation) {
  if (!generation.matcher) return refuse(404, "policy_unavailable", "no policy is in force");
  const auto yaml = policy::to_yaml(generation.matcher->policy());
  if (!yaml.ok()) return refuse(500, "policy_serialize_failed", "the policy in force has no text");
  return answer(json::object{{"format", "yaml"}, {"policy_yaml", *yaml}});
}

LocalResponse denial_lines(const DenialLines& denials, const std::string& query) {
  json::array lines;
  for (auto& line : denials.newest(static_cast<std::size_t>(number_in(query, "last", 1, 100, 10)))) lines.emplace_back(line);
  return answer(json::object{{"denials", std::move(lines)}, {"log_available", true}});
}

json::object state_of(const v1::PolicyChunk& chunk) {
  return {{"chunk_id", chunk.id()},
          {"status", chunk.status()},
          {"rule_name", chunk.rule_name()},
          {"binary", chunk.binary()},
          {"rejection_reason", chunk.rejection_reason()},
          {"validation_result", chunk.validation_result()},
          {"application_error", chunk.application_error()},
          {"review_token", chunk.review_token()},
          {"current_effective_policy_hash", chunk.current_effective_policy_hash()},
          {"candidate_effective_policy_hash", chunk.candidate_effective_policy_hash()}};
}

/// What a person wrote, on one line.
std::string one_line(std::string text) {
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  return policy::shorten(text, kShownReasonBytes);
}

void audit(const char* what, const std::string& id, const std::string& rule, const std::string& reason = {}) {
  spdlog::info("CONFIG:{} agent proposal {} (rule {}){}", what, id, one_line(rule), reason.empty() ? "" : ": " + one_line(reason));
}

LocalResponse lookup_failure(const absl::Status& status) {
  if (absl::IsNotFound(status)) return refuse(404, "chunk_not_found", "no proposal of this sandbox has this id");
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))
    return refuse(503, "gateway_unavailable", "the gateway can not be reached now; try again");
  return refuse(502, "gateway_lookup_failed", std::string{status.message()});
}

}  // namespace

/// Somebody waits for the decision on one proposal.
struct PolicyLocal::Wait {
  std::string id;
  std::weak_ptr<const void> caller;
  Done done;
  Clock::time_point until;
  v1::PolicyChunk chunk;
  std::shared_ptr<const egress::Generation> looked_at;
};

void PolicyLocal::published(std::shared_ptr<const egress::Generation> generation) {
  const std::lock_guard lock{mutex_};
  generation_ = std::move(generation);
}

std::shared_ptr<const egress::Generation> PolicyLocal::current() const {
  const std::lock_guard lock{mutex_};
  return generation_;
}

void PolicyLocal::handle(egress::LocalRequest request, std::weak_ptr<const void> caller, absl::AnyInvocable<void(LocalResponse)> done) {
  const auto shared = std::make_shared<absl::AnyInvocable<void(LocalResponse)>>(std::move(done));
  const auto generation = current();
  if (!generation || !generation->agent_proposals) return (*shared)(disabled());
  const bool get = request.method == "GET";
  if (get && request.path == "/v1/policy/current") return (*shared)(policy_text(*generation));
  if (get && request.path == "/v1/denials") return (*shared)(denial_lines(*denials_, request.query));
  if (request.method == "POST" && request.path == kProposals) return propose(request, shared);
  if (get && request.path.starts_with(absl::StrCat(std::string{kProposals}, "/")))
    return proposal(request.path.substr(kProposals.size() + 1), request, std::move(caller), shared);
  (*shared)(no_route(request));
}

void PolicyLocal::propose(const egress::LocalRequest& request, const Done& done) {
  auto chunks = parse_proposal_body(request.body);
  if (!chunks.ok()) return (*done)(refuse(400, "invalid_proposal", std::string{chunks.status().message()}));
  v1::SubmitPolicyAnalysisRequest submission;
  submission.set_analysis_mode("agent_authored");
  for (auto& chunk : *chunks) *submission.add_proposed_chunks() = std::move(chunk);
  const std::string name = submission.proposed_chunks_size() == 1 ? submission.proposed_chunks(0).rule_name() : "of several";
  gateway_.submit(std::move(submission), [done, name](absl::StatusOr<v1::SubmitPolicyAnalysisResponse> taken) {
    if (!taken.ok()) {
      const bool away = absl::IsUnavailable(taken.status()) || absl::IsDeadlineExceeded(taken.status());
      return (*done)(away ? refuse(503, "gateway_unavailable", "the gateway can not be reached now; try again")
                          : refuse(502, "proposal_submit_failed", std::string{taken.status().message()}));
    }
    json::array reasons, ids;
    for (const auto& reason : taken->rejection_reasons()) reasons.emplace_back(reason);
    for (const auto& id : taken->accepted_chunk_ids()) {
      ids.emplace_back(id);
      audit("PROPOSED", id, name);
    }
    (*done)(answer(json::object{{"status", "submitted"},
                                {"accepted_chunks", taken->accepted_chunks()},
                                {"rejected_chunks", taken->rejected_chunks()},
                                {"rejection_reasons", std::move(reasons)},
                                {"accepted_chunk_ids", std::move(ids)}},
                   202));
  });
}

void PolicyLocal::proposal(const std::string& rest, const egress::LocalRequest& request, std::weak_ptr<const void> caller,
                           const Done& done) {
  const std::vector<std::string> parts = absl::StrSplit(rest, '/');
  const bool wait = parts.size() == 2 && parts[1] == "wait";
  if (parts.front().empty() || parts.size() > 2 || (parts.size() == 2 && !wait)) {
    return (*done)(refuse(404, "not_found",
                          absl::StrCat("policy.local proposal sub-route not found: ", policy::shorten(request.path, kShownPathBytes))));
  }
  if (!wait) {
    return look_up(parts.front(), [done](absl::StatusOr<v1::PolicyChunk> chunk) {
      if (!chunk.ok()) return (*done)(lookup_failure(chunk.status()));
      auto state = state_of(*chunk);
      if (chunk->status() == "approved") state["policy_reloaded"] = false;
      (*done)(answer(state));
    });
  }
  const auto seconds = number_in(request.query, "timeout", 1, static_cast<long>(limits_.longest_wait.count()),
                                 static_cast<long>(limits_.default_wait.count()));
  auto waiting = std::make_shared<Wait>();
  waiting->id = parts.front();
  waiting->caller = std::move(caller);
  waiting->done = done;
  waiting->until = Clock::now() + std::chrono::seconds{seconds};
  ask(waiting);
}

void PolicyLocal::look_up(const std::string& id, std::function<void(absl::StatusOr<v1::PolicyChunk>)> found) {
  gateway_.drafts([id, found = std::move(found)](absl::StatusOr<v1::GetDraftPolicyResponse> drafts) {
    if (!drafts.ok()) return found(drafts.status());
    for (auto& chunk : *drafts->mutable_chunks()) {
      if (chunk.id() == id) return found(std::move(chunk));
    }
    found(absl::NotFoundError("no such proposal"));
  });
}

void PolicyLocal::ask(const std::shared_ptr<Wait>& wait) {
  if (wait->caller.expired()) return (*wait->done)({});
  look_up(wait->id, [self = shared_from_this(), wait](absl::StatusOr<v1::PolicyChunk> chunk) { self->asked(wait, std::move(chunk)); });
}

void PolicyLocal::asked(const std::shared_ptr<Wait>& wait, absl::StatusOr<v1::PolicyChunk> chunk) {
  if (!chunk.ok()) return (*wait->done)(lookup_failure(chunk.status()));
  wait->chunk = *std::move(chunk);
  if (wait->chunk.status() == "approved") {
    audit("APPROVED", wait->id, wait->chunk.rule_name());
    wait->until = std::max(wait->until, Clock::now() + limits_.last_look);
    return await_reload(wait);
  }
  if (wait->chunk.status() != "pending") {
    audit("REJECTED", wait->id, wait->chunk.rule_name(), wait->chunk.rejection_reason());
    return (*wait->done)(answer(state_of(wait->chunk)));
  }
  if (Clock::now() >= wait->until) {
    auto state = state_of(wait->chunk);
    state["timed_out"] = true;
    return (*wait->done)(answer(state));
  }
  timers_->after(limits_.ask_every, [weak = weak_from_this(), wait] {
    if (const auto self = weak.lock()) self->ask(wait);
  });
}

void PolicyLocal::await_reload(const std::shared_ptr<Wait>& wait) {
  if (wait->caller.expired()) return (*wait->done)({});
  const auto generation = current();
  if (generation != wait->looked_at) {
    wait->looked_at = generation;
    if (generation && generation->matcher && policy::covers(generation->matcher->policy(), wait->chunk.proposed_rule())) {
      auto state = state_of(wait->chunk);
      state["policy_reloaded"] = true;
      return (*wait->done)(answer(state));
    }
  }
  if (Clock::now() >= wait->until) {
    auto state = state_of(wait->chunk);
    state["policy_reloaded"] = false;
    return (*wait->done)(answer(state));
  }
  timers_->after(limits_.look_every, [weak = weak_from_this(), wait] {
    if (const auto self = weak.lock()) self->await_reload(wait);
  });
}

}  // namespace openshell::supervisor
