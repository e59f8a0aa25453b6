#pragma once

#include "api/sandboxes/plane.hpp"

namespace openshell::api {

/// CreateSandboxTemplate, GetSandboxTemplate, ListSandboxTemplates, DeleteSandboxTemplate.
void add_template_handlers(Router& router, const PlanePtr& plane);

}  // namespace openshell::api
