#include "api/handlers.hpp"
#include "openshell.pb.h"

namespace openshell::api {

using namespace openshell::v1;

namespace {

void fill(ComputeDriverInfo& out, const DriverInfo& driver) {
  out.set_name(driver.configured_name);
  auto& capabilities = *out.mutable_capabilities();
  capabilities.set_driver_name(driver.driver_name);
  capabilities.set_driver_version(driver.driver_version);
  auto& resources = *capabilities.mutable_resource_capabilities();
  resources.mutable_cpu()->set_limit_supported(driver.cpu_limit);
  resources.mutable_memory()->set_limit_supported(driver.memory_limit);
  resources.mutable_gpu()->set_default_selection_supported(driver.gpu_default_selection);
  resources.mutable_gpu()->set_count_selection_supported(driver.gpu_count_selection);
}

GetCurrentUserResponse describe(const Identity& who) {
  GetCurrentUserResponse response;
  response.set_subject(who.subject);
  response.set_display_name(who.display_name);
  for (const auto& role : who.roles) response.add_roles(role);
  for (const auto& scope : who.scopes) response.add_scopes(scope);
  response.set_identity_provider(std::string{identity_provider(who.source)});
  return response;
}

}  // namespace

void add_info_handlers(Router& router, GatewayInfo info) {
  HealthResponse health;
  health.set_status(SERVICE_STATUS_HEALTHY);
  health.set_version(info.interface_version);
  router.unary<HealthRequest, HealthResponse>(
      "Health", [health](const Context&, const HealthRequest&, const Reply<HealthResponse>& reply) { reply.ok(health); });

  GetGatewayInfoResponse about;
  about.set_status(SERVICE_STATUS_HEALTHY);
  about.set_gateway_version(info.gateway_version);
  if (!info.driver.configured_name.empty()) fill(*about.add_compute_drivers(), info.driver);
  router.unary<GetGatewayInfoRequest, GetGatewayInfoResponse>(
      "GetGatewayInfo",
      [about](const Context&, const GetGatewayInfoRequest&, const Reply<GetGatewayInfoResponse>& reply) { reply.ok(about); });

  router.unary<GetCurrentUserRequest, GetCurrentUserResponse>(
      "GetCurrentUser", [](const Context& ctx, const GetCurrentUserRequest&, const Reply<GetCurrentUserResponse>& reply) {
        const Identity* who = ctx->identity();
        if (who == nullptr) return reply.fail(absl::PermissionDeniedError("sandbox principals may not call this method"));
        reply.ok(describe(*who));
      });
}

}  // namespace openshell::api
