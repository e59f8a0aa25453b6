#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/login.hpp"
#include "cli/terminal.hpp"

namespace openshell::cli {
namespace {

absl::StatusOr<Registration> named(Context& context, std::string name) {
  auto registry = context.registry();
  if (!registry.ok()) return registry.status();
  if (name.empty()) name = !context.flags().gateway.empty() ? context.flags().gateway : registry->active().value_or("");
  if (name.empty()) return absl::InvalidArgumentError("no gateway named and none is active: openshell gateway login <name>");
  auto found = registry->find(name);
  if (absl::IsNotFound(found.status())) return absl::NotFoundError(absl::StrCat("Unknown gateway '", name, "'."));
  return found;
}

absl::StatusOr<int> login(Context& context, const std::string& name) {
  auto gateway = named(context, name);
  if (!gateway.ok()) return gateway.status();
  if (gateway->auth_mode != "oidc")
    return absl::FailedPreconditionError(absl::StrCat("Gateway '", gateway->name, "' does not use edge or OIDC authentication."));
  return log_in_and_store(context, *gateway);
}

absl::StatusOr<int> logout(Context& context, const std::string& name) {
  auto gateway = named(context, name);
  if (!gateway.ok()) return gateway.status();
  if (gateway->auth_mode != "oidc") {
    return absl::FailedPreconditionError(absl::StrCat("Gateway '", gateway->name, "' uses ",
                                                      gateway->auth_mode.empty() ? "mtls" : gateway->auth_mode,
                                                      " authentication and has no stored credentials to clear."));
  }
  const auto registry = context.registry();
  const auto forgotten = registry->forget_token(gateway->name);
  if (!forgotten.ok() && !absl::IsNotFound(forgotten)) return forgotten;
  note(absl::StrCat(forgotten.ok() ? "Logged out of gateway '" : "No token was stored for gateway '", gateway->name, "'."));
  return 0;
}

}  // namespace

absl::StatusOr<int> log_in_and_store(Context& context, const Registration& gateway) {
  auto registry = context.registry();
  if (!registry.ok()) return registry.status();
  auto bundle = log_in(gateway, context.flags().insecure);
  if (!bundle.ok()) return bundle.status();
  if (auto stored = store_bundle(*registry, gateway.name, *bundle); !stored.ok()) return stored;
  note(absl::StrCat("Authenticated to gateway '", gateway.name, "'", shown_user(*bundle)));
  return 0;
}

void add_login_commands(CLI::App& gateway, Action& chosen) {
  auto name = std::make_shared<std::string>();
  auto* in = gateway.add_subcommand("login", "Get a token for a gateway that wants one");
  in->add_option("name", *name);
  in->callback([&chosen, name] { chosen = [name](Context& c) { return login(c, *name); }; });
  auto* out = gateway.add_subcommand("logout", "Forget the token of a gateway");
  out->add_option("name", *name);
  out->callback([&chosen, name] { chosen = [name](Context& c) { return logout(c, *name); }; });
}

}  // namespace openshell::cli
