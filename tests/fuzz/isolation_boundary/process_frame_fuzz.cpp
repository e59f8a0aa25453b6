// Process I/O frames in two different cuts must give the same frames.
#include "isolation/boundary/control.hpp"
#include "isolation/boundary/framing.hpp"

#include <cstdlib>
#include <vector>

using namespace openshell::boundary;

namespace {
std::vector<ProcessFrame> decode(std::string_view bytes, std::size_t piece) {
  ProcessFrameDecoder decoder;
  std::vector<ProcessFrame> frames;
  for (std::size_t i = 0; i < bytes.size(); i += piece) {
    if (!decoder.append(bytes.substr(i, piece)).ok()) break;
    while (auto frame = decoder.next()) frames.push_back(*frame);
    if (decoder.dead()) break;
  }
  return frames;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes{reinterpret_cast<const char*>(data + 1), size - 1};
  const auto whole = decode(bytes, bytes.size() + 1);
  const auto pieces = decode(bytes, static_cast<std::size_t>(data[0] % 17) + 1);
  if (whole != pieces) std::abort();
  for (const auto& frame : whole) {
    (void)decode_exit_status(frame.payload);
    (void)decode_open_decision(frame.payload);
  }
  return 0;
}
