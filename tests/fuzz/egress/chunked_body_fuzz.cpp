// Chunked bodies: however the bytes arrive, the body ends at the same place or is refused.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "egress/http/body.hpp"

using openshell::egress::http::ChunkedReader;

static void require(bool holds) {
  if (!holds) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  ChunkedReader whole{ChunkedReader::Side::kRequest};
  const auto at_once = whole.consume(bytes);
  ChunkedReader split{ChunkedReader::Side::kRequest};
  std::size_t used = 0;
  bool failed = false;
  const std::size_t step = size == 0 ? 1 : 1 + data[0] % 7;
  while (used < bytes.size() && !split.done() && !failed) {
    const auto piece = bytes.substr(used, step);
    const auto taken = split.consume(piece);
    failed = !taken.ok();
    if (taken.ok()) {
      require(*taken == piece.size() || split.done());
      used += *taken;
    }
  }
  require(failed == !at_once.ok());
  if (at_once.ok()) require(*at_once == used && whole.done() == split.done());
  return 0;
}
