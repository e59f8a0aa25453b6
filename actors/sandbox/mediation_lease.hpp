#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>

#include "actors/introspection/reporter.hpp"
#include "actors/sandbox/call.hpp"
#include "messages/sandbox.hpp"

namespace openshell::sandbox {

inline constexpr std::chrono::seconds kLeaseWait{20};  ///< then: "a mediation session is already active"
inline constexpr std::size_t kMaxLeaseWaiters = 8;

struct MediationLeaseState {
  /// Makes the stream of the holder; its argument is to run when that stream has ended.
  using MakeStream = std::function<std::shared_ptr<CallStream>(std::function<void()>)>;
  struct Waiter {
    std::uint64_t number = 0;
    std::shared_ptr<Call> call;
  };
  Reporter reporter;
  MakeStream make_stream;
  std::uint64_t last_number = 0;
  std::uint64_t holder = 0;  // 0: free
  std::deque<Waiter> waiters;
  inline static const char* name = "mediation_lease";
};

MediationLease::behavior_type mediation_lease(MediationLease::stateful_pointer<MediationLeaseState> self,
                                              MediationLeaseState::MakeStream make_stream, Directory directory);

}  // namespace openshell::sandbox
