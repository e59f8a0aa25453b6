// The gateway's side of an exec relay as bytes: the decoder must give the same messages however the bytes are cut, hold no more than one
// message beyond its limit, and never crash; what it gives is parsed and checked as the relay does.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "exec.pb.h"
#include "programs/supervisor/exec_relay.hpp"

namespace {

using openshell::supervisor::ExecFrameDecoder;

std::vector<std::string> decode(std::string_view bytes, std::size_t piece) {
  ExecFrameDecoder decoder;
  std::vector<std::string> messages;
  while (!bytes.empty()) {
    const auto part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    const bool alive = decoder.append(part).ok();
    while (auto message = decoder.next()) messages.push_back(*std::move(message));
    if (!alive) break;
  }
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
  const auto whole = decode(bytes, bytes.size() + 1);
  const auto pieces = decode(bytes, 1 + data[0] % 17);
  // A bad length behind good messages is seen at different moments, so one may have got further; what both have is the same.
  for (std::size_t i = 0; i < whole.size() && i < pieces.size(); ++i) {
    if (whole[i] != pieces[i]) std::abort();
  }
  for (const auto& text : whole) {
    openshell::internal::exec::v1::ToSupervisor message;
    if (message.ParseFromString(text) && message.has_start()) (void)openshell::supervisor::check_start(message.start());
  }
  return 0;
}
