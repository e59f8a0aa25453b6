// A sandbox that is only a stored record: its launch was given up, so the gateway leaves it alone, and a test can be its supervisor.
#pragma once

#include <string>

#include "actors/gateway/records.hpp"
#include "storage/store.hpp"
#include "tests/integration/gateway/gateway_process.hpp"

namespace openshell::gateway {

inline constexpr const char* kSandbox = "11111111-0000-4000-8000-000000000001";
inline constexpr const char* kOther = "11111111-0000-4000-8000-000000000002";
inline constexpr const char* kGeneration = "22222222-0000-4000-8000-000000000001";
inline constexpr const char* kTokenId = "33333333-0000-4000-8000-000000000001";
inline constexpr std::uint64_t kEpoch = 3;

inline records::SandboxRecord seeded(const std::string& id, const std::string& name) {
  records::SandboxRecord out;
  auto& meta = *out.mutable_sandbox()->mutable_metadata();
  meta.set_id(id);
  meta.set_name(name);
  meta.set_workspace("default");
  out.mutable_sandbox()->mutable_spec();
  out.mutable_sandbox()->mutable_status()->set_phase(pb::SANDBOX_PHASE_ERROR);
  out.set_intent(records::INTENT_HELD);
  out.set_runtime_generation(kGeneration);
  out.set_auth_epoch(kEpoch);
  out.set_gateway_token_id(kTokenId);
  out.set_driver("process");
  out.set_runtime_identity("runtime");
  return out;
}

/// Lets a gateway that has not run yet make its database, and stores sandbox "box" in it; the gateway is ended afterwards. False: a step
/// failed.
inline bool seed_box(GatewayProcess& gateway) {
  if (!gateway.start() || gateway.terminate() != 0) return false;
  auto store = storage::open_store("sqlite:" + gateway.state() + "/gateway/openshell.db");
  return store.ok() &&
         (*store)->write_and_wait([](storage::Transaction& tx) { return tx.create(to_row(seeded(kSandbox, "box"))).status(); }).ok();
}

}  // namespace openshell::gateway
