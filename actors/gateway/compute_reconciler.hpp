#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <deque>
#include <functional>
#include <memory>

#include "actors/gateway/compute.hpp"
#include "actors/gateway/times.hpp"
#include "actors/introspection/reporter.hpp"
#include "messages/gateway.hpp"

namespace openshell::gateway {

struct ReconcilerOptions {
  static constexpr std::chrono::seconds kSweep{60};
  static constexpr std::chrono::seconds kReopen{2};
  static constexpr std::size_t kCalls = 16;  ///< of the driver at once
  static constexpr Millis kGrace = 300'000;  ///< since its last change, before a sandbox that the driver does not list counts as missing
  bool threads = true;                       ///< false in virtual time: the driver of a test never blocks
  std::function<Millis()> now;
};

struct ComputeReconcilerState {
  std::shared_ptr<drivers::ComputeDriver> driver;
  SandboxIndex index;
  SandboxBus bus;
  ReconcilerOptions options;
  Reporter reporter;
  std::unique_ptr<drivers::Watch> watch;
  std::size_t running = 0;
  std::deque<std::function<void()>> waiting;

  ActorSnapshot snapshot() const;
  inline static const char* name = "compute_reconciler";
};

ComputeReconciler::behavior_type compute_reconciler(ComputeReconciler::stateful_pointer<ComputeReconcilerState> self,
                                                    std::shared_ptr<drivers::ComputeDriver> driver, SandboxBus bus, Directory directory,
                                                    ReconcilerOptions options);

}  // namespace openshell::gateway
