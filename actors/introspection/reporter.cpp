#include "actors/introspection/reporter.hpp"

#include "actors/introspection/shown_text.hpp"

namespace openshell {

ActorSnapshot Reporter::complete(ActorSnapshot own) const {
  own.id = id_;
  own.kind = kind_;
  own.parent = parent_;
  own.handled = handled_;
  own.failed = failed_;
  own.summary = shown_text(own.summary);
  own.last_error = shown_text(own.last_error.empty() ? last_error_ : own.last_error);
  return own;
}

}  // namespace openshell
