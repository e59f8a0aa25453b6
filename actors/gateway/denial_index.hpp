// The newest denied requests of all sandboxes, by the id that follows each. Pure. [PP-15]
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

#include "messages/operator.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {

inline constexpr std::size_t kMaxDenialLines = 4'096;  ///< kept, the oldest goes first
inline constexpr std::size_t kMaxListedDenials = 100;  ///< of one answer
inline constexpr std::size_t kMaxDenialId = 64;        ///< bytes; an id is a UUID, whatever is longer is none
inline constexpr std::size_t kMaxDenialText = 1'024;   ///< bytes kept of a line

class DenialIndex {
 public:
  /// Keeps a line that tells of a denial; others are no business of it. The first line of an id is the one that counts.
  void add(const openshell::v1::SandboxLogLine& line);
  /// The line of `denial_id`; the newest kMaxListedDenials where it is empty.
  [[nodiscard]] DenialLines find(const std::string& denial_id) const;
  /// The sandbox is gone.
  void forget(const std::string& sandbox_id);
  [[nodiscard]] std::size_t size() const { return lines_.size(); }

 private:
  std::list<DenialLine> lines_;  // oldest first
  std::unordered_map<std::string, std::list<DenialLine>::const_iterator> by_id_;
};

}  // namespace openshell::gateway
