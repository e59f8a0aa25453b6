// What differs between two documents. Pure.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

namespace openshell::cli {

struct Difference {
  std::string path;  ///< `network_policies.api.endpoints[0].port`
  std::optional<boost::json::value> before, after;
};

/// Sorted by path. Entries of objects are matched by key; elements of lists by equal value first, then by position.
std::vector<Difference> differences(const boost::json::value& before, const boost::json::value& after);

}  // namespace openshell::cli
