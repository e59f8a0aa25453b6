#include "api/service_endpoint.hpp"

#include <algorithm>
#include <set>

#include "api/errors.hpp"
#include "api/names.hpp"
#include "observability/text.hpp"
#include "storage/types.hpp"

namespace openshell::api {

using namespace openshell::v1;

std::string ServiceAddress::url(std::string_view workspace, std::string_view sandbox, std::string_view service) const {
  if (base_domain.empty()) return {};
  const bool usual = (scheme == "https" && port == 443) || (scheme == "http" && port == 80) || port == 0;
  return cat(scheme, "://", workspace, "--", service_row_name(sandbox, service), ".", base_domain, usual ? "" : cat(":", port), "/");
}

absl::Status check_service(std::string_view service, std::uint32_t target_port, ServiceAuthorizationMode mode) {
  if (auto status = check_routable("service", service); !status.ok()) return status;
  if (target_port < 1 || target_port > 65535) return invalid_field("target_port", "target_port must be in 1..=65535");
  if (!ServiceAuthorizationMode_IsValid(mode)) return invalid_field("authorization_mode", "authorization_mode is not known");
  return absl::OkStatus();
}

absl::Status check_exposures(const CreateSandboxRequest& request) {
  if (request.service_exposures_size() > kMaxServiceExposures)
    return invalid_field("service_exposures", cat("service_exposures exceeds maximum entries (", request.service_exposures_size(), " > ",
                                                  kMaxServiceExposures, ")"));
  std::set<std::string> names;
  for (const auto& each : request.service_exposures()) {
    if (auto status = check_service(each.service(), each.target_port(), each.authorization_mode()); !status.ok()) return status;
    if (!names.insert(each.service()).second)
      return invalid_field("service_exposures", cat("service_exposures names service '", each.service(), "' twice"));
  }
  return absl::OkStatus();
}

std::string service_row_name(std::string_view sandbox, std::string_view service) {
  return service.empty() ? std::string{sandbox} : cat(sandbox, "--", service);
}

ServiceEndpoint new_service(const std::string& workspace, const std::string& sandbox_id, const std::string& sandbox,
                            const std::string& service, std::uint32_t target_port, ServiceAuthorizationMode mode) {
  ServiceEndpoint out;
  auto& metadata = *out.mutable_metadata();
  metadata.set_id(storage::new_uuid());
  metadata.set_name(service_row_name(sandbox, service));
  metadata.set_workspace(workspace);
  (*metadata.mutable_labels())["sandbox"] = sandbox;
  out.set_sandbox_id(sandbox_id);
  out.set_sandbox(sandbox);
  out.set_name(service);
  out.set_target_port(target_port);
  out.set_domain(true);
  out.set_authorization_mode(mode == SERVICE_AUTHORIZATION_MODE_UNSPECIFIED ? SERVICE_AUTHORIZATION_MODE_STRIP : mode);
  return out;
}

storage::Object to_row(const ServiceEndpoint& endpoint) {
  storage::Object row;
  row.type = storage::types::kServiceEndpoint;
  row.id = endpoint.metadata().id();
  row.workspace = endpoint.metadata().workspace();
  row.name = endpoint.metadata().name();
  row.scope = endpoint.sandbox_id();
  row.labels = {endpoint.metadata().labels().begin(), endpoint.metadata().labels().end()};
  row.resource_version = endpoint.metadata().resource_version();
  row.payload = endpoint.SerializeAsString();
  return row;
}

absl::StatusOr<ServiceEndpoint> service_from_row(const storage::Object& row) {
  ServiceEndpoint out;
  if (!out.ParseFromString(row.payload)) return absl::DataLossError(cat("service endpoint ", row.id, " can not be read"));
  out.mutable_metadata()->set_resource_version(row.resource_version);
  set_time_ms(*out.mutable_metadata()->mutable_created_time(), row.created_at_ms);
  return out;
}

std::vector<ServiceEndpoint> exposures_of(const CreateSandboxRequest& request, const std::string& workspace, const std::string& sandbox_id,
                                          const std::string& sandbox) {
  std::vector<ServiceEndpoint> out;
  for (const auto& each : request.service_exposures())
    out.push_back(new_service(workspace, sandbox_id, sandbox, each.service(), each.target_port(), each.authorization_mode()));
  return out;
}

}  // namespace openshell::api
