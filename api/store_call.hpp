// A unary call that is one transaction of the store: authorised, done and answered there. For handlers that need no actor.
//
//   answer_in<GetProviderResponse>(Access::kRead, *store, reply, [=](Transaction& tx, GetProviderResponse& response) -> absl::Status
//   {...});
#pragma once

#include <memory>
#include <utility>

#include "api/service.hpp"
#include "storage/store.hpp"

namespace openshell::api {

enum class Access { kRead, kWrite };

/// Runs `work(tx, response)` on a thread of the store. OK: after the commit `then(response)` runs there, and the caller gets the response.
/// Not OK: nothing was written, and the caller gets the status.
template <class Response, class Work, class Then>
void answer_in(Access access, storage::Store& store, const Reply<Response>& reply, Work work, Then then) {
  auto response = std::make_shared<Response>();
  auto job = [response, work = std::move(work)](storage::Transaction& tx) -> absl::Status {
    response->Clear();
    return work(tx, *response);
  };
  auto done = [response, reply, then = std::move(then)](const absl::Status& status) {
    if (!status.ok()) return reply.fail(status);
    then(*response);
    reply.ok(*response);
  };
  access == Access::kRead ? store.read(std::move(job), std::move(done)) : store.write(std::move(job), std::move(done));
}

template <class Response, class Work>
void answer_in(Access access, storage::Store& store, const Reply<Response>& reply, Work work) {
  answer_in(access, store, reply, std::move(work), [](const Response&) {});
}

}  // namespace openshell::api
