#pragma once

#include <memory>
#include <string>

#include "actors/outbox/journal_disk.hpp"

namespace openshell::supervisor {

/// The journal's directory at `path`, whose parent exists: made with mode 0700, files 0600, no link followed, an exclusive `flock` on its
/// file "lock" for as long as the object lives.
[[nodiscard]] std::unique_ptr<JournalDisk> posix_journal_disk(std::string path);

}  // namespace openshell::supervisor
