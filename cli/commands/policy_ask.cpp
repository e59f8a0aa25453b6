// `policy explain` and `policy diff`, and what the commands share that only ask.
#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "cli/commands/policy_questions.hpp"
#include "cli/document_diff.hpp"
#include "cli/policy_file.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/terminal.hpp"
#include "cli/text_source.hpp"
#include "egress/destination/address_rules.hpp"
#include "egress/http/target.hpp"
#include "policy/explanation.hpp"
#include "policy/hash.hpp"
#include "policy/parse.hpp"
#include "policy/question_document.hpp"
#include "sandbox.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

// ---- explain

struct ExplainOptions {
  std::string name, file, input, to, binary, method, path;
  std::vector<std::string> ancestors, query;
  bool relaxed = false, json_output = false;
};

absl::Status set_destination(const std::string& to, policy::Question& question) {
  const auto colon = to.rfind(':');
  std::uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(to.substr(colon + 1), &port) || port < 1 || port > 65'535)
    return absl::InvalidArgumentError(absl::StrCat("--to expects HOST:PORT, got '", to, "'"));
  auto host = absl::AsciiStrToLower(to.substr(0, colon));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.ends_with('.')) host.pop_back();
  if (host.empty()) return absl::InvalidArgumentError(absl::StrCat("--to names no host, got '", to, "'"));
  question.host = host;
  question.port = static_cast<std::uint16_t>(port);
  return absl::OkStatus();
}

absl::Status set_request(const ExplainOptions& options, policy::Question& question) {
  if (options.method.empty() != options.path.empty()) return absl::InvalidArgumentError("--method and --path go together");
  if (options.method.empty()) {
    return options.query.empty() ? absl::OkStatus() : absl::InvalidArgumentError("--query needs --method and --path");
  }
  auto target = egress::http::canonical_target(options.path, true);
  if (!target.ok()) return absl::InvalidArgumentError(absl::StrCat("--path: ", target.status().message()));
  policy::Question::Http request{options.method, target->path, {}, {}, {}};
  if (target->query) {
    auto pairs = egress::http::parse_query(*target->query);
    if (!pairs.ok()) return absl::InvalidArgumentError(absl::StrCat("--path: ", pairs.status().message()));
    request.query = *std::move(pairs);
  }
  for (const auto& pair : options.query) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("--query expects K=V, got '", pair, "'"));
    request.query.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  question.request = std::move(request);
  return absl::OkStatus();
}

absl::StatusOr<policy::Question> read_input(const ExplainOptions& options) {
  const bool other = !options.to.empty() || !options.binary.empty() || !options.ancestors.empty() || !options.method.empty() ||
                     !options.path.empty() || !options.query.empty();
  if (other)
    return absl::InvalidArgumentError("--input says everything: it goes without --to, --binary, --ancestor, --method, --path, --query");
  const auto text = read_text_source(options.input, policy::ParseLimits{}.bytes, "input document");
  if (!text.ok()) return text.status();
  auto question = policy::parse_question(*text, source_name(options.input));
  if (question.ok()) question->relaxed = options.relaxed;
  return question;
}

absl::StatusOr<policy::Question> question_of(const ExplainOptions& options) {
  if (!options.input.empty()) return read_input(options);
  if (options.to.empty()) return absl::InvalidArgumentError("say what is asked: --to HOST:PORT, or --input FILE");
  policy::Question question;
  question.relaxed = options.relaxed;
  question.binary = options.binary;
  question.ancestors = options.ancestors;
  if (auto status = set_destination(options.to, question); !status.ok()) return status;
  if (options.binary.empty() && !options.relaxed)
    return absl::InvalidArgumentError("--binary is required, or --relaxed where programs do not matter");
  if (auto status = set_request(options, question); !status.ok()) return status;
  return question;
}

json::object explanation_document(const policy::Explanation& explanation) {
  const auto& judgement = explanation.judgement;
  json::array near;
  for (const auto& miss : explanation.near) near.push_back(json::object{{"rule", miss.rule}, {"failed_field", miss.field}});
  return {{"decision", to_json_string(policy::to_string(judgement.decision))},
          {"near", std::move(near)},
          {"rule", text_or_null(judgement.rule)},
          {"endpoint_index", judgement.endpoint ? json::value(*judgement.endpoint) : json::value(nullptr)},
          {"smallest_change", text_or_null(explanation.smallest_change)}};
}

void print_explanation(const policy::Question& question, const policy::Explanation& explanation) {
  const auto& judgement = explanation.judgement;
  const auto by = question.relaxed || question.binary.empty() ? "" : absl::StrCat(" by ", question.binary);
  print(absl::StrCat(std::string{policy::to_string(judgement.decision)}, "  ", policy::describe(question), by));
  if (judgement.endpoint)
    print(absl::StrCat("rule:    ", judgement.rule, " endpoint ", *judgement.endpoint, " (", judgement.handling, ")"));
  if (!judgement.reason.empty()) print("reason:  " + judgement.reason);
  for (const auto& miss : explanation.near) print(absl::StrCat("near:    ", miss.rule, ": ", miss.field));
  if (!explanation.smallest_change.empty()) print("change:  " + explanation.smallest_change);
}

