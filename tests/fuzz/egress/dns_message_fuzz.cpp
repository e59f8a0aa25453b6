// DNS messages of both sides: what we answer must parse as an answer to what was asked.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "egress/dns/message.hpp"

namespace dns = openshell::egress::dns;

static void require(bool holds) {
  if (!holds) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto parsed = dns::parse_query(bytes);
  if (parsed.query) {
    const auto& query = *parsed.query;
    require(query.name.size() <= 253);
    const auto answer = dns::build_answer(query, dns::Rcode::kNoError);
    require(answer.size() == 12 + query.question.size());
    if (!query.name.empty()) require(dns::parse_reply(answer, query.id, query.name, query.type).ok());
  } else {
    require(dns::build_error(parsed.error, parsed.question).size() >= 12);
  }
  const std::uint16_t id = size < 2 ? 0 : static_cast<std::uint16_t>(data[0] << 8 | data[1]);
  for (const auto type : {dns::kTypeA, dns::kTypeAaaa}) {
    const auto reply = dns::parse_reply(bytes, id, "a.test", type);
    if (reply.ok()) require(reply->addresses.size() <= dns::kMaxAddresses && reply->cnames <= dns::kMaxCnames);
  }
  return 0;
}
