#pragma once

#include <caf/stateful_actor.hpp>

#include <memory>

#include "actors/introspection/reporter.hpp"
#include "actors/outbox/journal_files.hpp"
#include "messages/supervisor.hpp"

namespace openshell::supervisor {

struct JournalWriterState {
  std::shared_ptr<JournalFiles> files;
  Reporter reporter;
  inline static const char* name = "journal_writer";
};

/// The shell round JournalFiles. Spawn it detached: each append waits for the disk.
JournalWriter::behavior_type journal_writer(JournalWriter::stateful_pointer<JournalWriterState> self, std::shared_ptr<JournalFiles> files,
                                            Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::shared_ptr<openshell::supervisor::JournalFiles>)
