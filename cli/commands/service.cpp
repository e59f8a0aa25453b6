// service expose, list, get, delete.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/endpoint.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

struct Options {
  std::string sandbox, service, mode = "strip";
  std::uint32_t port = 0;
  int page_size = 100;
  std::string page_token;
  bool all_workspaces = false;
  Format format = Format::table;
};

/// The codes that have words of their own here.
absl::Status service_error(const absl::Status& status, const std::string& action, const char* scope) {
  const std::string message{status.message()};
  if (absl::IsPermissionDenied(status))
    return absl::PermissionDeniedError(absl::StrCat(action, " failed: permission denied (requires ", scope, ")"));
  if (absl::IsUnauthenticated(status)) return absl::UnauthenticatedError(absl::StrCat(action, " failed: authentication required"));
  if (absl::IsNotFound(status) && (message == "sandbox not found" || message == "service endpoint not found"))
    return absl::NotFoundError(absl::StrCat(action, " failed: ", message));
  if (absl::IsInvalidArgument(status)) return absl::InvalidArgumentError(absl::StrCat(action, " failed: invalid request: ", message));
  return status;
}

/// The gateway may be reached by another port than the one it listens on.
std::string reachable(const std::string& url, const std::string& endpoint) {
  const auto dialled = split_endpoint(endpoint);
  if (!dialled.names_port || url.empty()) return url;
  auto service = split_endpoint(url);
  service.port = dialled.port;
  return service.origin() + service.path;
}

std::string mode_word(v1::ServiceAuthorizationMode mode) {
  return mode == v1::SERVICE_AUTHORIZATION_MODE_BEARER_PASSTHROUGH ? "bearer_passthrough" : "strip";
}

absl::StatusOr<std::string> url_of(Context& context, const v1::ServiceEndpointResponse& service) {
  auto target = context.target();
  if (!target.ok()) return target.status();
  return reachable(service.url(), target->endpoint);
}

absl::StatusOr<int> show(Context& context, const std::vector<v1::ServiceEndpointResponse>& services, const Options& options,
                         const std::string* next) {
  json::array items;
  std::vector<std::vector<std::string>> rows{{"SANDBOX", "SERVICE", "TARGET", "AUTHORIZATION", "URL"}};
  if (options.all_workspaces) rows[0].insert(rows[0].begin(), "WORKSPACE");
  for (const auto& service : services) {
    const auto& endpoint = service.endpoint();
    auto url = url_of(context, service);
    if (!url.ok()) return url.status();
    items.push_back(json::object{{"workspace", endpoint.metadata().workspace()},
                                 {"sandbox", endpoint.sandbox()},
                                 {"service", endpoint.name()},
                                 {"target_port", endpoint.target_port()},
                                 {"authorization_mode", mode_word(endpoint.authorization_mode())},
                                 {"url", *url}});
    std::vector<std::string> row{endpoint.sandbox(), endpoint.name().empty() ? "-" : endpoint.name(),
                                 absl::StrCat("127.0.0.1:", endpoint.target_port()), mode_word(endpoint.authorization_mode()), *url};
    if (options.all_workspaces) row.insert(row.begin(), endpoint.metadata().workspace());
    rows.push_back(std::move(row));
  }
  if (options.format == Format::table) {
    std::fputs(to_table(rows).c_str(), stdout);
  } else if (next != nullptr) {
    print_document(json::object{{"services", items}, {"next_page_token", *next}}, options.format);
  } else {
    print_document(items.at(0), options.format);
  }
  return 0;
}

