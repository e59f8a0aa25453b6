// The line beside the channel: any split of any bytes gives the same messages, or the same refusal.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "isolation/boundary/socket_passing.hpp"

namespace boundary = openshell::boundary;

static void require(bool holds) {
  if (!holds) std::abort();
}

/// All messages as one text; a refusal ends it with '!'.
static std::string read_all(std::string_view bytes, std::size_t step) {
  boundary::LineDecoder decoder;
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    decoder.append(bytes.substr(at, step));
    while (true) {
      auto message = decoder.next();
      if (!message.ok()) return out + '!';
      if (!*message) break;
      require((*message)->ticket.size() == boundary::kTicketBytes && (*message)->payload.size() <= boundary::kMaxLinePayload);
      require(!(*message)->socket.valid());
      out += static_cast<char>((*message)->kind) + (*message)->ticket + (*message)->payload;
    }
  }
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  require(read_all(bytes, 1) == read_all(bytes, size == 0 ? 1 : size));
  return 0;
}
