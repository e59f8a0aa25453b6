#include "programs/supervisor/launch.hpp"

#include <chrono>
#include <cstdint>
#include <utility>

namespace openshell::supervisor {

absl::StatusOr<Launch> load_launch(const Options& options) {
  auto descriptor_text = boundary::read_launch_file(options.descriptor_file);
  if (!descriptor_text.ok()) return descriptor_text.status();
  auto descriptor = boundary::parse_descriptor(*descriptor_text);
  if (!descriptor.ok()) return descriptor.status();
  auto auth_text = boundary::read_launch_file(options.auth_bundle_file);
  if (!auth_text.ok()) return auth_text.status();
  auto auth = boundary::parse_auth_bundle(*auth_text);
  if (!auth.ok()) return auth.status();
  if (auto status = boundary::check_match(*descriptor, *auth); !status.ok()) return status;
  if (descriptor->boundary_id != options.sandbox_id) return absl::InvalidArgumentError("the runtime descriptor is for another sandbox");
  if (auto status = boundary::check_fence(descriptor->outer_fence, descriptor->generation); !status.ok()) return status;
  return Launch{*std::move(descriptor), *std::move(auth)};
}

api::TokenPair to_tokens(const boundary::AuthBundle& auth) {
  const auto at = [](std::uint64_t seconds) { return std::chrono::sys_seconds{std::chrono::seconds{static_cast<std::int64_t>(seconds)}}; };
  return {{auth.gateway_token, at(auth.gateway_expires_at)},
          {auth.sandbox_token, at(auth.sandbox_expires_at)},
          auth.session_id,
          auth.auth_epoch};
}

}  // namespace openshell::supervisor
