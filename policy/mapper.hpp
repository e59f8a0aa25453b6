// From a refused connection to the rule that would have allowed it: exactly its host, its port and its program, never more. No look-up, no
// guess from paths or methods. Pure, any thread. (PP-05, PP-09, PP-13)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace openshell::policy {

/// All denials of one host, port and program that are looked at together.
struct DeniedOpen {
  std::string_view host;  ///< lower case
  std::uint16_t port = 0;
  std::string_view binary;  ///< `-` or empty: unknown
  std::string_view stage;   ///< of the first
  std::uint32_t count = 0;
};

/// False for refusals that no rule for a host and port would have changed: requests, and destinations that are always blocked.
[[nodiscard]] bool is_proposable(const DeniedOpen& denied);

/// `allow_<host>_<port>`: '.' and '-' become '_', other symbols are dropped.
[[nodiscard]] std::string proposal_name(std::string_view host, std::uint16_t port);

/// 0.1..0.95, by count, well-known port and stage.
[[nodiscard]] double proposal_confidence(std::uint32_t count, std::uint16_t port, std::string_view stage);

/// `Allow curl to connect to api.example.test:443 (HTTPS).`
[[nodiscard]] std::string proposal_rationale(const DeniedOpen& denied);

}  // namespace openshell::policy
