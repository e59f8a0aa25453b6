// Proposals: what the gateway suggests after a refused connection, and the decisions about it.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cmath>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/policy_wait.hpp"
#include "cli/log_line.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;
using sandbox::v1::NetworkEndpoint;

struct Options {
  std::string name, status, chunk_id, reason;
  bool flagged = false, wait = false;
  int timeout = 60;
  Format format = Format::table;
};

std::string or_star(const std::string& text) { return text.empty() ? "*" : text; }

std::string access_word(sandbox::v1::NetworkAccessPreset access) {
  switch (access) {
    case sandbox::v1::NETWORK_ACCESS_PRESET_READ_ONLY:
      return "read-only";
    case sandbox::v1::NETWORK_ACCESS_PRESET_READ_WRITE:
      return "read-write";
    default:
      return "full";
  }
}

/// `host:port [L4]`, `host:port [L7 rest, access=read-only, allow GET /x, deny POST /y]`.
std::string endpoint_text(const NetworkEndpoint& endpoint) {
  std::vector<std::string> ports;
  for (const auto port : endpoint.ports()) ports.push_back(std::to_string(port));
  if (ports.empty() && endpoint.port() != 0) ports.push_back(std::to_string(endpoint.port()));
  std::string text = endpoint.host();
  if (!ports.empty()) absl::StrAppend(&text, ":", absl::StrJoin(ports, ","));
  if (endpoint.protocol().empty()) return text + " [L4]";
  std::vector<std::string> parts{"L7 " + endpoint.protocol()};
  if (endpoint.access() != sandbox::v1::NETWORK_ACCESS_PRESET_UNSPECIFIED) parts.push_back("access=" + access_word(endpoint.access()));
  for (const auto& rule : endpoint.rules())
    parts.push_back(absl::StrCat("allow ", or_star(rule.allow().method()), " ", or_star(rule.allow().path())));
  for (const auto& rule : endpoint.deny_rules()) parts.push_back(absl::StrCat("deny ", or_star(rule.method()), " ", or_star(rule.path())));
  return absl::StrCat(text, " [", absl::StrJoin(parts, ", "), "]");
}

json::value rule_document(const std::string& name, const sandbox::v1::NetworkPolicyRule& rule) {
  sandbox::v1::SandboxPolicy alone;
  (*alone.mutable_network_policies())[name.empty() ? "rule" : name] = rule;
  auto document = policy_document(alone);
  if (auto* rules = document.is_object() ? document.as_object().if_contains("network_policies") : nullptr; rules != nullptr)
    return rules->as_object().begin()->value();
  return document;
}

json::object chunk_document(const v1::PolicyChunk& chunk) {
  json::object out{{"id", chunk.id()},
                   {"status", chunk.status()},
                   {"rule_name", chunk.rule_name()},
                   {"binary", chunk.binary()},
                   {"confidence", std::round(static_cast<double>(chunk.confidence()) * 100) / 100},
                   {"rationale", chunk.rationale()},
                   {"stage", chunk.stage()},
                   {"hit_count", chunk.hit_count()},
                   {"validation_result", chunk.validation_result()},
                   {"review_token", chunk.review_token()},
                   {"candidate_hash", chunk.candidate_effective_policy_hash()},
                   {"current_hash", chunk.current_effective_policy_hash()},
                   {"proposed_rule", rule_document(chunk.rule_name(), chunk.proposed_rule())}};
  json::array denials;
  for (const auto& id : chunk.denial_summary_ids()) denials.push_back(json::string(id));
  out["denial_ids"] = denials;
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) out[key] = value;
  };
  text("security_notes", chunk.security_notes());
  text("application_error", chunk.application_error());
  text("rejection_reason", chunk.rejection_reason());
  text("created_at", rfc3339(chunk.created_time()));
  text("first_seen_at", rfc3339(chunk.first_seen_time()));
  text("last_seen_at", rfc3339(chunk.last_seen_time()));
  if (chunk.has_decided_time()) text("decided_at", rfc3339(chunk.decided_time()));
  return out;
}

void line(std::string_view label, const std::string& value) {
  if (value.empty()) return;
  std::string padded{label};
  padded.resize(std::max<std::size_t>(padded.size() + 1, 13), ' ');
  print("  " + padded + harmless(value));  // much of it is what a workload wrote
}

