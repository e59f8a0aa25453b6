// A core file of a program that holds credentials would hold them too, on the disk of whoever collects it.
#pragma once

#include <sys/resource.h>

namespace openshell {

/// Of this process and of those that it starts. One byte rather than none: a kernel that hands cores to a program (core(5), "|") looks at
/// the limit only to see whether it is exactly one, and for files one byte is too small for any core. False: the limit stands and could not
/// be set.
inline bool forbid_core_dumps() {
  constexpr rlimit kOneByte{1, 1};
  if (::setrlimit(RLIMIT_CORE, &kOneByte) == 0) return true;
  rlimit now{};  // somebody forbade them before, which is as well
  return ::getrlimit(RLIMIT_CORE, &now) == 0 && now.rlim_cur <= 1;
}

}  // namespace openshell
