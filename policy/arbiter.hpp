// Another engine that decides over the data of a Matcher: rules of somebody's own (NP-07). Where a Matcher is given one, it says which
// endpoints there are and how their traffic is handled; the arbiter says which connections there may be, and which requests of those that
// are inspected.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace openshell::policy {

class Matcher;
struct Destination;
struct Endpoint;
struct Request;

/// What the rules say of one connection, and the way to ask them about its requests. Immutable.
class Arbitrated {
 public:
  struct Answer {
    bool allowed = false;
    bool failed = false;  ///< no answer could be had: a denial, under audit too
    std::string reason;   ///< of a refusal
  };

  Arbitrated() = default;
  Arbitrated(const Arbitrated&) = delete;
  Arbitrated& operator=(const Arbitrated&) = delete;
  virtual ~Arbitrated() = default;

  bool allowed = false;
  bool exact_declared_host = false;
  std::string policy;                      ///< key of the rule that allowed; empty when denied
  std::string reason;                      ///< of a denial
  std::vector<const Endpoint*> endpoints;  ///< of the matcher, the first one decides; empty: nothing is looked into

  [[nodiscard]] virtual Answer request(const Request& request) const = 0;
};

/// Any thread.
class Arbiter {
 public:
  Arbiter() = default;
  Arbiter(const Arbiter&) = delete;
  Arbiter& operator=(const Arbiter&) = delete;
  virtual ~Arbiter() = default;

  /// Never null. The answer points into `matcher`, which outlives it.
  [[nodiscard]] virtual std::shared_ptr<const Arbitrated> connect(const Matcher& matcher, const Destination& destination) const = 0;
};

}  // namespace openshell::policy
