// Room on the disk that nobody else can take: free pages inside the database, and a write-ahead log that is as long already as it gets
// between two checkpoints (1,000 pages of 4 KiB). With a full disk what has to be written can then still be: a deletion, a phase, a
// revocation.
#pragma once

#include <cstddef>
#include <string>

#include "storage/sqlite_connection.hpp"

namespace openshell::storage {

constexpr std::size_t kReservedBytes = 6 << 20;  ///< in the database, and again in its log

/// Makes what is missing of it. On the thread of the one connection that writes, outside a transaction. A disk that is full already gives
/// none, which is no reason not to start. `path`: of the database.
void reserve_room(Connection& writer, const std::string& path);

}  // namespace openshell::storage
