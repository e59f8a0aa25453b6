// Names and times that several handlers read and write in the same way.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string_view>

namespace google::protobuf {
class Timestamp;
}

namespace openshell::api {

/// What fits into one label of a service's host name beside others: workspaces, sandboxes and services.
constexpr std::size_t kMaxRoutableBytes = 19;
constexpr std::size_t kMaxSubjectBytes = 512;  ///< of a member; an OIDC subject has at most 255

/// Of a name that may become part of a host name: at most 19 characters, a DNS label without `--`. INVALID_ARGUMENT for `field`, said of
/// `what`.
absl::Status check_dns_name(std::string_view field, std::string_view what, std::string_view text);

/// Of a sandbox or service as part of a host name; empty is fine. The texts are those of service routing.
absl::Status check_routable(std::string_view field, std::string_view text);

/// Unix milliseconds.
void set_time_ms(google::protobuf::Timestamp& out, std::int64_t ms);

}  // namespace openshell::api
