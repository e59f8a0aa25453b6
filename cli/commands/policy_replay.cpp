// `policy replay`: recorded decisions under a candidate policy, and which of them would come out otherwise.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fstream>
#include <memory>

#include "cli/commands/policy_questions.hpp"
#include "cli/decision_stream.hpp"
#include "cli/policy_file.hpp"
#include "cli/terminal.hpp"
#include "cli/text_source.hpp"
#include "policy/question_document.hpp"
#include "policy/replay.hpp"
#include "sandbox.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxShownChanges = 100;

struct Options {
  std::string name, decisions, candidate, since, save;
  std::size_t limit = policy::kMaxRecords;
  bool relaxed = false, json_output = false;
};

absl::StatusOr<Decisions> load(Context& context, const Options& options) {
  DecisionFilter filter;
  filter.limit = options.limit;
  if (!options.since.empty()) {
    auto since = parse_since(options.since, std::chrono::system_clock::now());
    if (!since.ok()) return since.status();
    filter.since = *since;
  }
  if (options.decisions.empty()) {
    auto name = context.sandbox_or_last(options.name);
    if (!name.ok()) return name.status();
    return fetch_decisions(context, *name, filter);
  }
  const auto text = read_text_source(options.decisions, kMaxDecisionBytes, "record of decisions");
  if (!text.ok()) return text.status();
  return read_decisions(*text, source_name(options.decisions), filter);
}

absl::Status save(const Decisions& decisions, const std::string& path) {
  std::ofstream file{path, std::ios::binary | std::ios::trunc};
  for (const auto& line : decisions.lines) file << line << '\n';
  file.close();
  return file ? absl::OkStatus() : absl::PermissionDeniedError(absl::StrCat("cannot write the records to ", path));
}

std::string word(policy::Decision decision) { return std::string{policy::to_string(decision)}; }

void print_report(const policy::ReplayReport& report) {
  for (std::size_t i = 0; i < std::min(report.changes.size(), kMaxShownChanges); ++i) {
    const auto& change = report.changes[i];
    const auto by = change.question.binary.empty() ? "" : absl::StrCat(" by ", change.question.binary);
    print(absl::StrCat(word(change.from), " -> ", word(change.to), "  ", change.count, "x  ", policy::describe(change.question), by,
                       change.rule.empty() ? "" : absl::StrCat(" (rule ", change.rule, ")")));
  }
  if (report.changes.size() > kMaxShownChanges) print(absl::StrCat("... ", report.changes.size() - kMaxShownChanges, " more"));
  for (const auto& what : report.unresolved_inputs) print("unresolved  " + what);
  const auto& under = report.recorded_under;
  print(absl::StrCat(report.decisions, " decisions, ", report.changed, " changed, ", report.unresolved, " unresolved",
                     under.empty() ? ""
                     : under.size() == 1
                         ? absl::StrCat(" (recorded under ", short_hash(under.front()), ")")
                         : absl::StrCat(" (recorded under ", short_hash(under.front()), " and ", under.size() - 1, " before)")));
}

json::object document_of(const policy::ReplayReport& report, std::uint64_t dropped) {
  json::array changes;
  for (const auto& change : report.changes) {
    changes.push_back(json::object{{"from", word(change.from)},
                                   {"to", word(change.to)},
                                   {"count", change.count},
                                   {"rule", text_or_null(change.rule)},
                                   {"input", json::parse(policy::to_json(change.question))}});
  }
  return {{"decisions", report.decisions},
          {"changed", report.changed},
          {"unresolved", report.unresolved},
          {"dropped", dropped},
          {"changes", std::move(changes)}};
}

absl::StatusOr<int> run(Context& context, const Options& options) {
  if (!options.name.empty() && !options.decisions.empty())
    return absl::InvalidArgumentError("a sandbox and --decisions exclude each other: the records come from one of them");
  if (options.decisions == "-" && options.candidate == "-") return absl::InvalidArgumentError("stdin ('-') can be read once");
  const auto candidate = load_policy_file(options.candidate);
  if (!candidate.ok()) return candidate.status();
  const auto prepared = policy::Replay::prepare(**candidate, options.relaxed);
  if (!prepared.ok()) return prepared.status();
  const auto decisions = load(context, options);
  if (!decisions.ok()) return decisions.status();
  if (!options.save.empty()) {
    if (auto status = save(*decisions, options.save); !status.ok()) return status;
  }
  const auto report = policy::replay(*prepared, decisions->records);
  if (options.json_output) {
    print_document(document_of(report, decisions->dropped), Format::json);
  } else {
    print_report(report);
    if (decisions->dropped > 0) note(absl::StrCat(decisions->dropped, " older decisions were not kept by the supervisor"));
  }
  return report.changed == 0 ? kYes : kNo;
}

}  // namespace

void add_policy_replay(CLI::App& policy, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = policy.add_subcommand("replay", "What a candidate policy would have decided otherwise");
  command->add_option("name", o->name, "Sandbox whose records are judged; default: the sandbox last used");
  command->add_option("--decisions", o->decisions, "File with records instead; `-` is stdin");
  command->add_option("--policy", o->candidate, "The candidate")->required();
  command->add_option("--since", o->since, "Records from then on: 2026-01-02T03:04:05Z, or 15m back");
  command->add_option("--limit", o->limit, "The newest so many")->check(CLI::Range(std::size_t{1}, policy::kMaxRecords));
  command->add_option("--save", o->save, "Write the records that were read to this file");
  command->add_flag("--relaxed", o->relaxed, "Programs do not matter");
  add_text_or_json(*command, o->json_output);
  command->callback([&chosen, o] { chosen = [o](Context& c) { return answer_or_invalid(run(c, *o)); }; });
}

}  // namespace openshell::cli
