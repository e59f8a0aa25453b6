// `absl::Status` through a mailbox: CAF answers a failed request with a `caf::error`, the libraries speak `absl::Status`.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <caf/atom.hpp>
#include <caf/error.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>
#include <caf/typed_response_promise.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace openshell {

/// The category under which a status code travels in a `caf::error`.
inline constexpr caf::atom_value kStatusCategory = caf::atom("status");

/// `status` must not be OK. Its message goes along and must hold no secret.
inline caf::error to_error(const absl::Status& status) {
  return caf::error{static_cast<std::uint8_t>(status.code()), kStatusCategory, caf::make_message(std::string{status.message()})};
}

/// The status that `to_error` packed. What CAF itself reports becomes the nearest code: a timeout is DEADLINE_EXCEEDED, a dead receiver
/// UNAVAILABLE, anything else INTERNAL.
inline absl::Status to_status(const caf::error& error) {
  if (!error) return absl::OkStatus();
  if (error.category() == kStatusCategory) {
    const auto& context = error.context();
    return {static_cast<absl::StatusCode>(error.code()),
            context.match_elements<std::string>() ? context.get_as<std::string>(0) : std::string{}};
  }
  if (error == caf::sec::request_timeout) return absl::DeadlineExceededError("the actor did not answer in time");
  if (error == caf::sec::request_receiver_down) return absl::UnavailableError("the actor is gone");
  return absl::InternalError("actor error " + std::to_string(error.code()));
}

/// Answers a request whose answer is void. (CAF 0.17 has no `deliver()` without a value on the typed promise.)
inline void deliver(caf::typed_response_promise<void> promise, const absl::Status& status) {
  auto& untyped = static_cast<caf::response_promise&>(promise);
  if (status.ok()) {
    untyped.deliver(caf::unit);
  } else {
    untyped.deliver(to_error(status));
  }
}

/// Answers a request whose answer is one value.
template <class T>
void deliver(caf::typed_response_promise<T> promise, absl::StatusOr<T> answer) {
  if (answer.ok()) {
    promise.deliver(*std::move(answer));
  } else {
    promise.deliver(to_error(answer.status()));
  }
}

}  // namespace openshell
