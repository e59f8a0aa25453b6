#include <absl/strings/str_cat.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <regex>
#include <sstream>

#include "cli/commands/commands.hpp"
#include "cli/credential_warning.hpp"
#include "cli/foreground.hpp"
#include "cli/key_value.hpp"
#include "cli/policy_file.hpp"
#include "cli/sandbox_document.hpp"
#include "cli/ssh/ssh_program.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr int kProviderPage = 100;
constexpr int kDefaultProvisionSeconds = 300;

struct Options {
  std::string name, workload_template, image, policy, cpu, memory, restart_policy = "never";
  std::vector<std::string> providers, labels, environment;
  bool detach = false, no_keep = false, no_auto_providers = false, auto_providers = false, no_warnings = false;
  std::optional<bool> tty;  // unset: as stdin and stdout are
  Format format = Format::table;
};

absl::Status fill_pairs(const Options& options, v1::CreateSandboxRequest& request) {
  static const std::regex key_pattern{"[A-Za-z_][A-Za-z0-9_]*"};
  for (const auto& label : options.labels) {
    auto pair = key_value(label);
    if (!pair) return absl::InvalidArgumentError(absl::StrCat("invalid label format '", label, "', expected key=value"));
    (*request.mutable_labels())[pair->first] = std::move(pair->second);
  }
  for (const auto& each : options.environment) {
    if (each.starts_with('=')) return absl::InvalidArgumentError("--env key cannot be empty");
    auto pair = key_value(each);
    if (!pair) return absl::InvalidArgumentError(absl::StrCat("--env expects KEY=VALUE, got '", each, "'"));
    const auto& key = pair->first;
    if (!std::regex_match(key, key_pattern))
      return absl::InvalidArgumentError(absl::StrCat("--env key must match [A-Za-z_][A-Za-z0-9_]*; got '", key, "'"));
    if (key.starts_with("OPENSHELL_"))
      return absl::InvalidArgumentError(absl::StrCat("--env keys starting with OPENSHELL_ are reserved; got '", key, "'"));
    (*request.mutable_spec()->mutable_environment())[key] = std::move(pair->second);
  }
  return absl::OkStatus();
}

void fill_template(const Options& options, v1::SandboxSpec& spec) {
  if (!options.image.empty()) spec.mutable_template_()->set_image(options.image);
  if (options.cpu.empty() && options.memory.empty()) return;
  auto& limits = *(*spec.mutable_template_()->mutable_resources()->mutable_fields())["limits"].mutable_struct_value()->mutable_fields();
  if (!options.cpu.empty()) limits["cpu"].set_string_value(options.cpu);
  if (!options.memory.empty()) limits["memory"].set_string_value(options.memory);
}

/// Every name must exist: nothing is inferred and nothing is made here.
absl::Status fill_providers(Context& context, GatewayClient& client, const Options& options, v1::SandboxSpec& spec) {
  if (options.providers.empty()) return absl::OkStatus();
  std::vector<std::string> known;
  auto request = context.scoped<v1::ListProvidersRequest>();
  request.set_page_size(kProviderPage);
  do {
    auto page = client.list_providers(request);
    if (!page.ok()) return page.status();
    for (const auto& provider : page->providers()) known.push_back(provider.metadata().name());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  for (const auto& name : options.providers) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      auto ask = context.scoped<v1::GetProviderProfileRequest>();
      ask.set_id(name);
      if (auto profile = client.get_provider_profile(ask); !profile.ok()) {
        return absl::NotFoundError(absl::StrCat("provider '", name, "' not found and no provider profile named '", name,
                                                "' is available. Create or import the profile first, then create the provider"));
      }
      return absl::FailedPreconditionError(absl::StrCat("missing required provider '", name,
                                                        "'. Create it first with `openshell provider create --type ", name, " --name ",
                                                        name, " --credential KEY`"));
    }
    if (std::find(spec.providers().begin(), spec.providers().end(), name) == spec.providers().end()) spec.add_providers(name);
  }
  return absl::OkStatus();
}

/// Whether nobody attaches: asked for, or there is neither a command nor somebody to type one.
bool detaches(const Context& context, const Options& options) {
  const bool attended = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  return options.detach || (!options.no_keep && !context.flags().trailing && !attended);
}

