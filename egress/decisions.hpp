// Who wants to know what the policy was asked and what it said: every decided connection, every judged request.
#pragma once

#include "policy/matcher.hpp"

namespace openshell::egress {

struct Generation;

/// Called on the I/O thread right after the decision; returns at once and never throws. Everything is borrowed for the call.
class DecisionSink {
 public:
  DecisionSink() = default;
  DecisionSink(const DecisionSink&) = delete;
  DecisionSink& operator=(const DecisionSink&) = delete;
  virtual ~DecisionSink() = default;

  /// `request` null: the connection alone was decided, allow or deny. Its path and query hold no credential and no placeholder.
  virtual void decided(const Generation& generation, const policy::Destination& destination, const policy::Request* request,
                       policy::Verdict verdict) noexcept = 0;
};

}  // namespace openshell::egress
