// Requests of two inspected connections, one of each kind that their rules can tell. Internal to boundary.
#pragma once

#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/boundary/boundary.hpp"
#include "policy/matcher.hpp"

namespace openshell::policy::boundary {

struct RequestExample {
  std::string method, path;
  std::vector<QueryParameter> query;
};

struct RequestsFound {
  std::optional<RequestExample> request;  ///< `mine` allows it, `theirs` does not
  Reason ended = Reason::none;            ///< the budget ended
  absl::Status status;                    ///< the patterns are too many
};

class RequestComparison {
 public:
  /// `spend` is asked before each question; anything but none ends the comparison.
  explicit RequestComparison(std::function<Reason()> spend) : spend_{std::move(spend)} {}

  [[nodiscard]] RequestsFound compare(const Connection& mine, const Connection& theirs);
  /// Before connections of other matchers.
  void forget() { equal_.clear(); }

 private:
  std::function<Reason()> spend_;
  absl::flat_hash_set<std::vector<const Endpoint*>> equal_;  // pairs of connections in which nothing was found
};

}  // namespace openshell::policy::boundary