absl::StatusOr<v1::CreateSandboxRequest> make_request(Context& context, const Options& options) {
  auto request = context.scoped<v1::CreateSandboxRequest>();
  request.set_name(options.name);
  if (options.no_keep) (*request.mutable_annotations())["openshell.nvidia.com/retention"] = "ephemeral";
  if (auto filled = fill_pairs(options, request); !filled.ok()) return filled;
  auto& spec = *request.mutable_spec();
  for (const auto& word : context.flags().trailing.value_or(std::vector<std::string>{})) spec.add_command(word);
  spec.set_tty(options.tty.value_or(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1));
  request.set_await_main_process_attachment(options.format == Format::table && !detaches(context, options));
  spec.set_restart_policy(options.restart_policy == "always"       ? v1::SANDBOX_RESTART_POLICY_ALWAYS
                          : options.restart_policy == "on-failure" ? v1::SANDBOX_RESTART_POLICY_ON_FAILURE
                                                                   : v1::SANDBOX_RESTART_POLICY_NEVER);
  request.set_workload_template(options.workload_template);
  if (options.workload_template.empty()) fill_template(options, spec);
  auto path = options.policy;
  if (const char* fallback = std::getenv("OPENSHELL_SANDBOX_POLICY"); path.empty() && fallback != nullptr) path = fallback;
  if (!path.empty()) {
    auto loaded = load_policy_file(path);
    if (!loaded.ok()) return loaded.status();
    *spec.mutable_policy() = **loaded;
  }
  return request;
}

int provision_seconds() {
  const char* text = std::getenv("OPENSHELL_PROVISION_TIMEOUT");
  const int seconds = text == nullptr ? 0 : std::atoi(text);
  return seconds > 0 ? seconds : kDefaultProvisionSeconds;
}

/// Follows the sandbox until it is ready, has ended, or failed.
class Provisioning {
 public:
  Provisioning(std::string name, bool quiet) : name_{std::move(name)}, quiet_{quiet} { step("Requesting compute..."); }

  /// False once the outcome is known.
  bool take(const v1::SandboxStreamEvent& event) {
    if (event.has_warning()) note("WARN " + event.warning().message());
    if (event.has_event()) progress(event.event());
    if (event.has_sandbox()) return snapshot(event.sandbox());
    return !expired();
  }
  bool snapshot(const v1::Sandbox& sandbox) {
    latest_ = sandbox;
    const auto phase = sandbox.status().phase();
    if (phase == v1::SANDBOX_PHASE_READY || phase == v1::SANDBOX_PHASE_COMPLETED) return finish(absl::OkStatus());
    if (phase == v1::SANDBOX_PHASE_STOPPED && sandbox.status().has_exit_code()) return finish(absl::OkStatus());
    const auto reason = not_ready_reason(sandbox);
    if (phase == v1::SANDBOX_PHASE_ERROR) {
      if (reason.starts_with("MainProcessFailed")) return finish(absl::OkStatus());
      return finish(absl::AbortedError(absl::StrCat("sandbox entered error phase while provisioning", reason.empty() ? "" : ": ", reason)));
    }
    if (!reason.empty() && reason != shown_) step(shown_ = reason);
    return !expired();
  }

  const absl::Status& outcome() const { return outcome_; }
  const v1::Sandbox& sandbox() const { return latest_; }
  bool done() const { return done_; }
  void ended(const absl::Status& status) {
    if (!done_)
      outcome_ = status.ok() ? absl::UnavailableError("sandbox provisioning stream ended before reaching terminal phase") : status;
  }

 private:
  bool finish(absl::Status status) {
    outcome_ = std::move(status);
    done_ = true;
    return false;
  }
  bool expired() {
    if (Clock::now() - active_ < std::chrono::seconds{provision_seconds()}) return false;
    finish(absl::DeadlineExceededError(absl::StrCat("sandbox provisioning timed out after ", provision_seconds(), "s",
                                                    shown_.empty() ? "" : ". Last reported status: ", shown_)));
    return true;
  }
  void progress(const v1::PlatformEvent& event) {
    bool moved = false;
    for (const auto* key : {"openshell.progress.complete_step", "openshell.progress.active_step", "openshell.progress.active_detail"}) {
      moved = moved || event.metadata().contains(key);
    }
    if (!moved) return;
    active_ = Clock::now();
    if (const auto label = event.metadata().find("openshell.progress.complete_label"); label != event.metadata().end()) step(label->second);
  }
  void step(const std::string& text) const {
    if (!quiet_) print(fmt::format("  [{:.1f}s] {}", std::chrono::duration<double>(Clock::now() - start_).count(), text));
  }

  std::string name_;
  bool quiet_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point active_ = start_;  // the last sign of progress
  std::string shown_;
  absl::Status outcome_;
  bool done_ = false;
  v1::Sandbox latest_;
};

