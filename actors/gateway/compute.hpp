// One call of the compute driver, as entities ask for it, and the translation of a sandbox into the driver's words.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "drivers/driver.hpp"
#include "records.pb.h"

namespace openshell::gateway {

/// Not part of the record: tokens are made for one launch and never stored.
class ComputeCall {
 public:
  enum class Kind : std::uint8_t { validate, create, start, stop, remove, get };
  Kind kind = Kind::get;
  SandboxId id;
  drivers::SandboxSpec spec;             ///< create, start
  drivers::LaunchAuthentication launch;  ///< create, start
  std::string runtime_identity;          ///< start: the one that is expected
};

struct ComputeAnswer {
  std::string runtime_identity;   ///< create, start
  bool removed = false;           ///< remove: something was there
  drivers::Observation observed;  ///< get
};

/// The specification that the driver gets, the same at create and at every start. INVALID_ARGUMENT for a driver_config that is no object.
absl::StatusOr<drivers::SandboxSpec> to_driver_spec(const internal::records::v1::SandboxRecord& record);

/// Runs a call; blocks.
absl::StatusOr<ComputeAnswer> run(drivers::ComputeDriver& driver, const ComputeCall& call);

}  // namespace openshell::gateway
