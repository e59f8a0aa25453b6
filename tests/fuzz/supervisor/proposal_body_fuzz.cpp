// What an agent proposes is read or refused with a sentence, and asks for nothing that only an administrator may add; a request for
// decision records likewise.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "openshell.pb.h"
#include "programs/supervisor/decision_relay.hpp"
#include "programs/supervisor/denial_lines.hpp"
#include "programs/supervisor/proposal_body.hpp"
#include "sandbox.pb.h"

namespace supervisor = openshell::supervisor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text{reinterpret_cast<const char*>(data), size};
  (void)supervisor::parse_decision_request(text);
  if (supervisor::without_queries(text).size() > supervisor::DenialLines::kMaxLineBytes + 20) std::abort();
  const auto chunks = supervisor::parse_proposal_body(text);
  if (!chunks.ok()) {
    if (chunks.status().message().empty()) std::abort();
    return 0;
  }
  if (chunks->empty() || chunks->size() > supervisor::kMaxProposedOperations) std::abort();
  for (const auto& chunk : *chunks) {
    if (chunk.rule_name().empty() || chunk.proposed_rule().endpoints().empty()) std::abort();
    for (const auto& endpoint : chunk.proposed_rule().endpoints()) {
      if (!endpoint.advisor_proposed() || endpoint.protocol() == "tcp" || endpoint.protocol() == "sql") std::abort();
      if (endpoint.tls() == openshell::sandbox::v1::NETWORK_TLS_MODE_SKIP || endpoint.has_credential_binding()) std::abort();
    }
  }
  return 0;
}