void print_chunk(const v1::PolicyChunk& chunk) {
  print("");
  line("Chunk:", chunk.id());
  line("Status:", chunk.status());
  line("Rule:", chunk.rule_name());
  line("Binary:", chunk.binary());
  line("Confidence:", absl::StrCat(std::lround(static_cast<double>(chunk.confidence()) * 100), "%"));
  line("Rationale:", chunk.rationale());
  line("Security:", chunk.security_notes());
  line("Prover:", chunk.validation_result());
  line("Application:", chunk.application_error());
  line("Candidate:", short_hash(chunk.candidate_effective_policy_hash()));
  line("Reason:", chunk.rejection_reason());
  std::vector<std::string> endpoints, binaries;
  for (const auto& endpoint : chunk.proposed_rule().endpoints()) endpoints.push_back(endpoint_text(endpoint));
  for (const auto& binary : chunk.proposed_rule().binaries()) binaries.push_back(binary.path());
  line("Endpoints:", absl::StrJoin(endpoints, ", "));
  line("Binaries:", absl::StrJoin(binaries, ", "));
  line("Hits:", absl::StrCat(chunk.hit_count(), " (first seen ", show_time(chunk.first_seen_time()), ", last seen ",
                             show_time(chunk.last_seen_time()), ")"));
}

absl::StatusOr<v1::GetDraftPolicyResponse> fetch(Context& context, GatewayClient& client, const std::string& name,
                                                 const std::string& status) {
  auto request = context.scoped<v1::GetDraftPolicyRequest>();
  request.set_sandbox(name);
  request.set_status_filter(status);
  return client.get_draft_policy(request);
}

absl::StatusOr<int> get(Context& context, GatewayClient& client, const std::string& name, const Options& options) {
  auto drafts = fetch(context, client, name, options.status);
  if (!drafts.ok()) return drafts.status();
  if (options.format != Format::table) {
    json::array chunks;
    for (const auto& chunk : drafts->chunks()) chunks.push_back(chunk_document(chunk));
    print_document(json::object{{"sandbox", name}, {"draft_version", drafts->draft_version()}, {"chunks", chunks}}, options.format);
    return 0;
  }
  if (drafts->chunks().empty()) {
    print(absl::StrCat("No network rules for sandbox '", name, "'"));
    return 0;
  }
  print(absl::StrCat("Network Rules:  (version ", drafts->draft_version(), ", ", drafts->chunks_size(), " chunks)"));
  for (const auto& chunk : drafts->chunks()) print_chunk(chunk);
  return 0;
}

/// An approval of something that changed since it was read says what to do; other errors stay the gateway's own.
absl::Status explain(const absl::Status& status, const std::string& name) {
  if (!absl::StrContains(status.message(), "refetch and review again")) return status;
  return absl::AbortedError(absl::StrCat(
      "the sandbox policy or its inputs changed after this rule was fetched, so the gateway re-evaluated it\n  help: review it with "
      "`openshell rule get ",
      name, " --status pending`, then approve again"));
}

absl::StatusOr<int> approve(Context& context, GatewayClient& client, const std::string& name, const Options& options) {
  auto drafts = fetch(context, client, name, "");
  if (!drafts.ok()) return drafts.status();
  auto request = context.scoped<v1::ApproveDraftChunkRequest>();
  request.set_sandbox(name);
  request.set_chunk_id(options.chunk_id);
  bool found = false;
  for (const auto& chunk : drafts->chunks()) {
    if (chunk.id() != options.chunk_id) continue;
    found = true;
    request.set_review_token(chunk.review_token());
  }
  if (!found) return absl::NotFoundError(absl::StrCat("draft chunk '", options.chunk_id, "' not found"));
  auto answer = client.approve_draft_chunk(request);
  if (!answer.ok()) return explain(answer.status(), name);
  print(absl::StrCat(mark(kDone), " Chunk approved. Policy version: ", answer->policy_version(),
                     ", hash: ", short_hash(answer->policy_hash())));
  return options.wait ? await_loaded(context, client, name, answer->policy_version(), options.timeout) : absl::StatusOr<int>{0};
}

absl::StatusOr<int> approve_all(Context& context, GatewayClient& client, const std::string& name, const Options& options) {
  auto drafts = fetch(context, client, name, "pending");
  if (!drafts.ok()) return drafts.status();
  auto request = context.scoped<v1::ApproveAllDraftChunksRequest>();
  request.set_sandbox(name);
  request.set_include_security_flagged(options.flagged);
  for (const auto& chunk : drafts->chunks()) {
    auto& approval = *request.add_approvals();
    approval.set_chunk_id(chunk.id());
    approval.set_review_token(chunk.review_token());
  }
  auto answer = client.approve_all_draft_chunks(request);
  if (!answer.ok()) return explain(answer.status(), name);
  print(absl::StrCat(mark(kDone), " ", answer->chunks_approved(), " chunk(s) approved, ", answer->chunks_skipped(),
                     " skipped. Policy version: ", answer->policy_version()));
  const bool wait = options.wait && answer->chunks_approved() > 0;
  return wait ? await_loaded(context, client, name, answer->policy_version(), options.timeout) : absl::StatusOr<int>{0};
}