absl::StatusOr<int> create(Context& context, const Options& options) {
  const bool attached = options.format == Format::table && !detaches(context, options);
  if (context.flags().trailing && !options.detach && !attached) {
    return absl::InvalidArgumentError(
        "structured output cannot be combined with an attached trailing command; use table output to stream the command or add --detach");
  }
  if (attached) {
    if (auto program = find_ssh_program(); !program.ok()) return program.status();
  }
  auto request = make_request(context, options);
  if (!request.ok()) return request.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (!options.no_warnings) warn_of_credentials(context, **client, keys_of(request->spec().environment()));
  if (auto filled = fill_providers(context, **client, options, *request->mutable_spec()); !filled.ok()) return filled;
  auto created = (*client)->create_sandbox(*request);
  if (!created.ok()) {
    if (created.status().code() != absl::StatusCode::kAlreadyExists) return created.status();
    const auto shown = options.name.empty() ? "<name>" : options.name;
    return absl::AlreadyExistsError(absl::StrCat(created.status().message(), "\n\nhint: delete it first with: openshell sandbox delete ",
                                                 shown, "\nor use a different name"));
  }
  const auto name = created->sandbox().metadata().name();
  if (!options.no_keep) context.remember(name);
  const bool structured = options.format != Format::table;
  if (structured) {
    note("Provisioning sandbox (structured output on stdout)...");
  } else {
    print("\nCreated sandbox: " + name + "\n");
  }
  std::fflush(stdout);
  Provisioning provisioning{name, structured};
  if (provisioning.snapshot(created->sandbox())) {
    auto watch = context.scoped<v1::WatchSandboxRequest>();
    watch.set_sandbox(name);
    watch.set_follow_status(true);
    watch.set_follow_logs(true);
    watch.set_follow_events(true);
    watch.set_log_tail_lines(200);
    watch.set_event_tail(50);
    watch.add_log_sources("gateway");
    provisioning.ended((*client)->watch(watch, [&](const v1::SandboxStreamEvent& event) { return provisioning.take(event); }));
  }
  if (!provisioning.outcome().ok()) {
    const bool retained = provisioning.sandbox().status().provisioning().has_timeout_time();
    if (options.no_keep && provisioning.sandbox().status().phase() == v1::SANDBOX_PHASE_ERROR && !retained) delete_quietly(context, name);
    return provisioning.outcome();
  }
  if (attached) return run_in_foreground(context, {name, request->spec().tty(), options.no_keep});
  if (structured) {
    auto document = sandbox_document(provisioning.sandbox());
    json::object urls;
    for (const auto& [service, url] : created->service_urls()) urls[service] = url;
    document["service_urls"] = urls;
    print_document(document, options.format);
  }
  return 0;
}

}  // namespace

void add_sandbox_create(CLI::App& sandbox, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = sandbox.add_subcommand("create", "Create a sandbox and wait until it is ready");
  command->add_option("--name", o->name, "At most 19 characters, a DNS label; made by the gateway where absent");
  auto* stored = command->add_option("--template", o->workload_template, "A stored workload (`sandbox template`)");
  command->add_option("--from", o->image, "Image reference")->excludes(stored);
  command->add_option("--policy", o->policy, "Policy file, YAML or JSON; default OPENSHELL_SANDBOX_POLICY");
  command->add_option("--provider", o->providers, "Provider to attach; repeatable")->take_all()->allow_extra_args(false);
  command->add_option("--label", o->labels, "K=V; repeatable")->take_all()->allow_extra_args(false);
  command->add_option("--env", o->environment, "K=V; repeatable")->take_all()->allow_extra_args(false)->excludes(stored);
  command->add_option("--cpu", o->cpu, "500m, 1, 2.5")->excludes(stored);
  command->add_option("--memory", o->memory, "512Mi, 4G")->excludes(stored);
  command->add_option("--restart-policy", o->restart_policy)->check(CLI::IsMember({"never", "on-failure", "always"}));
  auto* no_keep = command->add_flag("--no-keep", o->no_keep, "Delete it when its main process ends");
  command->add_flag("--detach", o->detach, "Return as soon as it is ready; otherwise the command after -- runs in the foreground");
  auto* tty = command->add_flag("--tty,!--no-tty", o->tty, "The main process gets a terminal; default: if stdin and stdout are one");
  command->add_flag("--auto-providers", o->auto_providers);
  command->add_flag("--no-auto-providers", o->no_auto_providers);
  command->add_flag("--no-credential-warnings", o->no_warnings, "Say nothing of secrets in --env");
  add_output_option(*command, o->format);
  no_keep->excludes("--output");
  command->footer("After -- the main process, exact words; the login shell where there is none.");
  command->callback([&chosen, o, tty] {
    if (tty->count() == 0) o->tty.reset();  // the parser writes "off" for a flag that is not there
    chosen = [o](Context& c) { return create(c, *o); };
  });
}

}  // namespace openshell::cli