absl::StatusOr<int> explain(Context& context, const ExplainOptions& options) {
  auto question = question_of(options);
  if (!question.ok()) return question.status();
  const auto policy = chosen_policy(context, options.name, options.file);
  if (!policy.ok()) return policy.status();
  auto explanation = policy::explain(**policy, *question);
  if (!explanation.ok()) return explanation.status();
  if (egress::is_control_plane_port(Port{question->port})) explanation->smallest_change.clear();  // no policy opens it
  if (options.json_output) {
    print_document(explanation_document(*explanation), Format::json);
  } else {
    print_explanation(*question, *explanation);
  }
  return explanation->judgement.decision == policy::Decision::deny ? kNo : kYes;
}

// ---- diff

struct DiffOptions {
  std::string before, after;
  bool json_output = false;
};

std::string flow(const json::value& value) { return json::serialize(value); }

void print_difference(const Difference& difference) {
  if (difference.before && difference.after) {
    print(absl::StrCat("~ ", difference.path, ": ", flow(*difference.before), " -> ", flow(*difference.after)));
  } else if (difference.before) {
    print(absl::StrCat("- ", difference.path, ": ", flow(*difference.before)));
  } else {
    print(absl::StrCat("+ ", difference.path, ": ", flow(*difference.after)));
  }
}

json::object difference_document(const Difference& difference) {
  json::object out{{"path", difference.path},
                   {"kind", difference.before && difference.after ? "changed"
                            : difference.before                   ? "removed"
                                                                  : "added"}};
  out["old"] = difference.before.value_or(nullptr);
  out["new"] = difference.after.value_or(nullptr);
  return out;
}

absl::StatusOr<int> diff(Context& context, const DiffOptions& options) {
  auto before = policy_from(context, options.before);
  if (!before.ok()) return before.status();
  auto after = policy_from(context, options.after);
  if (!after.ok()) return after.status();
  const auto hash_a = policy::policy_hash(**before).str();
  const auto hash_b = policy::policy_hash(**after).str();
  std::vector<Difference> found;
  if (hash_a != hash_b) found = differences(policy_document(**before), policy_document(**after));
  if (options.json_output) {
    json::array changes;
    for (const auto& difference : found) changes.push_back(difference_document(difference));
    print_document(json::object{{"changed", hash_a != hash_b}, {"hash_a", hash_a}, {"hash_b", hash_b}, {"changes", changes}}, Format::json);
  } else if (hash_a == hash_b) {
    print(absl::StrCat("unchanged (hash ", short_hash(hash_a), ")"));
  } else {
    for (const auto& difference : found) print_difference(difference);
    if (found.empty()) print("~ only the order of list elements differs");
  }
  return hash_a == hash_b ? kYes : kNo;
}

}  // namespace

absl::StatusOr<int> answer_or_invalid(absl::StatusOr<int> result) {
  if (result.ok()) return result;
  print_error(result.status());
  return kInvalid;
}

void add_text_or_json(CLI::App& command, bool& json_output) {
  command
      .add_option_function<std::string>(
          "-o,--output", [&json_output](const std::string& word) { json_output = word == "json"; }, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
}

absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> chosen_policy(Context& context, const std::string& sandbox,
                                                                          const std::string& file) {
  if (!sandbox.empty() && !file.empty())
    return absl::InvalidArgumentError("a sandbox and --policy exclude each other: one policy is asked");
  if (!file.empty()) return load_policy_file(file);
  auto name = context.sandbox_or_last(sandbox);
  if (!name.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("say which policy is asked: --policy FILE, or the name of a sandbox (", name.status().message(), ")"));
  return effective_policy(context, *name);
}

json::string to_json_string(std::string_view text) { return json::string(text.data(), text.size()); }
json::value text_or_null(const std::string& text) { return text.empty() ? json::value(nullptr) : json::value(text); }

void add_policy_questions(CLI::App& policy, Action& chosen) {
  add_policy_test(policy, chosen);
  add_policy_replay(policy, chosen);
  {
    auto o = std::make_shared<ExplainOptions>();
    auto* command = policy.add_subcommand("explain", "What a policy decides about one connection or request, and why");
    command->add_option("name", o->name, "Sandbox whose policy is asked; default: the sandbox last used");
    command->add_option("--policy", o->file, "Policy file; needs no gateway");
    command->add_option("--to", o->to, "HOST:PORT");
    command->add_option("--binary", o->binary, "Program that connects");
    command->add_option("--ancestor", o->ancestors, "Its parent, then that one's")->allow_extra_args(false);
    command->add_option("--method", o->method);
    command->add_option("--path", o->path, "Path of the request, its query included");
    command->add_option("--query", o->query, "K=V")->allow_extra_args(false);
    command->add_option("--input", o->input, "The whole question as a document, JSON or YAML; `-` is stdin");
    command->add_flag("--relaxed", o->relaxed, "Programs do not matter");
    add_text_or_json(*command, o->json_output);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return answer_or_invalid(explain(c, *o)); }; });
  }
  {
    auto o = std::make_shared<DiffOptions>();
    auto* command = policy.add_subcommand("diff", "What differs between two policies");
    command->add_option("before", o->before, "FILE, @SANDBOX or @SANDBOX:REVISION")->required();
    command->add_option("after", o->after, "FILE, @SANDBOX or @SANDBOX:REVISION")->required();
    add_text_or_json(*command, o->json_output);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return answer_or_invalid(diff(c, *o)); }; });
  }
}

}  // namespace openshell::cli
