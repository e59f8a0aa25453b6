#include "actors/introspection/reporter.hpp"

namespace openshell {

ActorSnapshot Reporter::complete(ActorSnapshot own) const {
  own.id = id_;
  own.kind = kind_;
  own.parent = parent_;
  own.handled = handled_;
  own.failed = failed_;
  if (own.last_error.empty()) own.last_error = last_error_;
  return own;
}

}  // namespace openshell
