// profile list, describe, export, import, update, lint, delete; also as `provider profile ...`.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/delete_each.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"
#include "providers/profile_file.hpp"

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct Options {
  std::vector<std::string> ids;
  std::string id, file, directory, type;
  bool global = false;
  Format format = Format::table;
};

/// Without a workspace a call is about the platform's profiles.
template <class Request>
Request scoped(const Context& context, const Options& options) {
  return options.global ? Request{} : context.scoped<Request>();
}

using Items = google::protobuf::RepeatedPtrField<v1::ProviderProfileImportItem>;

absl::Status read_file(const std::string& path, Items& items) {
  std::ifstream file{path, std::ios::binary};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read profile file ", path));
  std::string text(providers::kMaxProfileTextBytes + 1, '\0');  // one byte more than allowed is enough to know
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > providers::kMaxProfileTextBytes)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a profile has at most ", providers::kMaxProfileTextBytes, " bytes, this file has more"));
  auto profile = providers::parse_profile(text, path);
  if (!profile.ok()) return profile.status();
  auto& item = *items.Add();
  *item.mutable_profile() = *std::move(profile);
  item.set_source(path);
  return absl::OkStatus();
}

/// The files of `-f` or `--from`. Nothing is sent where one of them does not parse.
absl::StatusOr<Items> read_sources(const Options& options) {
  if (options.file.empty() == options.directory.empty()) return absl::InvalidArgumentError("give exactly one of -f FILE and --from DIR");
  Items items;
  std::vector<std::string> paths;
  if (!options.file.empty()) {
    paths.push_back(options.file);
  } else {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator{options.directory, error}) {
      const auto kind = entry.path().extension().string();
      if (entry.is_regular_file() && (kind == ".yaml" || kind == ".yml" || kind == ".json")) paths.push_back(entry.path().string());
    }
    if (error) return absl::NotFoundError(absl::StrCat("cannot read directory ", options.directory, ": ", error.message()));
    std::sort(paths.begin(), paths.end());
  }
  if (paths.empty()) return absl::InvalidArgumentError("no provider profile files found");
  std::vector<std::string> faults;
  for (const auto& path : paths) {
    if (auto status = read_file(path, items); !status.ok()) faults.emplace_back(status.message());
  }
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
  return items;
}

void note_diagnostics(const google::protobuf::RepeatedPtrField<v1::ProviderProfileDiagnostic>& diagnostics) {
  for (const auto& one : diagnostics)
    note(absl::StrCat(one.severity(), " ", one.source(), " profile=", one.profile_id().empty() ? "-" : one.profile_id(),
                      " field=", one.field(), " ", one.message()));
}

bool uses_stable_placeholder(const Items& items) {
  return std::any_of(items.begin(), items.end(), [](const auto& item) {
    const auto& credentials = item.profile().credentials();
    return std::any_of(credentials.begin(), credentials.end(), [](const auto& one) { return one.stable_placeholder(); });
  });
}

/// A gateway that does not know the flag would store a profile that means something else.
absl::Status check_support(GatewayClient& client, const Context& context, const Options& options, const Items& items) {
  if (!uses_stable_placeholder(items)) return absl::OkStatus();
  auto request = scoped<v1::LintProviderProfilesRequest>(context, options);
  *request.mutable_profiles() = items;
  auto answer = client.lint_provider_profiles(request);
  if (!answer.ok()) return answer.status();
  if (answer->supports_stable_placeholder()) return absl::OkStatus();
  return absl::FailedPreconditionError("this gateway does not support stable_placeholder");
}

absl::StatusOr<int> import_files(Context& context, const Options& options) {
  auto items = read_sources(options);
  if (!items.ok()) return items.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (auto status = check_support(**client, context, options, *items); !status.ok()) return status;
  auto request = scoped<v1::ImportProviderProfilesRequest>(context, options);
  *request.mutable_profiles() = *items;
  auto answer = (*client)->import_provider_profiles(request);
  if (!answer.ok()) return answer.status();
  note_diagnostics(answer->diagnostics());
  if (!answer->imported()) return absl::InvalidArgumentError("provider profile import failed");
  print(absl::StrCat("Imported ", answer->profiles_size(), " provider profile", answer->profiles_size() == 1 ? "." : "s."));
  return 0;
}