absl::StatusOr<int> reject(Context& context, GatewayClient& client, const std::string& name, const Options& options) {
  auto request = context.scoped<v1::RejectDraftChunkRequest>();
  request.set_sandbox(name);
  request.set_chunk_id(options.chunk_id);
  request.set_reason(options.reason);
  auto answer = client.reject_draft_chunk(request);
  if (!answer.ok()) return answer.status();
  print(absl::StrCat(mark(kDone), " Chunk rejected."));
  return 0;
}

absl::StatusOr<int> undo(Context& context, GatewayClient& client, const std::string& name, const Options& options) {
  auto request = context.scoped<v1::UndoDraftChunkRequest>();
  request.set_sandbox(name);
  request.set_chunk_id(options.chunk_id);
  auto answer = client.undo_draft_chunk(request);
  if (!answer.ok()) return answer.status();
  print(absl::StrCat(mark(kDone), " Approval undone. Policy version: ", answer->policy_version(),
                     ", hash: ", short_hash(answer->policy_hash())));
  return options.wait ? await_loaded(context, client, name, answer->policy_version(), options.timeout) : absl::StatusOr<int>{0};
}

absl::StatusOr<int> clear(Context& context, GatewayClient& client, const std::string& name, const Options&) {
  auto request = context.scoped<v1::ClearDraftChunksRequest>();
  request.set_sandbox(name);
  auto answer = client.clear_draft_chunks(request);
  if (!answer.ok()) return answer.status();
  print(absl::StrCat(mark(kDone), " ", answer->chunks_cleared(), " pending chunk(s) cleared."));
  return 0;
}

absl::StatusOr<int> history(Context& context, GatewayClient& client, const std::string& name, const Options& options) {
  auto request = context.scoped<v1::GetDraftHistoryRequest>();
  request.set_sandbox(name);
  auto answer = client.get_draft_history(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    json::array entries;
    for (const auto& entry : answer->entries()) {
      entries.push_back(json::object{{"time", rfc3339(entry.event_time())},
                                     {"event", entry.event_type()},
                                     {"chunk_id", entry.chunk_id()},
                                     {"description", entry.description()}});
    }
    print_document(json::object{{"sandbox", name}, {"entries", entries}}, options.format);
    return 0;
  }
  if (answer->entries().empty()) {
    print(absl::StrCat("No rule history for sandbox '", name, "'"));
    return 0;
  }
  print("Rule History:");
  for (const auto& entry : answer->entries()) {
    print(harmless(absl::StrCat("  ", show_time(entry.event_time()), " ", entry.event_type(), " [", entry.chunk_id().substr(0, 8), "] ",
                                entry.description())));
  }
  return 0;
}

using Run = absl::StatusOr<int> (*)(Context&, GatewayClient&, const std::string&, const Options&);

absl::StatusOr<int> with_sandbox(Context& context, const Options& options, Run run) {
  auto name = context.sandbox_or_last(options.name);
  if (!name.ok()) return name.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  return run(context, **client, *name, options);
}

}  // namespace

void add_rule_commands(CLI::App& root, Action& chosen) {
  auto* rule = root.add_subcommand("rule", "Proposals made of refused connections, and decisions about them")->alias("rl");
  const auto add = [&](const char* name, const char* text, Run run) {
    auto options = std::make_shared<Options>();
    auto* command = rule->add_subcommand(name, text);
    command->add_option("name", options->name, "Default: the sandbox last used");
    command->callback([&chosen, options, run] { chosen = [options, run](Context& c) { return with_sandbox(c, *options, run); }; });
    return std::pair{command, options};
  };
  const auto add_waiting = [](CLI::App* command, Options& options) {
    command->add_flag("--wait", options.wait, "Until the supervisor has loaded the new policy");
    command->add_option("--timeout", options.timeout, "Seconds to wait")->check(CLI::NonNegativeNumber);
  };
  {
    auto [command, options] = add("get", "Show proposals, newest first", get);
    command->add_option("--status", options->status, "pending, approved or rejected");
    add_output_option(*command, options->format);
  }
  {
    auto [command, options] = add("approve", "Put one proposal into the policy", approve);
    command->add_option("--chunk-id", options->chunk_id)->required();
    add_waiting(command, *options);
  }
  {
    auto [command, options] = add("reject", "Decline one proposal; an approved one is taken out of the policy again", reject);
    command->add_option("--chunk-id", options->chunk_id)->required();
    command->add_option("--reason", options->reason);
  }
  {
    auto [command, options] = add("approve-all", "Put all pending proposals into the policy that have no security note", approve_all);
    command->add_flag("--include-security-flagged", options->flagged, "Those with a security note too");
    add_waiting(command, *options);
  }
  {
    auto [command, options] = add("undo", "Take an approved proposal out of the policy; it is pending again", undo);
    command->add_option("--chunk-id", options->chunk_id)->required();
    add_waiting(command, *options);
  }
  add("clear", "Forget all pending proposals", clear);
  {
    auto [command, options] = add("history", "What was proposed and decided", history);
    add_output_option(*command, options->format);
  }
}

}  // namespace openshell::cli
