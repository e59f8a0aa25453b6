// The outcome of an admitted request, without bodies: what is written down of an answer, and how an answer is made of it again.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>

#include "api/admissions.hpp"
#include "api/service.hpp"

namespace google::protobuf {
class Message;
}

namespace openshell::api {

/// Numbers, flags, ids and receipts are kept; of an object only what finds it again. Anything else makes the record unrepeatable.
void record_answer(const google::protobuf::Message& answer, Admissions::Record& record);

/// Calls `then` with the answer, its objects read again through the router as the caller of `ctx`. REQUEST_REPLAY_UNAVAILABLE where one is
/// gone, is another one, or, where the mutation made a version of it, was changed since.
void rebuild_answer(const CoveredMethod& method, const Admissions::Record& record, const Context& ctx, const Router& router,
                    std::function<void(absl::StatusOr<std::shared_ptr<google::protobuf::Message>>)> then);

}  // namespace openshell::api
