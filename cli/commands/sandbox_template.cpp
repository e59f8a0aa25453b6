#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <google/protobuf/util/json_util.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/delete_each.hpp"
#include "cli/credential_warning.hpp"
#include "cli/key_value.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;
using StringMap = google::protobuf::Map<std::string, std::string>;

std::map<std::string, std::string> sorted(const StringMap& map) { return {map.begin(), map.end()}; }

json::object map_document(const StringMap& map) {
  json::object out;
  for (const auto& [key, value] : sorted(map)) out[key] = value;
  return out;
}

std::string gpu_text(const v1::SandboxResources& resources) {
  if (!resources.has_gpu()) return "-";
  return resources.gpu().has_count() ? std::to_string(resources.gpu().count()) : "default";
}

std::int64_t ready_ms(const v1::SandboxWorkloadTemplate& made) {
  const auto& within = made.spec().desired_service_level().startup().ready_within();
  return within.seconds() * 1'000 + within.nanos() / 1'000'000;
}

json::object template_document(const v1::SandboxWorkloadTemplate& made) {
  const auto& meta = made.metadata();
  const auto& workload = made.spec().workload();
  json::object out{{"id", meta.id()}, {"name", meta.name()}, {"workspace", meta.workspace()}, {"image", workload.image()}};
  if (meta.resource_version() > 0) out["resource_version"] = meta.resource_version();
  if (meta.has_created_time()) out["created_at"] = show_time(meta.created_time());
  if (!meta.labels().empty()) out["labels"] = map_document(meta.labels());
  if (!meta.annotations().empty()) out["annotations"] = map_document(meta.annotations());
  if (!workload.environment().empty()) out["environment"] = map_document(workload.environment());
  json::object resources;
  if (!workload.resources().cpu().empty()) resources["cpu"] = workload.resources().cpu();
  if (!workload.resources().memory().empty()) resources["memory"] = workload.resources().memory();
  if (workload.resources().has_gpu()) {
    resources["gpu"] = workload.resources().gpu().has_count() ? json::value(workload.resources().gpu().count()) : json::value("default");
  }
  if (!resources.empty()) out["resources"] = resources;
  if (!made.spec().driver_config().fields().empty()) {
    std::string text;
    boost::system::error_code error;
    if (google::protobuf::util::MessageToJsonString(made.spec().driver_config(), &text).ok())
      out["driver_config"] = json::parse(text, error);
  }
  if (made.spec().desired_service_level().has_startup()) {
    json::object startup{{"max_burst", made.spec().desired_service_level().startup().max_burst()}};
    if (ready_ms(made) > 0) startup["ready_within_ms"] = ready_ms(made);
    out["startup"] = startup;
  }
  return out;
}

std::vector<std::string> columns(const v1::SandboxWorkloadTemplate& made) {
  const auto shown = [](const std::string& text) { return text.empty() ? std::string{"-"} : text; };
  const auto& workload = made.spec().workload();
  const auto burst = made.spec().desired_service_level().startup().max_burst();
  const auto labels = sorted(made.metadata().labels());
  return {made.metadata().name(),
          shown(workload.image()),
          shown(workload.resources().cpu()),
          shown(workload.resources().memory()),
          gpu_text(workload.resources()),
          ready_ms(made) > 0 ? absl::StrCat(ready_ms(made), "ms") : "-",
          burst > 0 ? std::to_string(burst) : "-",
          labels.empty() ? "-" : absl::StrJoin(labels, ",", absl::PairFormatter("="))};
}

const std::vector<std::string> kHeader{"NAME", "IMAGE", "CPU", "MEMORY", "GPU", "READY", "BURST", "LABELS"};

// ---- create ----

struct CreateOptions {
  std::string name, image, cpu, memory, driver_config, ready_within, gpu;
  std::uint32_t max_burst = 0;
  bool wants_gpu = false, no_warnings = false;
  std::vector<std::string> labels, annotations, environment;
  Format format = Format::table;
};

absl::Status fill(const std::vector<std::string>& pairs, const char* what, StringMap* into) {
  for (const auto& each : pairs) {
    auto pair = key_value(each);
    if (!pair) return absl::InvalidArgumentError(absl::StrCat("invalid ", what, " format '", each, "', expected key=value"));
    (*into)[pair->first] = std::move(pair->second);
  }
  return absl::OkStatus();
}

