#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdlib>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/endpoint.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

struct AddOptions {
  std::string endpoint;
  std::string name;
  bool local = false;
  bool keep_active = false;
  std::string oidc_issuer, oidc_client_id = "openshell-cli", oidc_audience, oidc_scopes;
};

/// A registration without a token is of no use, so a login that failed takes it back; where no browser was to be used it may follow later.
absl::StatusOr<int> first_login(Context& context, const Registry& registry, const Registration& gateway,
                                const std::optional<std::string>& active_before) {
  auto done = log_in_and_store(context, gateway);
  if (done.ok()) return done;
  const char* no_browser = std::getenv("OPENSHELL_NO_BROWSER");
  if (no_browser != nullptr && *no_browser != '\0') {
    note(absl::StrCat("Authenticate later with: openshell gateway login ", gateway.name));
    return done;
  }
  registry.remove(gateway.name).IgnoreError();
  if (active_before && *active_before != gateway.name) registry.set_active(*active_before).IgnoreError();
  note(absl::StrCat("Registration for '", gateway.name, "' removed. Fix the issue and retry gateway add."));
  return done;
}

absl::StatusOr<int> add(Context& context, AddOptions options) {
  if (options.endpoint.starts_with("ssh://"))
    return absl::UnimplementedError("ssh:// endpoints are not supported yet; forward the port and add https://127.0.0.1:PORT --local");
  if (options.endpoint.find("://") == std::string::npos) options.endpoint = "https://" + options.endpoint;
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  const auto host = split_endpoint(options.endpoint).host;
  if (options.name.empty()) options.name = is_loopback(host) ? "openshell" : host;
  auto registry = context.registry();
  if (!registry.ok()) return registry.status();
  if (auto valid = Registry::check_name(options.name); !valid.ok()) return valid;
  if (auto known = registry->find(options.name); known.ok() && !known->from_system) {
    return absl::AlreadyExistsError(absl::StrCat("Gateway '", options.name,
                                                 "' already exists.\nRemove it first with: openshell gateway remove ", options.name,
                                                 "\nOr choose a different name with: --name <name>"));
  }
  Registration registration{.name = options.name, .endpoint = options.endpoint};
  if (!options.oidc_issuer.empty()) {
    registration.auth_mode = "oidc";
    registration.is_remote = !options.local;
    registration.oidc_issuer = options.oidc_issuer;
    registration.oidc_client_id = options.oidc_client_id;
    registration.oidc_audience = options.oidc_audience;
    registration.oidc_scopes = options.oidc_scopes;
    // A gateway of this machine has a certificate of its own making; its bundle says so.
    if (auto bundle = find_local_bundle(options.name); options.local && bundle.ok()) {
      if (auto imported = registry->import_bundle(options.name, *bundle); !imported.ok()) return imported;
    }
  } else if (options.endpoint.starts_with("http://")) {
    registration.auth_mode = "plaintext";
    registration.is_remote = !options.local && !is_loopback(host);
  } else if (options.local) {
    registration.auth_mode = "mtls";
    auto bundle = find_local_bundle(options.name);
    if (!bundle.ok()) return bundle.status();
    if (auto imported = registry->import_bundle(options.name, *bundle); !imported.ok()) return imported;
  } else {
    return absl::UnimplementedError(
        "this version adds plaintext gateways (http://), local mTLS gateways (https:// with --local) and those with an identity provider "
        "(--oidc-issuer)");
  }
  const auto active_before = registry->active();
  if (auto saved = registry->save(registration); !saved.ok()) return saved;
  const bool activate = !options.keep_active || !registry->active();
  if (activate) {
    if (auto set = registry->set_active(options.name); !set.ok()) return set;
  }
  note(absl::StrCat("Gateway '", options.name, activate ? "' added and set as active" : "' added"));
  note(absl::StrCat("  Endpoint: ", options.endpoint));
  note(absl::StrCat("  Auth: ", registration.auth_mode));
  if (registration.auth_mode == "oidc") return first_login(context, *registry, registration, active_before);
  return 0;
}

