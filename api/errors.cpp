#include "api/errors.hpp"

#include "observability/text.hpp"
#include "rpc_status.pb.h"
#include "storage/store.hpp"

namespace openshell::api {
namespace {

constexpr std::string_view kPrefix = "type.googleapis.com/";
constexpr std::string_view kDomain = "openshell.nvidia.com";

void attach(absl::Status& status, const google::protobuf::Message& detail) {
  status.SetPayload(cat(kPrefix, detail.GetDescriptor()->full_name()), absl::Cord{detail.SerializeAsString()});
}

}  // namespace

absl::Status with_reason(absl::Status status, std::string_view reason, const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string{reason});
  info.set_domain(std::string{kDomain});
  for (const auto& [key, value] : metadata) (*info.mutable_metadata())[key] = value;
  attach(status, info);
  return status;
}

absl::Status with_retry(absl::Status status, std::chrono::milliseconds delay) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(delay.count() / 1000);
  info.mutable_retry_delay()->set_nanos(static_cast<std::int32_t>(delay.count() % 1000) * 1'000'000);
  attach(status, info);
  return status;
}

absl::Status invalid_field(std::string_view field, std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(to_absl(message));
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field(std::string{field});
  violation->set_description(std::string{message});
  attach(status, bad);
  return with_reason(std::move(status), "INVALID_ARGUMENT");
}

absl::Status version_conflict(std::string_view operation, std::optional<std::uint64_t> current) {
  const bool known = current && *current != 0;
  const std::string version = known ? std::to_string(*current) : "unknown";
  std::map<std::string, std::string> metadata{{"recovery", "REFRESH_STATE"}};
  if (known) metadata["current_resource_version"] = version;
  return with_reason(absl::AbortedError(cat(operation, " failed due to concurrent modification (current resource_version: ", version, ")")),
                     "RESOURCE_VERSION_CONFLICT", metadata);
}

absl::Status from_storage(std::string_view operation, const absl::Status& status) {
  if (status.ok()) return status;
  if (const auto current = storage::conflict_version(status)) return version_conflict(operation, current);
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kCancelled:
      return status;
    default:
      return absl::InternalError(cat(operation, " failed: ", status.message()));
  }
}

std::string status_details(const absl::Status& status) {
  google::rpc::Status wire;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (!to_std(url).starts_with(kPrefix)) return;
    auto* detail = wire.add_details();
    detail->set_type_url(std::string{url});
    detail->set_value(std::string{payload});
  });
  if (wire.details_size() == 0) return {};
  // Clients drop the details unless code and message are exactly those of the call.
  wire.set_code(static_cast<std::int32_t>(status.code()));
  wire.set_message(std::string{status.message()});
  return wire.SerializeAsString();
}

}  // namespace openshell::api