/// 500ms, 30s, 5m, 1h; a bare number is seconds.
absl::Status fill_ready_within(const std::string& text, google::protobuf::Duration* into) {
  const auto unit_at = text.find_first_not_of("0123456789.");
  double count = 0;
  const auto unit = unit_at == std::string::npos ? std::string{"s"} : text.substr(unit_at);
  const double factor = unit == "ms" ? 0.001 : unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3'600 : 0;
  if (!absl::SimpleAtod(text.substr(0, unit_at), &count) || factor == 0)
    return absl::InvalidArgumentError(absl::StrCat("invalid duration: ", text, " (expected e.g. 500ms, 30s, 5m, 1h)"));
  const auto ms = std::llround(count * factor * 1'000);
  if (ms <= 0) return absl::InvalidArgumentError("--ready-within must be greater than zero");
  into->set_seconds(ms / 1'000);
  into->set_nanos(static_cast<std::int32_t>(ms % 1'000) * 1'000'000);
  return absl::OkStatus();
}

absl::Status fill_gpu(const std::string& text, v1::GpuResourceRequirements* into) {
  if (text.empty()) return absl::OkStatus();
  std::uint32_t count = 0;
  if (!absl::SimpleAtoi(text, &count)) return absl::InvalidArgumentError("GPU count must be a positive integer");
  if (count == 0) return absl::InvalidArgumentError("GPU count must be greater than 0");
  into->set_count(count);
  return absl::OkStatus();
}

absl::Status fill_workload(const CreateOptions& options, v1::SandboxWorkloadTemplateSpec& spec) {
  auto& workload = *spec.mutable_workload();  // present even where nothing of it is set
  workload.set_image(options.image);
  if (auto filled = fill(options.environment, "environment", workload.mutable_environment()); !filled.ok()) return filled;
  if (!options.cpu.empty()) workload.mutable_resources()->set_cpu(options.cpu);
  if (!options.memory.empty()) workload.mutable_resources()->set_memory(options.memory);
  if (options.wants_gpu) {
    if (auto filled = fill_gpu(options.gpu, workload.mutable_resources()->mutable_gpu()); !filled.ok()) return filled;
  }
  if (!options.driver_config.empty()) {
    if (!google::protobuf::util::JsonStringToMessage(options.driver_config, spec.mutable_driver_config()).ok())
      return absl::InvalidArgumentError("--driver-config-json must be a JSON object keyed by driver name");
  }
  if (!options.ready_within.empty()) {
    auto* within = spec.mutable_desired_service_level()->mutable_startup()->mutable_ready_within();
    if (auto filled = fill_ready_within(options.ready_within, within); !filled.ok()) return filled;
  }
  if (options.max_burst > 0) spec.mutable_desired_service_level()->mutable_startup()->set_max_burst(options.max_burst);
  return absl::OkStatus();
}

absl::StatusOr<int> create(Context& context, const CreateOptions& options) {
  auto request = context.scoped<v1::CreateSandboxTemplateRequest>();
  auto& made = *request.mutable_template_();
  made.mutable_metadata()->set_name(options.name);
  if (auto filled = fill(options.labels, "label", made.mutable_metadata()->mutable_labels()); !filled.ok()) return filled;
  if (auto filled = fill(options.annotations, "annotation", made.mutable_metadata()->mutable_annotations()); !filled.ok()) return filled;
  if (auto filled = fill_workload(options, *made.mutable_spec()); !filled.ok()) return filled;
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (!options.no_warnings) warn_of_credentials(context, **client, keys_of(made.spec().workload().environment()));
  auto answer = (*client)->create_template(request);
  if (!answer.ok()) return answer.status();
  if (options.format == Format::table) {
    print(absl::StrCat(mark(kDone), " Created sandbox template ", options.name));
  } else {
    print_document(template_document(answer->template_()), options.format);
  }
  return 0;
}

// ---- get, list, delete ----

struct GetOptions {
  std::string name;
  Format format = Format::table;
};

absl::StatusOr<int> get(Context& context, const GetOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::GetSandboxTemplateRequest>();
  request.set_name(options.name);
  auto answer = (*client)->get_template(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    print_document(template_document(answer->template_()), options.format);
    return 0;
  }
  const auto values = columns(answer->template_());
  for (std::size_t i = 0; i < values.size(); ++i) print(absl::StrCat(kHeader[i], ": ", values[i]));
  return 0;
}

struct ListOptions {
  int page_size = 100;
  std::string page_token, selector;
  bool names = false, all_workspaces = false;
  Format format = Format::table;
};

absl::StatusOr<int> list(Context& context, const ListOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::ListSandboxTemplatesRequest>(options.all_workspaces);
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  request.set_label_selector(options.selector);
  auto answer = (*client)->list_templates(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    json::array items;
    for (const auto& made : answer->templates()) items.push_back(template_document(made));
    print_document(json::object{{"templates", items}, {"next_page_token", answer->next_page_token()}}, options.format);
    return 0;
  }
  if (answer->templates().empty() && !options.names) print("No sandbox templates found.");
  std::vector<std::vector<std::string>> rows{kHeader};
  if (options.all_workspaces) rows[0].insert(rows[0].begin(), "WORKSPACE");
  for (const auto& made : answer->templates()) {
    const auto& meta = made.metadata();
    if (options.names) print(options.all_workspaces ? meta.workspace() + "/" + meta.name() : meta.name());
    rows.push_back(columns(made));
    if (options.all_workspaces) rows.back().insert(rows.back().begin(), meta.workspace());
  }
  if (!options.names && rows.size() > 1) std::fputs(to_table(rows).c_str(), stdout);
  note_next_page(answer->next_page_token());
  return 0;
}

absl::StatusOr<int> remove(Context& context, const std::vector<std::string>& names) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  return delete_each(names, "sandbox template", "sandbox templates", [&](const std::string& name) {
    auto request = context.scoped<v1::DeleteSandboxTemplateRequest>();
    request.set_name(name);
    request.set_allow_missing(true);
    auto answer = (*client)->delete_template(request);
    if (!answer.ok()) return answer.status();
    const bool absent = answer->outcome() == v1::DELETION_OUTCOME_ALREADY_ABSENT;
    print(absent ? absl::StrCat("Sandbox template ", name, " not found.") : absl::StrCat(mark(kDone), " Deleted sandbox template ", name));
    return absl::OkStatus();
  });
}

void add_create(CLI::App& group, Action& chosen) {
  auto o = std::make_shared<CreateOptions>();
  auto* command = group.add_subcommand("create", "Store a workload that sandboxes can be made from");
  command->add_option("name", o->name)->required();
  command->add_option("--image", o->image);
  command->add_option("--cpu", o->cpu, "500m, 1, 2.5");
  command->add_option("--memory", o->memory, "512Mi, 4G");
  auto* gpu = command->add_option("--gpu", o->gpu, "A count, or nothing for the driver's default")->expected(0, 1);
  command->add_option("--driver-config-json", o->driver_config, "A JSON object keyed by driver name");
  command->add_option("--ready-within", o->ready_within, "500ms, 30s, 5m");
  command->add_option("--max-burst", o->max_burst)->check(CLI::PositiveNumber);
  command->add_option("--label", o->labels, "K=V; repeatable")->take_all()->allow_extra_args(false);
  command->add_option("--annotation", o->annotations, "K=V; repeatable")->take_all()->allow_extra_args(false);
  command->add_option("--env", o->environment, "K=V; repeatable")->take_all()->allow_extra_args(false);
  command->add_flag("--no-credential-warnings", o->no_warnings, "Say nothing of secrets in --env");
  add_output_option(*command, o->format);
  command->callback([&chosen, o, gpu] {
    o->wants_gpu = gpu->count() > 0;
    chosen = [o](Context& c) { return create(c, *o); };
  });
}

}  // namespace

void add_sandbox_template(CLI::App& sandbox, Action& chosen) {
  auto* group = sandbox.add_subcommand("template", "Stored workloads: never changed, only made and deleted");
  add_create(*group, chosen);
  {
    auto o = std::make_shared<GetOptions>();
    auto* command = group->add_subcommand("get", "Show one template");
    command->add_option("name", o->name)->required();
    add_output_option(*command, o->format);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return get(c, *o); }; });
  }
  {
    auto o = std::make_shared<ListOptions>();
    auto* command = group->add_subcommand("list", "List templates");
    add_paging(*command, o->page_size, o->page_token);
    command->add_option("--label-selector", o->selector, "K=V,K2=V2");
    auto* names = command->add_flag("--names", o->names, "Names only");
    command->add_flag("--all-workspaces", o->all_workspaces);
    add_output_option(*command, o->format);
    names->excludes("--output");
    command->callback([&chosen, o] { chosen = [o](Context& c) { return list(c, *o); }; });
  }
  {
    auto names = std::make_shared<std::vector<std::string>>();
    auto* command = group->add_subcommand("delete", "Delete templates; sandboxes made from them stay");
    command->add_option("names", *names)->required();
    command->callback([&chosen, names] { chosen = [names](Context& c) { return remove(c, *names); }; });
  }
}

}  // namespace openshell::cli