absl::StatusOr<int> remove(Context& context, std::string name) {
  auto registry = context.registry();
  if (!registry.ok()) return registry.status();
  if (name.empty()) name = !context.flags().gateway.empty() ? context.flags().gateway : registry->active().value_or("");
  if (name.empty()) return absl::InvalidArgumentError("no gateway named and none is active: openshell gateway remove <name>");
  if (auto removed = registry->remove(name); !removed.ok()) return removed;
  note(absl::StrCat("Gateway registration '", name, "' removed."));
  return 0;
}

std::string auth_of(const Registration& registration) {
  if (!registration.auth_mode.empty()) return registration.auth_mode;
  return registration.endpoint.starts_with("http://") ? "plaintext" : "mtls";
}

std::string type_of(const Registration& registration) {
  if (registration.auth_mode == "cloudflare_jwt") return "cloud";
  return registration.is_remote ? "remote" : "local";
}

absl::StatusOr<int> list(Context& context, Format format) {
  auto registry = context.registry();
  if (!registry.ok()) return registry.status();
  const auto known = registry->list();
  if (format != Format::table) {
    json::array items;
    for (const auto& each : known) {
      items.push_back({{"name", each.name},
                       {"endpoint", each.endpoint},
                       {"type", type_of(each)},
                       {"source", each.from_system ? "system" : "user"},
                       {"auth", auth_of(each)},
                       {"active", each.active},
                       {"is_remote", each.is_remote},
                       {"remote_host", each.remote_host.empty() ? json::value(nullptr) : json::value(each.remote_host)},
                       {"resolved_host", each.resolved_host.empty() ? json::value(nullptr) : json::value(each.resolved_host)}});
    }
    print_document(items, format);
    return 0;
  }
  if (known.empty()) {
    print("No gateways found.");
    print("Register one with: openshell gateway add <endpoint>");
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{" ", "NAME", "ENDPOINT", "TYPE", "SOURCE", "AUTH"}};
  for (const auto& each : known) {
    rows.push_back({each.active ? "*" : " ", each.name, each.endpoint, type_of(each), each.from_system ? "system" : "user", auth_of(each)});
  }
  std::fputs(to_table(rows).c_str(), stdout);
  return 0;
}

absl::StatusOr<int> select(Context& context, const std::string& name) {
  auto registry = context.registry();
  if (!registry.ok()) return registry.status();
  if (name.empty()) {
    auto listed = list(context, Format::table);
    note("Select a gateway with: openshell gateway select <name>");
    return listed;
  }
  if (auto known = registry->find(name); !known.ok()) return known.status();
  if (auto set = registry->set_active(name); !set.ok()) return set;
  print(absl::StrCat("Active gateway set to '", name, "'"));
  if (!context.flags().gateway.empty() && context.flags().gateway != name) {
    note(absl::StrCat("Warning: OPENSHELL_GATEWAY=", context.flags().gateway, " is set and will override this selection."));
  }
  return 0;
}

std::string health_name(v1::ServiceStatus status) {
  switch (status) {
    case v1::SERVICE_STATUS_HEALTHY:
      return "healthy";
    case v1::SERVICE_STATUS_DEGRADED:
      return "degraded";
    case v1::SERVICE_STATUS_UNHEALTHY:
      return "unhealthy";
    default:
      return "unknown";
  }
}

