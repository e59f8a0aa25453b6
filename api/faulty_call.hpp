// A call whose begin and end are fault points (observability/fault_point.hpp): rpc.METHOD.begin and rpc.METHOD.answer. A call that fails at
// its begin was lost on its way here and has no effect; at its answer the effect stands and the caller does not hear of it. Both look
// alike: UNAVAILABLE.
#pragma once

#include <memory>
#include <string>

#include "api/service.hpp"

namespace openshell::api {

/// `call` itself where this process has no plan. Null: the call has failed and is over.
std::shared_ptr<internal::Call> with_faults(std::shared_ptr<internal::Call> call, const std::string& method);

}  // namespace openshell::api
