// CreateSandbox: every check that needs nothing but the request, and the record that comes of it. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <string_view>

#include "actors/gateway/times.hpp"
#include "records.pb.h"

namespace openshell::gateway {

namespace pb = openshell::v1;
namespace records = openshell::internal::records::v1;

inline constexpr std::size_t kMaxRoutableName = 19;  ///< bytes of a sandbox's name, so that service names fit a DNS label
inline constexpr std::size_t kMaxName = 253;
inline constexpr std::size_t kMaxProviders = 32;
inline constexpr std::size_t kMaxLogLevel = 32;
inline constexpr std::size_t kMaxMapEntries = 128;  ///< environment, template maps, annotations
inline constexpr std::size_t kMaxMapKey = 256;
inline constexpr std::size_t kMaxMapValue = 8192;
inline constexpr std::size_t kMaxEnvironmentBytes = 262'144;  ///< keys and values
inline constexpr std::size_t kMaxTemplateString = 1024;
inline constexpr std::size_t kMaxTemplateStruct = 65'536;  ///< encoded
inline constexpr std::size_t kMaxPolicyBytes = 262'144;    ///< encoded, before and after canonicalisation
inline constexpr int kMaxCommandEntries = 256;
inline constexpr std::size_t kMaxCommandBytes = 262'144;
inline constexpr std::size_t kMaxCommandEntry = 32'768;

/// Field checks in the order of the interface; INVALID_ARGUMENT with the field. The policy of the spec is brought to canonical form in
/// place.
absl::Status check_create(pb::CreateSandboxRequest& request);

/// What the gateway adds.
struct Creation {
  std::string workspace;
  std::string name;  ///< given or generated
  std::string driver;
  std::string default_image;
  std::string sandbox_id, attempt_id, generation, token_id, attachment_epoch;
  Millis now = 0;
};
records::SandboxRecord new_record(const pb::CreateSandboxRequest& checked, const Creation& creation);

/// Two words joined by `-`, at most 19 bytes. `random(n)` gives 0..n-1.
std::string pet_name(const std::function<std::uint32_t(std::uint32_t)>& random);

/// `field` a DNS label of at most `max` bytes; empty passes.
absl::Status check_label(std::string_view field, std::string_view text, std::size_t max);
/// Annotations of a request: keys as label keys, values free, at most 128 entries.
absl::Status check_annotations(const google::protobuf::Map<std::string, std::string>& annotations);
/// Removes the keys that only the gateway writes.
void drop_owned_annotations(google::protobuf::Map<std::string, std::string>& annotations);
absl::Status check_labels(const google::protobuf::Map<std::string, std::string>& labels);

/// A policy as it came: reserved rule keys refused (`strip`: removed silently, for a supervisor's sync), markers cleared, size, safety,
/// canonical form.
absl::Status admit_policy(openshell::sandbox::v1::SandboxPolicy& policy, bool strip_provider_rules);

}  // namespace openshell::gateway