absl::StatusOr<int> info(Context& context, Format format) {
  auto target = context.target();
  if (!target.ok()) return target.status();
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto answer = (*client)->get_gateway_info({});
  if (!answer.ok()) return answer.status();
  json::array drivers;
  for (const auto& driver : answer->compute_drivers()) {
    drivers.push_back(
        {{"name", driver.name()},
         {"capabilities",
          {{"driver_name", driver.capabilities().driver_name()}, {"driver_version", driver.capabilities().driver_version()}}}});
  }
  json::object document{{"gateway", target->name},
                        {"server", target->endpoint},
                        {"auth", target->auth_mode == "oidc" ? json::value("bearer") : json::value(nullptr)},
                        {"status", health_name(answer->status())},
                        {"version", answer->gateway_version()},
                        {"compute_drivers", drivers}};
  if (format != Format::table) {
    print_document(document, format);
    return 0;
  }
  print("Gateway Info");
  print("  Gateway: " + target->name);
  print("  Server: " + target->endpoint);
  print("  Status: " + health_name(answer->status()));
  print("  Version: " + answer->gateway_version());
  for (const auto& driver : answer->compute_drivers())
    print("  Compute driver: " + driver.name() + " " + driver.capabilities().driver_version());
  return 0;
}

/// How the gateway took us, judged by a call that needs more than Health does.
std::pair<std::string, std::string> authentication(GatewayClient& client, const Target& target) {
  const bool tls = target.endpoint.starts_with("https://");
  const bool token = !target.bearer.empty();
  const std::string provider = token ? "OIDC" : "mTLS transport";
  const auto answer = client.get_gateway_info({});
  const bool unknown = answer.status().code() == absl::StatusCode::kUnimplemented;
  if (unknown && token) return {"unverified", "Unverified (gateway does not support authentication checks)"};
  if (answer.ok() || unknown) {
    if (tls || token) return {"authenticated", absl::StrCat("Authenticated (", provider, ")")};
    return {"not_required", "Not required (gateway)"};
  }
  const auto message = std::string{answer.status().message()};
  if (answer.status().code() == absl::StatusCode::kUnauthenticated) return {"failed", "Failed (" + message + ")"};
  if (answer.status().code() == absl::StatusCode::kPermissionDenied)
    return {"authenticated", absl::StrCat("Authenticated (", provider, "; authorization denied)")};
  return {"unverified", "Unverified (" + message + ")"};
}

/// Exit 0 also where nothing answers: the status is the answer.
absl::StatusOr<int> status(Context& context, Format format) {
  auto target = context.target();
  if (!target.ok()) {
    if (format != Format::table) {
      print_document(json::object{{"status", "not_configured"}, {"error", std::string{target.status().message()}}}, format);
    } else {
      print("Gateway Status");
      print("  Status: Not configured");
      print(absl::StrCat("  Error: ", target.status().message()));
    }
    return 0;
  }
  json::object document{{"gateway", target->name}, {"server", target->endpoint}};
  // Without the token the gateway still tells whether it is there; that the token is the trouble is said beside it.
  auto token = context.bearer(*target);
  if (token.ok()) target->bearer = *token;
  auto client = GatewayClient::open(*target);
  absl::Status failure = client.ok() ? absl::OkStatus() : client.status();
  std::string version, shown_state = "Disconnected", shown_authentication;
  if (client.ok()) {
    auto health = client->health({});
    if (health.ok()) {
      auto [state, text] = authentication(*client, *target);
      if (!token.ok()) {
        state = "failed";
        text = absl::StrCat("Failed (", token.status().message(), ")");
      }
      version = health->version();
      shown_state = "Connected";
      shown_authentication = text;
      document["status"] = "connected";
      document["version"] = version;
      document["authentication"] = {{"status", state}};
    } else {
      failure = health.status();
    }
  }
  if (!failure.ok()) {
    document["status"] = "disconnected";
    document["error"] = describe(failure);
  }
  if (format != Format::table) {
    print_document(document, format);
    return 0;
  }
  print("Server Status");
  print("  Gateway: " + target->name);
  print("  Server: " + target->endpoint);
  print("  Status: " + shown_state);
  if (!shown_authentication.empty()) print("  Authentication: " + shown_authentication);
  if (!version.empty()) print("  Version: " + version);
  if (!failure.ok()) print("  Error: " + describe(failure));
  return 0;
}

