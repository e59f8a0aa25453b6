#pragma once

#include <string>

namespace openshell::egress {

/// A random UUID, version 4, canonical lower-case text (RFC 9562), from the kernel's generator.
std::string new_uuid();

}  // namespace openshell::egress