absl::StatusOr<int> lint(Context& context, const Options& options) {
  auto items = read_sources(options);
  if (!items.ok()) return items.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = scoped<v1::LintProviderProfilesRequest>(context, options);
  *request.mutable_profiles() = *items;
  auto answer = (*client)->lint_provider_profiles(request);
  if (!answer.ok()) return answer.status();
  note_diagnostics(answer->diagnostics());
  if (!answer->valid()) return absl::InvalidArgumentError("provider profile lint failed");
  print("Provider profile lint passed.");
  return 0;
}

absl::StatusOr<int> update(Context& context, const Options& options) {
  auto items = read_sources(options);
  if (!items.ok()) return items.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (auto status = check_support(**client, context, options, *items); !status.ok()) return status;
  auto request = scoped<v1::UpdateProviderProfilesRequest>(context, options);
  request.set_id(options.id);
  request.set_expected_resource_version(items->Get(0).profile().resource_version());
  *request.mutable_profile() = items->Get(0);
  auto answer = (*client)->update_provider_profiles(request);
  if (!answer.ok()) return answer.status();
  note_diagnostics(answer->diagnostics());
  if (!answer->updated()) return absl::InvalidArgumentError("provider profile update failed");
  print("Updated provider profile.");
  return 0;
}

absl::StatusOr<std::vector<v1::ProviderProfile>> all_profiles(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = scoped<v1::ListProviderProfilesRequest>(context, options);
  std::vector<v1::ProviderProfile> out;
  do {
    auto answer = (*client)->list_provider_profiles(request);
    if (!answer.ok()) return answer.status();
    out.insert(out.end(), answer->profiles().begin(), answer->profiles().end());
    request.set_page_token(answer->next_page_token());
  } while (!request.page_token().empty());
  return out;
}

absl::StatusOr<int> list(Context& context, const Options& options) {
  auto profiles = all_profiles(context, options);
  if (!profiles.ok()) return profiles.status();
  if (options.format != Format::table) {
    json::array items;
    for (const auto& profile : *profiles) {
      auto document = providers::profile_document(profile);
      if (!document.ok()) return document.status();
      items.push_back(*std::move(document));
    }
    print_document(items, options.format);
    return 0;
  }
  if (profiles->empty()) {
    print("No provider profiles found.");
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"NAME", "TYPE", "CATEGORY", "SOURCE", "SCOPE"}};
  for (const auto& profile : *profiles)
    rows.push_back({profile.id(), "provider", providers::category_word(profile.category()),
                    profile.source().empty() ? "-" : profile.source(), profile.scope().empty() ? "-" : profile.scope()});
  std::fputs(to_table(rows).c_str(), stdout);
  return 0;
}

absl::StatusOr<v1::ProviderProfile> get(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = scoped<v1::GetProviderProfileRequest>(context, options);
  request.set_id(options.id);
  auto answer = (*client)->get_provider_profile(request);
  if (!answer.ok()) return answer.status();
  return answer->profile();
}