absl::StatusOr<int> whoami(Context& context, Format format) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  auto user = (*client)->get_current_user({});
  if (!user.ok()) {
    if (user.status().code() == absl::StatusCode::kUnauthenticated)
      return absl::UnauthenticatedError(absl::StrCat("whoami requires authentication: ", describe(user.status())));
    return absl::Status(user.status().code(), absl::StrCat("get_current_user failed: ", describe(user.status())));
  }
  if (format != Format::table) {
    json::object document{{"subject", user->subject()}, {"identity_provider", user->identity_provider()}};
    document["display_name"] = user->display_name().empty() ? json::value(nullptr) : json::value(user->display_name());
    document["roles"] = json::array(user->roles().begin(), user->roles().end());
    document["scopes"] = json::array(user->scopes().begin(), user->scopes().end());
    print_document(document, format);
    return 0;
  }
  auto joined = [](const auto& list) {
    std::string text;
    for (const auto& each : list) text += (text.empty() ? "" : ", ") + each;
    return text;
  };
  print("Current User");
  print("  Subject: " + user->subject());
  print("  Name: " + user->display_name());
  print("  Provider: " + user->identity_provider());
  print("  Roles: " + joined(user->roles()));
  print("  Scopes: " + joined(user->scopes()));
  return 0;
}

}  // namespace

void add_gateway_commands(CLI::App& root, Action& chosen) {
  auto* gateway = root.add_subcommand("gateway", "Register and choose gateways")->alias("gw");
  {
    auto o = std::make_shared<AddOptions>();
    auto* command = gateway->add_subcommand("add", "Register a gateway");
    command->add_option("endpoint", o->endpoint, "https://HOST:PORT, or http:// for plaintext")->required();
    command->add_option("--name", o->name, "Name of the registration");
    command->add_flag("--local", o->local, "The gateway runs on this machine; its client certificates are imported");
    command->add_flag("--keep-active", o->keep_active, "Leave the active gateway as it is unless there is none");
    auto* issuer = command->add_option("--oidc-issuer", o->oidc_issuer, "URL of the identity provider that the gateway trusts");
    command->add_option("--oidc-client-id", o->oidc_client_id, "Client id there")->needs(issuer)->capture_default_str();
    command->add_option("--oidc-audience", o->oidc_audience, "Audience to ask for")->needs(issuer);
    command->add_option("--oidc-scopes", o->oidc_scopes, "Scopes to ask for, separated by spaces")->needs(issuer);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return add(c, *o); }; });
  }
  add_login_commands(*gateway, chosen);
  {
    auto name = std::make_shared<std::string>();
    auto* command = gateway->add_subcommand("remove", "Forget a gateway");
    command->add_option("name", *name);
    command->callback([&chosen, name] { chosen = [name](Context& c) { return remove(c, *name); }; });
  }
  {
    auto name = std::make_shared<std::string>();
    auto* command = gateway->add_subcommand("select", "Choose the active gateway");
    command->add_option("name", *name);
    command->callback([&chosen, name] { chosen = [name](Context& c) { return select(c, *name); }; });
  }
  const auto with_format = [&chosen](CLI::App* command, auto run) {
    auto format = std::make_shared<Format>(Format::table);
    add_output_option(*command, *format);
    command->callback([&chosen, format, run] { chosen = [format, run](Context& c) { return run(c, *format); }; });
  };
  with_format(gateway->add_subcommand("list", "List the registered gateways"), list);
  with_format(gateway->add_subcommand("info", "Ask a gateway about itself"), info);
  with_format(root.add_subcommand("status", "Is the gateway there, and who am I to it"), status);
  with_format(root.add_subcommand("whoami", "The user that the gateway sees"), whoami);
}

}  // namespace openshell::cli
