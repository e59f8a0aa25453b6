#include "cli/context.hpp"

#include <absl/strings/str_cat.h>

#include "api/oidc/https.hpp"
#include "cli/oidc_token.hpp"
#include "cli/terminal.hpp"
#include "datamodel.pb.h"

namespace openshell::cli {
namespace {

std::string without_slash(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

}  // namespace

absl::StatusOr<Target> Context::target() const {
  auto registry = this->registry();
  if (!registry.ok()) return registry.status();
  Target result;
  result.insecure = flags_.insecure;
  const auto active = registry->active();
  if (!flags_.endpoint.empty()) {
    result.endpoint = flags_.endpoint;
    result.name = flags_.gateway;
    if (result.name.empty()) {  // the name decides where certificates are looked up, so an equal endpoint lends its name
      for (const auto& known : registry->list()) {
        if (without_slash(known.endpoint) != without_slash(flags_.endpoint)) continue;
        if (result.name.empty() || known.name == active) result.name = known.name;
      }
    }
    if (result.name.empty()) result.name = flags_.endpoint;
    if (auto known = registry->find(result.name); known.ok()) result.auth_mode = known->auth_mode;
  } else {
    result.name = !flags_.gateway.empty() ? flags_.gateway : active.value_or("");
    if (result.name.empty()) {
      return absl::FailedPreconditionError(
          "No active gateway.\nSet one with: openshell gateway select <name>\nOr register one with: openshell gateway add <endpoint>");
    }
    auto registration = registry->find(result.name);
    if (!registration.ok()) return registration.status();
    result.endpoint = registration->endpoint;
    result.auth_mode = registration->auth_mode;
    if (registration->auth_mode == "cloudflare_jwt") {
      return absl::UnimplementedError(absl::StrCat("gateway '", result.name, "' uses ", registration->auth_mode,
                                                   " authentication, which this version does not speak yet"));
    }
  }
  if (result.endpoint.starts_with("https://") && !result.insecure) result.bundle = registry->bundle(result.name);
  return result;
}

absl::StatusOr<Secret> Context::bearer(const Target& target) const {
  if (target.auth_mode != "oidc") return Secret{};
  if (target.endpoint.starts_with("http://") && !oidc::check_url(target.endpoint, true).ok()) {
    return absl::FailedPreconditionError(absl::StrCat("gateway '", target.name, "' at ", target.endpoint,
                                                      " would get the bearer token in clear; register it with https://"));
  }
  auto registry = this->registry();
  if (!registry.ok()) return registry.status();
  auto registration = registry->find(target.name);
  if (!registration.ok()) return registration.status();
  return bearer_for(*registry, *registration, flags_.insecure);
}

absl::StatusOr<GatewayClient*> Context::client() {
  if (!client_) {
    auto where = target();
    if (!where.ok()) return where.status();
    auto token = bearer(*where);
    if (!token.ok()) return token.status();
    where->bearer = *std::move(token);
    auto opened = GatewayClient::open(*where);
    if (!opened.ok()) return opened.status();
    client_.emplace(*std::move(opened));
  }
  return &*client_;
}

void Context::fill(datamodel::v1::WorkspaceSelector* scope, bool all) const {
  if (all) {
    scope->mutable_all_workspaces();
  } else {
    scope->set_workspace(flags_.workspace);
  }
}

absl::StatusOr<std::string> Context::sandbox_or_last(const std::string& given) const {
  if (!given.empty()) return given;
  auto where = target();
  if (!where.ok()) return where.status();
  auto registry = this->registry();
  if (!registry.ok()) return registry.status();
  const auto last = registry->last_sandbox(where->name, flags_.workspace);
  if (!last) {
    return absl::InvalidArgumentError(
        "No sandbox name provided and no last-used sandbox.\nSpecify a sandbox name or connect to one first: openshell sandbox connect "
        "<name>");
  }
  note(absl::StrCat(std::string{kNotice}, " Using sandbox '", *last, "' (last used)"));
  return *last;
}

void Context::remember(const std::string& sandbox) const {
  const auto where = target();
  const auto registry = this->registry();
  if (where.ok() && registry.ok()) registry->remember_sandbox(where->name, flags_.workspace, sandbox);
}

void Context::forget(const std::string& sandbox) const {
  const auto where = target();
  const auto registry = this->registry();
  if (where.ok() && registry.ok()) registry->forget_sandbox(where->name, flags_.workspace, sandbox);
}

}  // namespace openshell::cli
