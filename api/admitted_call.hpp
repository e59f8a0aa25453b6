// A call whose request may carry a `request_id`, between the shell and the handler. The handler sees an ordinary call; here its first
// message is looked at, the request is admitted, and its success is recorded before the caller hears of it. [at most once]
//
// Unary: admitted work runs detached. A caller that goes away stops nothing, and `over()` stays false until the handler has answered.
// Exec: the caller's end cancels it as ever; an end by the process, or by the caller, is recorded.
#pragma once

#include <memory>
#include <optional>

#include "api/admissions.hpp"
#include "api/service.hpp"

namespace openshell::api {

/// `call`, or a wrapper around it where the method has a request_id. A supervisor's request_id is checked and has no other effect.
/// `router` has the methods that read an object of a replayed answer again.
std::shared_ptr<internal::Call> admitted(std::shared_ptr<internal::Call> call, const Context& ctx, const MethodRule* rule,
                                         std::shared_ptr<Admissions> admissions, const Router* router);

}  // namespace openshell::api