absl::StatusOr<int> expose(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::ExposeServiceRequest>();
  request.set_sandbox(options.sandbox);
  request.set_name(options.service);
  request.set_target_port(options.port);
  request.set_domain(true);
  request.set_authorization_mode(options.mode == "strip" ? v1::SERVICE_AUTHORIZATION_MODE_STRIP
                                                         : v1::SERVICE_AUTHORIZATION_MODE_BEARER_PASSTHROUGH);
  auto answer = (*client)->expose_service(request);
  if (!answer.ok()) return service_error(answer.status(), "expose service", "sandbox:write");
  const auto what = options.service.empty() ? "Exposed sandbox " + options.sandbox
                                            : absl::StrCat("Exposed service ", options.service, " on sandbox ", options.sandbox);
  print(absl::StrCat(mark(kDone), " ", what, " ", std::string{kNotice}, " 127.0.0.1:", options.port));
  auto url = url_of(context, *answer);
  if (!url.ok()) return url.status();
  if (!url->empty()) print("  URL: " + *url);
  return 0;
}

absl::StatusOr<int> list(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::ListServicesRequest>(options.all_workspaces);
  request.set_sandbox(options.sandbox);
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  auto answer = (*client)->list_services(request);
  if (!answer.ok()) return service_error(answer.status(), "list services", "sandbox:read");
  if (options.format == Format::table && answer->services().empty()) {
    print(absl::StrCat("No services exposed", options.sandbox.empty() ? "" : " for sandbox " + options.sandbox, "."));
  } else if (auto shown = show(context, {answer->services().begin(), answer->services().end()}, options, &answer->next_page_token());
             !shown.ok()) {
    return shown.status();
  }
  if (options.format == Format::table) note_next_page(answer->next_page_token());
  return 0;
}

absl::StatusOr<int> get(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::GetServiceRequest>();
  request.set_sandbox(options.sandbox);
  request.set_name(options.service);
  auto answer = (*client)->get_service(request);
  if (!answer.ok()) return service_error(answer.status(), "get service", "sandbox:read");
  return show(context, {*answer}, options, nullptr);
}

absl::StatusOr<int> remove(Context& context, const Options& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto request = context.scoped<v1::DeleteServiceRequest>();
  request.set_sandbox(options.sandbox);
  request.set_name(options.service);
  if (auto answer = (*client)->delete_service(request); !answer.ok())
    return service_error(answer.status(), "delete service", "sandbox:write");
  print(absl::StrCat(mark(kDone), options.service.empty()
                                      ? " Deleted exposed sandbox " + options.sandbox
                                      : absl::StrCat(" Deleted service ", options.service, " on sandbox ", options.sandbox)));
  return 0;
}

}  // namespace

void add_service_commands(CLI::App& root, Action& chosen) {
  auto* service = root.add_subcommand("service", "Ports of sandboxes that people reach by a host name");
  const auto add = [&](const char* verb, const char* text, auto run) {
    auto options = std::make_shared<Options>();
    auto* command = service->add_subcommand(verb, text);
    command->callback([&chosen, options, run] { chosen = [options, run](Context& c) { return run(c, *options); }; });
    return std::pair{command, options};
  };
  {
    auto [command, options] = add("expose", "Expose a port of a sandbox", expose);
    command->add_option("sandbox", options->sandbox)->required();
    command->add_option("port", options->port, "On 127.0.0.1 of the sandbox")->required()->check(CLI::Range(1, 65535));
    command->add_option("service", options->service, "Name, where there is more than one");
    command->add_option("--authorization-mode", options->mode, "strip or bearer-passthrough")
        ->check(CLI::IsMember({"strip", "bearer-passthrough"}));
  }
  {
    auto [command, options] = add("list", "List services", list);
    auto* sandbox = command->add_option("sandbox", options->sandbox);
    add_paging(*command, options->page_size, options->page_token);
    command->add_flag("--all-workspaces", options->all_workspaces)->excludes(sandbox);
    add_output_option(*command, options->format);
  }
  {
    auto [command, options] = add("get", "Show a service", get);
    command->add_option("sandbox", options->sandbox)->required();
    command->add_option("service", options->service);
    add_output_option(*command, options->format);
  }
  {
    auto [command, options] = add("delete", "Stop exposing a port", remove);
    command->add_option("sandbox", options->sandbox)->required();
    command->add_option("service", options->service);
  }
}

}  // namespace openshell::cli