absl::StatusOr<int> describe_profile(Context& context, const Options& options) {
  auto profile = get(context, options);
  if (!profile.ok()) return profile.status();
  if (options.format != Format::table) {
    auto document = providers::profile_document(*profile);
    if (!document.ok()) return document.status();
    print_document(*document, options.format);
    return 0;
  }
  print(absl::StrCat("Id: ", profile->id()));
  print(absl::StrCat("Name: ", profile->display_name()));
  if (!profile->description().empty()) print(absl::StrCat("Description: ", profile->description()));
  print("Category: " + providers::category_word(profile->category()));
  print(absl::StrCat("Resource version: ", profile->resource_version()));
  print("Credentials:");
  for (const auto& one : profile->credentials())
    print(absl::StrCat("  ", one.name(), ": ", absl::StrJoin(one.env_vars(), ", "), one.required() ? " (required)" : ""));
  print("Endpoints:");
  for (const auto& one : profile->endpoints()) {
    const std::string ports = one.ports().empty() ? absl::StrCat(one.port()) : absl::StrJoin(one.ports(), ",");
    print(absl::StrCat("  ", one.host(), ":", ports, one.path().empty() ? "" : " " + one.path(),
                       one.protocol().empty() ? "" : " " + one.protocol()));
  }
  print("Binaries:");
  for (const auto& one : profile->binaries()) print("  " + one.path());
  return 0;
}

absl::StatusOr<int> export_profile(Context& context, const Options& options) {
  if (options.format == Format::table) return absl::InvalidArgumentError("profile export writes yaml or json");
  auto profile = get(context, options);
  if (!profile.ok()) return profile.status();
  profile->clear_source();
  profile->clear_scope();
  auto document = providers::profile_document(*profile);
  if (!document.ok()) return document.status();
  print_document(*document, options.format);
  return 0;
}

absl::StatusOr<int> remove(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  return delete_each(options.ids, "provider profile", "provider profiles", [&](const std::string& id) {
    auto request = scoped<v1::DeleteProviderProfileRequest>(context, options);
    request.set_id(id);
    request.set_allow_missing(true);
    auto answer = (*client)->delete_provider_profile(request);
    if (!answer.ok()) return answer.status();
    const bool absent = answer->outcome() == v1::DELETION_OUTCOME_ALREADY_ABSENT;
    print(absent ? absl::StrCat(mark(kWarning), " Provider profile ", id, " not found")
                 : absl::StrCat(mark(kDone), " Deleted provider profile ", id));
    return absl::OkStatus();
  });
}

}  // namespace

void add_profile_commands(CLI::App& parent, Action& chosen) {
  auto* profile = parent.add_subcommand("profile", "What kinds of providers there are");
  const auto add = [&](const char* verb, const char* text, auto run) {
    auto options = std::make_shared<Options>();
    auto* command = profile->add_subcommand(verb, text);
    command->add_flag("--global", options->global, "The platform's profiles instead of the workspace's");
    command->callback([&chosen, options, run] { chosen = [options, run](Context& c) { return run(c, *options); }; });
    return std::pair{command, options};
  };
  const auto add_sources = [](CLI::App* command, Options& options) {
    command->add_option("-f,--file", options.file, "One profile");
    command->add_option("--from", options.directory, "Every .yaml, .yml and .json file of a directory");
  };
  {
    auto [command, options] = add("list", "List profiles", list);
    command->add_option("--type", options->type)->check(CLI::IsMember({"provider"}));
    add_output_option(*command, options->format);
  }
  {
    auto [command, options] = add("describe", "Show a profile", describe_profile);
    command->add_option("id", options->id)->required();
    add_output_option(*command, options->format);
  }
  {
    auto [command, options] = add("export", "Write a profile as a file", export_profile);
    options->format = Format::yaml;
    command->add_option("id", options->id)->required();
    add_output_option(*command, options->format);
  }
  {
    auto [command, options] = add("import", "Store profiles", import_files);
    add_sources(command, *options);
  }
  {
    auto [command, options] = add("lint", "Check profiles and store nothing", lint);
    add_sources(command, *options);
  }
  {
    auto [command, options] = add("update", "Replace a stored profile", update);
    command->add_option("id", options->id)->required();
    command->add_option("-f,--file", options->file, "The new profile, with the resource_version of its export")->required();
  }
  {
    auto [command, options] = add("delete", "Delete profiles that no provider uses", remove);
    command->add_option("ids", options->ids)->required();
  }
}

}  // namespace openshell::cli
